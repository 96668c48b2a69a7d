import {hash} from 'node:crypto'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import {businessDateOf, formatInstant} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {codeOf, newError} from '../core/errors.ts'
import {nameOfUser} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {walkPages} from '../source/walk-pages.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import {readSettings} from '../store/warehouse.ts'
import {mostListed} from './guard.ts'
import {openWalk, takeDown, type WalkIntake, type WalkTools} from './intake.ts'
import type {OpenWalk} from './plan-changes.ts'
import {endWalk, settleWalk} from './settle.ts'
import {tablesOf} from './stream-tables.ts'

/**
 * Reads the list to its end, from the start or from where an interrupted walk stopped. If the source no longer accepts a cursor,
 * begins a new walk, once. Drops a walk whose cursors loop or never end: they cannot be trusted even once the source is
 * repaired.
 */
export async function readToEnd(tools: WalkTools, isDryRun: boolean, world: World): Promise<WalkIntake> {
  const unit = await beginWalk(tools, isDryRun, world)
  if (unit.walk.isComplete) return unit
  try {
    return await readPages(tools, unit, world)
  } catch (error) {
    const isExcusable = unit.walk.resumed > 0 || !isCursorYoung(unit, world)
    if (codeOf(error) !== 'SOURCE_CURSOR_REFUSED' || !isExcusable) throw error
    world.log.warn({walk_id: unit.walk.walkId}, 'the source no longer accepts the cursor; a new walk begins')
    await endWalk(tools, unit, {state: 'abandoned', how: 'cursor refused'})
    return readPages(tools, await startAnew(tools, world), world)
  }
}

async function beginWalk(tools: WalkTools, isDryRun: boolean, world: World): Promise<WalkIntake> {
  const {stream, config, walks} = tools
  const open = walks.get(stream.name)
  if (!open) return startAnew(tools, world)
  const {walk} = open
  const request = requestOf(stream, config)
  const isSame = Object.entries(request).every(([name, value]) => Reflect.get(walk, name) === value)
  const isContinued = isSame && isCursorYoung(open, world)
  if (walk.isComplete && isDryRun && !isContinued)
    throw newError(
      'WALK_WAITING',
      `Walk '${walk.walkId}' of ${walk.businessDate}: it was read to its end, but is not applied yet. A dry run would lose it.`,
    )
  if (isContinued || walk.isComplete) await continueWalk(tools, open)
  if (isContinued) return open
  const how = isSame ? 'cursor too old' : 'another page size, filter or source.json'
  // Its run died long ago or asked for something else: what it read still belongs to its day.
  if (walk.isComplete && walk.filter === request.filter) await settleWalk(tools, open, world)
  else await endWalk(tools, open, {state: 'abandoned', how})
  return startAnew(tools, world)
}

/** An older cursor has probably expired. */
const CURSOR_MS = 30 * 60_000

function isCursorYoung({walk}: WalkIntake, world: World): boolean {
  const ageMs = world.realClock.now() - Number((walk.cursorReceivedAt ?? 0n) / 1000n)
  return ageMs <= CURSOR_MS
}

/** If any of it changes, a new walk begins. */
export function requestOf({parent}: Stream, {baseUrl, pageSize, stage, description}: WalkTools['config']) {
  const filter = parent || stage === undefined ? '' : `status=${stage}`
  const described = description && hash('sha256', JSON.stringify({...description, auth: null, $schema: null}))
  return {baseUrl, pageSize, filter, described}
}

async function startAnew(tools: WalkTools, world: World): Promise<WalkIntake> {
  const now = world.clock.now()
  const businessDate = await findBusinessDate(tools.db, tools.stream, tools.config, now)
  const unit = await startWalk(tools, {businessDate, startedAt: BigInt(now) * 1000n}, world)
  world.onStep('walk begun')
  return unit
}

const pastRow = z.object({
  businessDate: z.string().nullable(),
  startedAt: z.coerce.bigint().nullable(),
  filter: z.string().nullable(),
  baseUrl: z.string().nullable(),
  envelope: z.string().nullable(),
})

/**
 * Latest date and start of the applied walks, and what the last of them asked for and found; null before the first. `startedAt`
 * is microseconds since the epoch.
 */
export function findPast(db: Database, stream: Stream) {
  return db.one(
    pastRow,
    `select
       max(business_date) as "businessDate",
       epoch_us(max(started_at)) as "startedAt",
       arg_max(filter, recorded_at) as filter,
       arg_max(base_url, recorded_at) as "baseUrl",
       arg_max(envelope, recorded_at) as envelope
     from history.raw.walk
     where stream = $1 and state = 'applied'`,
    [stream.name],
  )
}

