import {createSeenIds} from '../contract/list.ts'
import type {Stream} from '../contract/stream.ts'
import {businessDateOf, formatInstant} from '../core/clock.ts'
import type {Config, SourceConfig} from '../core/config.ts'
import {codeOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {createNormaliser} from '../source/record.ts'
import {walkPages} from '../source/walk-pages.ts'
import type {Database} from '../store/database.ts'
import {readSetting} from '../store/warehouse.ts'
import {type Acceptance, mostListed} from './guard.ts'
import {countPresent} from './settle.ts'
import {dropWalks, endWalk, settleWalk, type WalkTools} from './settle-walk.ts'
import {
  certifyWalk,
  createPageGroup,
  findPast,
  listReadIds,
  type OpenWalk,
  type PageGroup,
  startWalk,
  type WalkRequest,
} from './walk-state.ts'
import {noteWalkBegun} from './webhook-events.ts'

/** Pages are stored together: up to this many, of texts up to this length, or as many as arrive in this time. */
const GROUP_PAGES = 50
const GROUP_LENGTH = 8_000_000
const GROUP_MS = 1000

/**
 * Makes sure that a data folder reads the source it belongs to; what was begun at another is dropped.
 *
 * @throws ConfigError `SOURCE_PINNED`
 */
export async function requireOwnSource(
  tools: Pick<WalkTools, 'db' | 'tapes' | 'walks'>,
  baseUrl: string,
  accepted: ReadonlySet<Acceptance>,
): Promise<void> {
  if (!accepted.has('source')) requirePin(await readSetting(tools.db, 'source_base_url'), baseUrl)
  await dropWalks(tools, 'another source', (walk) => walk.baseUrl !== baseUrl)
}

/**
 * Makes sure that a data folder is pinned to this source, or to none yet.
 *
 * @throws ConfigError `SOURCE_PINNED`
 */
export function requirePin(pinned: string | undefined, baseUrl: string): void {
  if (pinned === undefined || pinned === baseUrl) return
  throw newError('SOURCE_PINNED', `Base URL '${baseUrl}': this data folder belongs to '${pinned}'.`)
}

/**
 * Reads the list to its end, from where an interrupted walk got to or from the start, storing pages as they come.
 * A cursor that the source no longer takes starts the walk anew, once. A walk whose cursors led nowhere is dropped: where
 * they lead once the source is right again, nobody knows.
 */
export async function readToEnd(tools: WalkTools, isDryRun: boolean, world: World): Promise<OpenWalk> {
  const walk = await beginWalk(tools, isDryRun, world)
  if (walk.isComplete) return walk
  try {
    await readPages(tools, walk, world)
    return walk
  } catch (error) {
    if (['SOURCE_CURSOR_LOOP', 'SOURCE_ENDLESS'].includes(codeOf(error))) {
      await endWalk(tools, walk, {state: 'abandoned', how: 'the list led nowhere'})
    }
    const isCursorRefused = codeOf(error) === 'SOURCE_CURSOR_REFUSED'
    const isExcusable = walk.resumed > 0 || !isYoung(walk, world)
    if (!isCursorRefused || !isExcusable) throw error
    world.log.warn({walk_id: walk.walkId}, 'the source no longer takes the cursor; the walk starts anew')
    await endWalk(tools, walk, {state: 'abandoned', how: 'cursor refused'})
    const anew = await startAnew(tools, world)
    await readPages(tools, anew, world)
    return anew
  }
}

async function beginWalk(tools: WalkTools, isDryRun: boolean, world: World): Promise<OpenWalk> {
  const {db, stream, config, walks} = tools
  const open = walks.get(stream.name)
  if (!open) return startAnew(tools, world)
  const request = requestOf(config)
  const isSame =
    open.baseUrl === request.baseUrl && open.pageSize === request.pageSize && open.filter === request.filter
  if (open.isComplete && isDryRun)
    throw newError(
      'WALK_WAITING',
      `Walk '${open.walkId}' of ${open.businessDate} in the warehouse: it was read to its end, and its run died before it was applied. A dry run would lose it.`,
    )
  if (open.isComplete && isSame && isYoung(open, world)) return open
  if (open.isComplete) {
    // Its run died long ago, or asked for something else; it is still an observation of its day.
    await certifyWalk(db, stream, open)
    await settleWalk(tools, open, {fetched: 0, failed: 0}, world)
    return startAnew(tools, world)
  }
  if (isSame && isYoung(open, world)) {
    await continueWalk(tools, open)
    return open
  }
  const how = isSame ? 'cursor too old' : 'another page size or filter'
  await endWalk(tools, open, {state: 'abandoned', how})
  return startAnew(tools, world)
}

/** Notes that another run takes up a walk. */
export async function continueWalk(tools: WalkTools, walk: OpenWalk): Promise<void> {
  walk.resumed += 1
  await beginTape(tools, walk)
}

/** An older cursor has most likely expired: a walk is begun anew rather than asked with it. */
const CURSOR_MS = 30 * 60_000

/** Whether the walk's last cursor may still be good. */
function isYoung(walk: OpenWalk, world: World): boolean {
  const ageMs = world.realClock.now() - Number((walk.cursorReceivedAt ?? 0n) / 1000n)
  return ageMs <= CURSOR_MS
}

function requestOf(config: SourceConfig): WalkRequest {
  const filter = config.stage === undefined ? '' : `status=${config.stage}`
  return {baseUrl: config.baseUrl, pageSize: config.pageSize, filter}
}

async function startAnew(tools: WalkTools, world: World): Promise<OpenWalk> {
  const {db, stateDb, stream, config, runId} = tools
  const now = world.clock.now()
  const businessDate = await findBusinessDate(db, stream, config, now)
  const walkId = nameWalk(runId, world)
  if (config.webhookSecret !== undefined) noteWalkBegun(stateDb, walkId, world.realClock.now())
  const startedAt = BigInt(now) * 1000n
  const walk = startWalk({...requestOf(config), walkId, businessDate, startedAt})
  await beginTape(tools, walk)
  world.onStep('walk begun')
  return walk
}

/** A new id for a walk of a run. */
export function nameWalk(runId: string, {random}: World): string {
  const attempt = Math.floor(random() * 0x1000000)
  return `w_${runId}_${attempt.toString(16).padStart(6, '0')}`
}

/** The day that what is read at `now`, ms since the epoch, counts for: never earlier than that of the last walk. */
export async function findBusinessDate(
  db: Database,
  stream: Stream,
  config: Config,
  now: number,
): Promise<string> {
  const past = await findPast(db, stream)
  const today = businessDateOf(now, config)
  return past && past.businessDate > today ? past.businessDate : today
}

/** Takes down what a walk asks for, and what it will be judged by. */
export async function beginTape(
  {db, tapes, stream, config, accepted, walks}: WalkTools,
  walk: OpenWalk,
): Promise<void> {
  await tapes.begin(walk.walkId, walk.businessDate, {
    kind: 'walk',
    stream: stream.name,
    baseUrl: walk.baseUrl,
    pageSize: walk.pageSize,
    filter: walk.filter,
    businessDate: walk.businessDate,
    startedAt: formatInstant(walk.startedAt),
    resumed: walk.resumed,
    timeZone: config.timeZone,
    dayCutoff: config.dayCutoff,
    detail: config.detail,
    streams: config.streams,
    limits: {
      shrinkPct: config.shrinkLimitPct,
      changePct: config.changeLimitPct,
      growthPct: config.growthLimitPct,
    },
    accepted: [...accepted],
    hashKey: await readSetting(db, 'hash_key'),
  })
  walks.set(stream.name, walk)
}

async function readPages(tools: WalkTools, walk: OpenWalk, world: World): Promise<void> {
  const {db, stream, client, config, accepted, tapes} = tools
  const normalise = createNormaliser(stream)
  const total = (await findPast(db, stream))?.records ?? null
  const envelope = accepted.has('envelope') ? null : ((await readSetting(db, 'envelope')) ?? null)
  const waitedBefore = client.waitedMs - walk.waitedMs
  let [pages, done] = [walk.pages, walk.records]
  let group = createPageGroup(stream, walk)
  let groupStartedAt = world.realClock.now()
  let storing: Promise<PromiseSettledResult<void>[]> = Promise.resolve([])

  const report = () =>
    world.onProgress({step: 'walking', unit: stream.plural, done, total, pages, source: client})

  async function store(read: PageGroup): Promise<void> {
    if (read.pages === 0) return
    await tapes.store(walk.walkId)
    await read.stage(db, client.waitedMs - waitedBefore)
    world.onStep('pages stored')
  }

  async function settleStoring(): Promise<void> {
    for (const outcome of await storing) if (outcome.status === 'rejected') throw outcome.reason
  }

  /** Begins to store what has been read; the pages after it are read meanwhile. */
  async function beginStoring(): Promise<void> {
    await settleStoring()
    storing = Promise.allSettled([store(group)])
    group = createPageGroup(stream, walk, walk.pages + group.pages)
    groupStartedAt = world.realClock.now()
  }

  const request = {
    path: stream.listPath,
    cursor: walk.nextCursor,
    seenCursors: walk.cursors,
    seenIds: createSeenIds(),
    idField: stream.idField,
    mostIds: mostListed(await countPresent(db, stream), config, accepted),
    pageSize: config.pageSize,
    filter: config.stage === undefined ? undefined : {param: 'status', value: config.stage},
    envelope,
  }
  for await (const id of listReadIds(db, stream, walk)) request.seenIds.add(id)
  report()
  await db.closedWhile(async () => {
    try {
      for await (const page of walkPages(request, client, world)) {
        const {envelope, received} = page
        const waited_ms = client.waitedMs - waitedBefore
        tapes.take(walk.walkId, {frame: 'list', envelope, waited_ms}, received)
        group.add(page, normalise(page.records, page.observedAt))
        pages += 1
        done += page.records.length
        report()
        const isFull = group.pages >= GROUP_PAGES || group.length >= GROUP_LENGTH
        if (isFull || world.realClock.now() - groupStartedAt >= GROUP_MS) await beginStoring()
      }
    } finally {
      await beginStoring()
      await settleStoring()
    }
  })
}
