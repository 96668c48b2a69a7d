import {existsSync} from 'node:fs'
import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import {dealStream} from '../contract/deal.ts'
import {parseDescription, refuseSourceFile, type SourceDescription} from '../contract/description.ts'
import {STREAMS} from '../contract/streams.ts'
import {businessDateOf, type Clock, createSteadyClock, isBehind} from '../core/clock.ts'
import type {SourceConfig} from '../core/config.ts'
import {codeOf, LoantapeError, newError} from '../core/errors.ts'
import {listSome} from '../core/text.ts'
import type {World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import {readWrittenText} from '../store/files.ts'
import {readFact, writeFact} from '../store/recorded.ts'
import type {CurrentRun} from '../store/runs.ts'
import {hasStateDb, openStateDb, type StateDb} from '../store/state-db.ts'
import {readSettings} from '../store/warehouse.ts'
import {openToSettle} from './catch-up.ts'
import type {OpenWalks, WalkTools} from './intake.ts'
import {dropWalks} from './settle.ts'
import {type Statuses, setStatuses, tablesOf} from './stream-tables.ts'
import {findPast, requestOf} from './walk.ts'

const KEPT_MS = 24 * 3600 * 1000

const learntRow = z.object({learntRate: z.number(), pausedUntil: z.number()})

/** What an earlier run learnt of this source: the rate, requests per second, and until when it asked to wait, ms since the epoch. */
export function findLearnt(stateDb: StateDb, baseUrl: string, world: World) {
  const now = world.realClock.now()
  // Under a clock that has gone back since, the instant means nothing.
  const sql = `select rate_per_second as learntRate, iif(learnt_at > ?, 0, paused_until) as pausedUntil
    from learnt_rate where base_url = ? and learnt_at > ?`
  return stateDb.first(learntRow, sql, [now, baseUrl, now - KEPT_MS])
}

/** Stores what this run learnt and deletes what has expired. */
export function storeLearnt(
  stateDb: StateDb,
  baseUrl: string,
  {ratePerSecond, pausedUntil}: {ratePerSecond: number; pausedUntil: number},
  world: World,
): void {
  const now = world.realClock.now()
  stateDb.run('delete from learnt_rate where learnt_at <= ?', [now - KEPT_MS])
  const learnt = {rate_per_second: ratePerSecond, paused_until: Math.ceil(pausedUntil), learnt_at: now}
  stateDb.insert('learnt_rate', {base_url: baseUrl, ...learnt}, 'or replace')
}

/**
 * Opens the warehouse, takes up what dead runs had read, and runs `work` at the source, under a clock that never goes back. The
 * rate learnt from the source, and the wait it asked for, are kept for the next run.
 *
 * @throws what opening throws: ConfigError `SOURCE_FILE`, `SOURCE_PINNED`, `CLOCK_BACKWARDS`, those of the tapes' key; LockedError
 */
export async function atSource<T>(
  settings: SourceConfig,
  {
    folder,
    run,
    statuses,
    accepted,
    why,
  }: {folder: DataFolder; run: CurrentRun; statuses: Statuses} & Pick<WalkTools, 'accepted' | 'why'>,
  work: (tools: WalkTools, world: World) => Promise<T>,
): Promise<T> {
  const {runId, stateDb, world: outside} = run
  const config = {...settings, description: readDescription(folder, accepted.has('source'))}
  outside.onProgress({step: 'opening'})
  await using opened = await openToSettle(config, {folder, stateDb}, outside)
  const {db, tapes, walks, streams} = opened
  await setStatuses(db, statuses)
  await requirePin(db, config, accepted.has('source'))
  const isDescribed = config.description === undefined ? 'no' : 'yes'
  if ((readFact(stateDb, 'source_described') ?? 'no') !== isDescribed)
    writeFact(stateDb, 'source_described', isDescribed)
  await dropWalks(opened, 'another source', ({baseUrl}) => baseUrl !== config.baseUrl)
  const world = {...outside, clock: await createWalkClock(db, walks, config, outside.clock)}
  const learnt = findLearnt(stateDb, config.baseUrl, world)
  const {createClient} = await import('../source/client.ts')
  await using client = createClient({...config, ...learnt}, world)
  try {
    const at = {runId, db, stateDb, tapes, walks, stream: streams[0], client, config}
    return await work({...at, accepted, why, who: world.who}, world)
  } catch (error) {
    // The clock went back, so the request times may be wrong.
    if (codeOf(error) === 'CLOCK_STEPPED') await dropWalks(opened, 'clock stepped')
    throw error
  } finally {
    storeLearnt(stateDb, config.baseUrl, client, world)
    stateDb.run(
      `insert into source_answer (status, answers) select key, value from json_each(?) where true
       on conflict (status) do update set answers = answers + excluded.answers`,
      [JSON.stringify(Object.fromEntries(client.answers))],
    )
  }
}

/**
 * What `source.json` of the data folder says; undefined if there is no such file.
 *
 * @param isAccepted the file may be gone
 * @throws ConfigError `SOURCE_FILE`, also for a missing file that the folder was filled with: the key could be one that the source
 * itself must not see
 */
export function readDescription(folder: DataFolder, isAccepted = false): SourceDescription | undefined {
  const {source: file} = folder
  if (existsSync(file)) return parseDescription(readWrittenText(file, refuseSourceFile(file)), file)
  if (isAccepted || !hasStateDb(folder)) return undefined
  using stateDb = openStateDb(folder.stateDb)
  if (readFact(stateDb, 'source_described') !== 'yes') return undefined
  throw refuseSourceFile(file)('it is missing, although this folder was filled with it')
}

/** SQL of the records of all streams, each with the time of the last request that showed it. */
const OBSERVED = STREAMS.map(
  ({name, plural, idColumn}) =>
    `select '${plural}' as plural, ${idColumn} as id, greatest(observed_at, detail_at) as seen_at from history.raw.${name}_head`,
).join(' union all ')

/**
 * Makes sure that a data folder belongs to this source and stage, or to none yet.
 *
 * @param isMoved the source may have moved
 * @returns the base URL it belongs to
 * @throws ConfigError `SOURCE_PINNED`
 */
export async function requirePin(db: Database, config: SourceConfig, isMoved = false) {
  const {source_base_url: pinned} = await readSettings(db)
  if (!isMoved && pinned !== undefined && pinned !== config.baseUrl)
    throw newError('SOURCE_PINNED', `Base URL '${config.baseUrl}': this data folder belongs to '${pinned}'.`)
  const {filter} = await findPast(db, dealStream)
  if (filter === null || filter === requestOf(dealStream, config).filter) return pinned
  const asked = config.stage === undefined ? 'is not set' : `'${config.stage}'`
  throw newError(
    'SOURCE_PINNED',
    `LOANTAPE_STAGE ${asked}: this data folder belongs to ${filter === '' ? 'all deals' : `'${filter}'`}.`,
    {next: 'Set it as it was, or use another folder with --data: each stage has its own.'},
  )
}

/**
 * The clock of one run at the source: never behind what is stored, and it never goes back, neither between requests nor up to
 * the instant at which a walk is settled.
 *
 * @throws ConfigError `CLOCK_BACKWARDS`; GuardError `CLOCK_STEPPED`; its `now` throws DeferredError `CLOCK_STEPPED`
 */
async function createWalkClock(db: Database, walks: OpenWalks, zone: Zone, clock: Clock): Promise<Clock> {
  const now = Math.floor(clock.now())
  const asked = [await requireClock(db, zone, now)]
  for (const {stream, walk} of walks.values()) {
    const staged = `select epoch_us(max(observed_at)) from ${tablesOf(stream).staged}`
    asked.push(walk.startedAt, walk.endedAt, await db.value(micros, staged))
  }
  return createSteadyClock(clock, Math.max(now, ...asked.map((instant) => toMs(instant ?? 0n))))
}

/**
 * Requires that the clock, ms since the epoch, is not behind what is stored.
 *
 * @returns the latest instant of anything stored, microseconds since the epoch
 * @throws ConfigError `CLOCK_BACKWARDS`; GuardError `CLOCK_STEPPED`
 */
export async function requireClock(db: Database, zone: Zone, now: number): Promise<bigint | null> {
  const {startedAt} = await findPast(db, dealStream)
  if (startedAt !== null && isBehind(now, toMs(startedAt)))
    throw newError(
      'CLOCK_BACKWARDS',
      `Clock '${formatMs(now)}' of this machine or in LOANTAPE_NOW: earlier than the last walk, ${formatMs(toMs(startedAt))}. Stored later than that clock: ${await nameAhead(db, zone, now)}.`,
    )
  const observed = await db.value(
    micros,
    `select epoch_us(greatest(
       (select max(seen_at) from (${OBSERVED})),
       (select max(ended_at) from history.raw.walk where state = 'applied'),
       (select max(recorded_at) from history.raw.settle)
     ))`,
  )
  if (observed !== null && isBehind(now, toMs(observed))) throw await createAhead(db, zone, now, observed)
  return observed
}

/** What decides on which business date an instant lies. */
type Zone = Parameters<typeof businessDateOf>[1]

/** Microseconds since the epoch, or null. */
const micros = z.coerce.bigint().nullable()
const toMs = (instant: bigint) => Number(instant / 1000n)
const formatMs = (ms: number) => new Date(ms).toISOString()

/** How many ids an error names in its text, and how many in its details. */
const NAMED = 3
const LISTED = 100

const toTimestamp = (ms: number) => new DuckDBTimestampValue(BigInt(ms) * 1000n)

/** What was stored under a later clock, as `rebuild --without` takes it: walks, and the days of all else. */
async function nameAhead(db: Database, zone: Zone, now: number): Promise<string> {
  const names = await db.column(
    z.string(),
    `select walk_id from history.raw.walk where state = 'applied' and greatest(started_at, ended_at, recorded_at) > $1
     union select business_date::varchar from history.raw.deal_version
     where source = 'webhook' and observed_at > $1 order by all`,
    [toTimestamp(now)],
  )
  const others = await db.column(
    z.coerce.number(),
    `select epoch_ms(recorded_at) from history.raw.settle where kind in ('rates', 'replay') and recorded_at > $1`,
    [toTimestamp(now)],
  )
  return listSome([...new Set([...names, ...others.map((at) => businessDateOf(at, zone))])])
}

async function createAhead(db: Database, zone: Zone, now: number, observed: bigint): Promise<LoantapeError> {
  const late = await db.all(
    z.object({plural: z.string(), ids: z.array(z.string())}),
    `select plural, list(id order by id) as ids from (${OBSERVED}) where seen_at > $1 group by plural
     order by plural <> '${dealStream.plural}', plural`,
    [toTimestamp(now)],
  )
  const named = late.map(({plural, ids}) => {
    const some = ids.slice(0, NAMED).map((id) => `'${id}'`)
    return `${ids.length} ${plural} (${some.join(', ')}${ids.length > NAMED ? ', …' : ''})`
  })
  const until = formatMs(toMs(observed))
  return new LoantapeError(
    {
      code: 'CLOCK_STEPPED',
      problem: `Clock '${formatMs(now)}': ${named.join(' and ') || 'the last walk, rates or replay'} stored with later times, up to ${until}; what is read now would never count.`,
      kept: 'Nothing was read or changed.',
      next: `If this clock is behind, set it right. If the earlier one was ahead, run again after ${until}, or take back what was stored under it (${await nameAhead(db, zone, now)}): docs/operations.md, "A walk under a wrong clock".`,
      details: {until, ...Object.fromEntries(late.map(({plural, ids}) => [plural, ids.slice(0, LISTED)]))},
    },
    'guard',
  )
}
