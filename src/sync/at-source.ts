import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import {dealStream} from '../contract/deal.ts'
import {refuseSourceFile, type SourceDescription} from '../contract/description.ts'
import {STREAMS} from '../contract/streams.ts'
import {businessDateOf, type Clock, createSteadyClock, isBehind} from '../core/clock.ts'
import type {SourceConfig} from '../core/config.ts'
import {codeOf, newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {listSome} from '../core/text.ts'
import type {World} from '../core/types.ts'
import type {SourceClient} from '../source/client.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import {readFact} from '../store/recorded.ts'
import type {CurrentRun} from '../store/runs.ts'
import {hasStateDb, openStateDb, type StateDb} from '../store/state-db.ts'
import {hasWarehouse, openHistory} from '../store/warehouse.ts'
import {openToSettle} from './catch-up.ts'
import type {OpenWalks, WalkTools} from './intake.ts'
import {findDescription, findLastSettle} from './mapped-fields.ts'
import {dropWalks} from './settle.ts'
import {type Statuses, setStatuses, tablesOf} from './stream-tables.ts'
import {findPast, requestOf} from './walk.ts'

const KEPT_MS = 24 * 3600 * 1000

const learntRow = z.object({learntRate: z.number(), pausedUntil: z.number()})

/** What a run of the last day learnt of this source. `pausedUntil` is in ms since the epoch. */
export function findLearnt(stateDb: StateDb, baseUrl: string, world: World) {
  const now = world.realClock.now()
  // If the clock has gone back since then, the instant means nothing.
  const sql = `select rate_per_second as learntRate, iif(learnt_at > ?, 0, paused_until) as pausedUntil
    from learnt_rate where base_url = ? and learnt_at > ?`
  return stateDb.first(learntRow, sql, [now, baseUrl, now - KEPT_MS])
}

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
 * Opens the warehouse, recovers what dead runs had read, and runs `work` at the source under a clock that never goes back.
 * @throws what opening throws: ConfigError `SOURCE_FILE`, `SOURCE_PINNED`, `CLOCK_BACKWARDS`, those of the tapes' key;
 *   LockedError
 */
export async function atSource<T>(
  settings: SourceConfig,
  asked: {folder: DataFolder; run: CurrentRun; statuses: Statuses} & Pick<WalkTools, 'accepted' | 'why'>,
  work: (tools: WalkTools, world: World) => Promise<T>,
): Promise<T> {
  const {folder, run, statuses, accepted, why} = asked
  const {runId, stateDb, world: outside} = run
  const description = readDescription(folder, accepted.has('source'))
  const hasPages = !description || description.deals.page !== undefined
  const config = {...settings, description, detail: hasPages ? settings.detail : ('off' as const)}
  outside.onProgress({step: 'opening'})
  await using opened = await openToSettle(config, {folder, stateDb}, outside)
  const {db, tapes, walks, streams} = opened
  await setStatuses(db, statuses)
  await requirePin(db, config, accepted.has('source'))
  await dropWalks(opened, 'another source', ({baseUrl}) => baseUrl !== config.baseUrl)
  const world = {...outside, clock: await createWalkClock(db, walks, config, outside.clock)}
  return await askSource(config, stateDb, world, async (client) => {
    try {
      const at = {runId, db, stateDb, tapes, walks, stream: streams[0], client, config}
      return await work({...at, accepted, why, who: world.who}, world)
    } catch (error) {
      // The clock went back, so the request times may be wrong.
      if (codeOf(error) === 'CLOCK_STEPPED') await dropWalks(opened, 'clock stepped')
      throw error
    }
  })
}

export async function askSource<T>(
  config: WalkTools['config'],
  stateDb: StateDb,
  world: World,
  work: (client: SourceClient) => Promise<T>,
): Promise<T> {
  const {createClient} = await import('../source/client.ts')
  await using client = createClient({...config, ...findLearnt(stateDb, config.baseUrl, world)}, world)
  try {
    return await work(client)
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
 * @throws ConfigError `SOURCE_FILE`; unless `isAccepted`, also if the folder was filled with a `source.json` that is gone, since
 *   the key could be one that the source itself must not see
 */
export function readDescription(folder: DataFolder, isAccepted = false): SourceDescription | undefined {
  const found = findDescription(folder)
  if (found || isAccepted || !hasStateDb(folder)) return found
  using stateDb = openStateDb(folder.stateDb)
  if (readFact(stateDb, 'source_described') !== 'yes') return undefined
  throw refuseSourceFile(folder.source)('it is missing, although this folder was filled with it')
}

/**
 * Requires that a data folder belongs to this source (which may have moved) and stage, or to none yet.
 * @throws ConfigError `SOURCE_PINNED`
 */
async function requirePin(db: Database, config: SourceConfig, isMoved = false) {
  const past = await findPast(db, dealStream)
  const {filter, baseUrl} = past
  if (!isMoved && baseUrl !== null && baseUrl !== config.baseUrl)
    throw newError('SOURCE_PINNED', `Base URL '${config.baseUrl}': this data folder belongs to '${baseUrl}'.`)
  if (filter === null || filter === requestOf(dealStream, config).filter) return past
  const asked = config.stage === undefined ? 'is not set' : `'${config.stage}'`
  throw newError(
    'SOURCE_PINNED',
    `LOANTAPE_STAGE ${asked}: this data folder belongs to ${filter === '' ? 'all deals' : `'${filter}'`}.`,
    {next: 'Set it as it was, or use another folder with --data: each stage has its own.'},
  )
}

/** As {@link requirePin}, of a data folder that may be new. @throws ConfigError `SOURCE_PINNED` */
export async function readPin(folder: DataFolder, config: SourceConfig, world: World) {
  if (!hasWarehouse(folder)) return undefined
  await using db = await openHistory(folder, world)
  return await requirePin(db, config)
}

/**
 * The clock of one run at the source: never behind what is stored, and it never goes back until a walk is settled.
 * @throws ConfigError `CLOCK_BACKWARDS`; its `now` throws DeferredError `CLOCK_STEPPED`
 */
async function createWalkClock(db: Database, walks: OpenWalks, zone: Zone, clock: Clock): Promise<Clock> {
  const now = Math.floor(clock.now())
  const taken = [await requireClock(db, zone, now)]
  for (const {stream, walk} of walks.values()) {
    const staged = `select epoch_us(max(observed_at)) from ${tablesOf(stream).staged}`
    taken.push(walk.startedAt, walk.endedAt, await db.value(z.coerce.bigint().nullable(), staged))
  }
  return createSteadyClock(clock, Math.max(now, ...taken.map((instant) => toMs(instant ?? 0n))))
}

type Zone = Parameters<typeof businessDateOf>[1]

const toMs = (micros: bigint) => Number(micros / 1000n)
const formatMs = (ms: number) => new Date(ms).toISOString()

const lateUnit = z.object({name: z.string().nullable(), settled_ms: z.coerce.number()})
const lateRecords = z.object({noun: z.string(), plural: z.string(), ids: z.array(z.string())})

/** Ids that an error names in its text, and in its details. */
const NAMED = 3
const LISTED = 100

/**
 * Requires that the clock, ms since the epoch, is not behind what is stored: what is read then would never count. Returns the
 * instant of the last settle, microseconds since the epoch.
 * @throws ConfigError `CLOCK_BACKWARDS`, which names what was stored later as `rebuild --without` takes it
 */
export async function requireClock(db: Database, zone: Zone, now: number): Promise<bigint | null> {
  const last = await findLastSettle(db)
  if (last === null || !isBehind(now, toMs(last))) return last
  const late = [new DuckDBTimestampValue(BigInt(now) * 1000n)]
  const units = await db.all(
    lateUnit,
    `select
       coalesce(
         walk_id,
         (
           select cast(max(business_date) as varchar)
           from (
             select business_date, recorded_at from history.raw.deal_version where source = 'webhook'
             union all
             select business_date, recorded_at from history.raw.rate
           ) as seen
           where seen.recorded_at = settle.recorded_at
         )
       ) as name,
       epoch_ms(settle.recorded_at) as settled_ms
     from history.raw.settle left join history.raw.walk on walk.recorded_at = settle.recorded_at
     where settle.recorded_at > $1 order by settle.recorded_at`,
    late,
  )
  const records = await db.all(
    lateRecords,
    `select noun, plural, list(id order by id) as ids from (${OBSERVED}) where seen_at > $1 group by noun, plural
     order by plural <> '${dealStream.plural}', plural`,
    late,
  )
  const names = new Set(units.map(({name, settled_ms}) => name ?? businessDateOf(settled_ms, zone)))
  const told = records.map(({noun, ids}) => {
    const some = ids.slice(0, NAMED).map((id) => `'${id}'`)
    return `${quantity(ids.length, noun)} (${some.join(', ')}${ids.length > NAMED ? ', …' : ''})`
  })
  const until = formatMs(toMs(last))
  const listed = Object.fromEntries(records.map(({plural, ids}) => [plural, ids.slice(0, LISTED)]))
  throw newError(
    'CLOCK_BACKWARDS',
    `Clock '${formatMs(now)}' of this machine or in LOANTAPE_NOW: earlier than what is stored, up to ${until}: ${[listSome([...names]), ...told].join('; ')}.`,
    {details: {until, ...listed}},
  )
}

const OBSERVED = STREAMS.map(
  ({name, plural, idColumn}) =>
    `select '${name}' as noun, '${plural}' as plural, ${idColumn} as id, greatest(observed_at, detail_at) as seen_at from history.raw.${name}_head`,
).join(' union all ')