/** The business date of what is read at `now` (ms since the epoch); never earlier than that of the last walk. */
export async function findBusinessDate(db: Database, stream: Stream, config: Config, now: number) {
  const {businessDate: last} = await findPast(db, stream)
  const today = businessDateOf(now, config)
  return last !== null && last > today ? last : today
}

type Asked = Pick<OpenWalk, 'baseUrl' | 'pageSize' | 'filter' | 'described' | 'businessDate' | 'startedAt'>

/** The first line holds what the walk asks for and the limits it will be judged by. */
export async function startWalk(
  tools: WalkTools,
  when: Pick<OpenWalk, 'businessDate' | 'startedAt'>,
  {random}: Pick<World, 'random'>,
): Promise<WalkIntake> {
  const {runId, db, tapes, stream, config, walks} = tools
  const attempt = Math.floor(random() * 0x1000000).toString(16)
  const walkId = `w_${runId}_${attempt.padStart(6, '0')}`
  const said = await describeWalk(tools, {...requestOf(stream, config), ...when}, 0)
  const begin = tapes.begin(walkId, when.businessDate, said)
  const unit = openWalk(db, stream, begin)
  walks.set(stream.name, unit)
  return unit
}

/** Writes to the tape that another run continues or settles the walk, and what is accepted now. */
export async function continueWalk(tools: WalkTools, {walk, take}: WalkIntake): Promise<void> {
  const said = await describeWalk(tools, walk, walk.resumed + 1)
  take(tools.tapes.begin(walk.walkId, walk.businessDate, said))
}

async function describeWalk(
  {db, stream, config, accepted, why, who = nameOfUser()}: WalkTools,
  {baseUrl, pageSize, filter, described, businessDate, startedAt}: Asked,
  resumed: number,
): Promise<Record<string, unknown>> {
  return {
    kind: 'walk',
    stream: stream.name,
    ...{baseUrl, pageSize, filter, described, businessDate},
    startedAt: formatInstant(startedAt),
    resumed,
    timeZone: config.timeZone,
    dayCutoff: config.dayCutoff,
    detail: config.detail,
    streams: config.streams,
    limits: {
      shrinkPct: config.shrinkLimitPct,
      changePct: config.changeLimitPct,
      growthPct: config.growthLimitPct,
    },
    accepted: accepted.size === 0 ? null : {what: [...accepted], who, why: why ?? null},
    hashKey: (await readSettings(db)).hash_key,
  }
}

async function readPages(tools: WalkTools, unit: WalkIntake, world: World): Promise<WalkIntake> {
  const {db, client, config, accepted} = tools
  const {stream, walk} = unit
  const known = `select count(*) from ${tablesOf(stream).head} where kind in ('seen', 'missing')`
  const present = await db.value(z.coerce.number(), known)
  const waitedBefore = client.waitedMs - walk.waitedMs
  const report = () => {
    const {pages, records: done} = walk
    const total = present || null
    world.onProgress({step: 'walking', unit: stream.plural, done, total, pages, source: client})
  }
  const request = {
    path: stream.listPath,
    cursor: walk.nextCursor,
    seenCursors: walk.cursors,
    seenIds: new Set<string>(),
    mostIds: mostListed(present, config, accepted),
    pageSize: config.pageSize,
    filter: config.stage === undefined ? undefined : {status: config.stage},
    envelope: accepted.has('envelope') ? null : (await findPast(db, stream)).envelope,
  }
  if (walk.pages > 0) {
    const read = db.stream(
      `select ${stream.idColumn} from ${tablesOf(stream).staged}
       union all
       select record_id from temp.staged_quarantine
       where walk_id = ${quoteLiteral(walk.walkId)} and record_id is not null`,
    )
    for await (const ids of read) for (const id of ids) request.seenIds.add(String(id))
  }
  report()
  try {
    await takeDown(tools, unit, 'pages stored', world, async (take) => {
      for await (const {envelope, received, body} of walkPages(request, client)) {
        const waited_ms = client.waitedMs - waitedBefore
        await take([{frame: {frame: 'list', envelope, waited_ms}, body, received}])
        report()
      }
    })
    return unit
  } catch (error) {
    if (['SOURCE_CURSOR_LOOP', 'SOURCE_ENDLESS'].includes(codeOf(error)))
      await endWalk(tools, unit, {state: 'abandoned', how: 'the list led nowhere'})
    throw error
  }
}
