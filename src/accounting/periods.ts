import {gunzipSync} from 'node:zlib'
import {z} from 'zod'
import {addDays, businessDateOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {parseParts} from '../core/json.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import {resolveMoment} from '../store/moment.ts'
import {releaseManifestSchema} from '../store/release.ts'
import {hasStateDb, openStateDb, type StateDb} from '../store/state-db.ts'
import {openHistory} from '../store/warehouse.ts'
import {
  type AccountMapping,
  DEFAULT_MAPPING,
  FIRST_PERIOD,
  findOwnMapping,
  type MappingVersion,
  mappingSchema,
} from './mapping.ts'
import {journalLineSchema, tiedTermSchema} from './profiles.ts'

/** `period` is `YYYY-MM`. */
export function lastDayOf(period: string): string {
  return addDays(`${nextPeriod(period)}-01`, -1)
}

const WALKS = `history.raw.walk where state = 'applied' and stream = 'deal'`

/** The business date of the last complete walk; webhooks may have reported later ones. */
export const findWalkedUntil = (db: Database): Promise<string | null> =>
  db.value(z.string().nullable(), `select max(business_date) from ${WALKS} and is_complete`)

/** The months of the history, and how far they are known. @throws ConfigError `RELEASE_NONE` */
export async function readPeriodRange(config: Config, world: World) {
  const today = businessDateOf(world.clock.now(), config)
  await using db = await openHistory(dataFolderAt(config.dataDir), world)
  const {asOf} = await resolveMoment(db, {}, today)
  const first = await db.value(z.string(), `select min(business_date) from ${WALKS}`)
  const walkedUntil = await findWalkedUntil(db)
  const ends = await db.all(
    z.object({period: z.string(), at: z.string()}),
    `select strftime(business_date, '%Y-%m') as period, strftime(max(started_at), '%Y-%m-%dT%H:%M:%SZ') as at
     from ${WALKS} and is_complete and business_date = last_day(business_date)
     group by business_date`,
  )
  return {
    /** The months of the first and last walk: `YYYY-MM`. */
    first: first.slice(0, 7),
    last: asOf.slice(0, 7),
    today,
    /** The last business date observed. */
    observedUntil: asOf,
    walkedUntil,
    /** By month: when the last complete walk of the month's last day began, ISO 8601. Months without such a walk are left out. */
    lastDayWalks: new Map(ends.map(({period, at}) => [period, at])),
    /**
     * A month is over, and a complete walk saw its last day or a later one. Webhooks do not count, since each tells of one deal
     * only.
     */
    isOver(period: string) {
      const end = lastDayOf(period)
      return today > end && walkedUntil !== null && walkedUntil >= end
    },
  }
}

/**
 * `asOf` is the last day of the month, or the last day observed if that is earlier.
 * @throws ConfigError `USAGE`; `PERIOD_RANGE` for a month before the first walk, `PERIOD_STATE` for one after the last
 */
export async function readPeriodSpan(config: Config, period: string, world: World) {
  requirePeriodName(period)
  const range = await readPeriodRange(config, world)
  const {first, last} = range
  const [asOf = ''] = [lastDayOf(period), range.observedUntil].sort()
  if (period >= first && period <= last) return {...range, asOf, isComplete: range.isOver(period)}
  throw newError(
    period < first ? 'PERIOD_RANGE' : 'PERIOD_STATE',
    `Period '${period}': expected ${first} (the first walk) to ${last} (the last).`,
  )
}

/** @throws ConfigError `USAGE` */
export function requirePeriodName(period: string): void {
  if (/^\d{4}-(0[1-9]|1[0-2])$/.test(period)) return
  throw newError('USAGE', `Period '${period}': expected a month YYYY-MM.`)
}

/** Amounts are decimal text. */
export type RegisteredLoan = z.output<typeof registeredLoanSchema>
export const registeredLoanSchema = z.object({
  deal_id: z.string(),
  property_address: z.string().nullable(),
  loan_program: z.string().nullable(),
  loan_amount: z.string(),
  funded_on: z.string().nullable(),
  funded_before: z.string(),
  funded_on_is_exact: z.boolean(),
})

/** Enough to export a closed period without a release. */
export type ClosedPeriod = z.output<typeof closedRow>
const closedRow = z.object({
  /** `YYYY-MM` */
  period: z.string(),
  /** The manifest of the release that the period was closed with. */
  release: stored(releaseManifestSchema),
  mapping: stored(mappingSchema),
  lines: stored(z.array(journalLineSchema)),
  /** The terms of its roll-forward, as its mapping books them. */
  terms: stored(z.array(tiedTermSchema)),
  history_id: z.string(),
  /** The number of the last batch issued before it was closed; 0 if there was none. */
  after_batch: z.number(),
})

/** A column of JSON; a list in parts, gzipped, if it is a blob. */
function stored<T>(schema: z.ZodType<T>) {
  return z
    .union([z.string(), z.instanceof(Uint8Array).transform((content) => gunzipSync(content))])
    .transform((json) => schema.parse(typeof json === 'string' ? JSON.parse(json) : parseParts(json)))
}

/** They have no gap, since periods are closed and reopened in order. */
export function listClosedPeriods(stateDb: StateDb): string[] {
  return stateDb.column(z.string(), 'select period from closed_period order by period')
}

/** Undefined if it is open. */
export function findClosedPeriod(stateDb: StateDb, period: string): ClosedPeriod | undefined {
  const columns = Object.keys(closedRow.shape).join(', ')
  return stateDb.first(closedRow, `select ${columns} from closed_period where period = ?`, [period])
}

/** Apart from the other columns of a closed period, since it holds every loan. */
export function readRegister(stateDb: StateDb, period: string): RegisteredLoan[] {
  const row = z.object({register: stored(z.array(registeredLoanSchema))})
  return stateDb.one(row, 'select register from closed_period where period = ?', [period]).register
}

/** Reads no journal and no register, which takes long after some years. */
export function listClosings(stateDb: StateDb) {
  const text = z.string()
  const signed = {period: text, at: text, who: text}
  return stateDb.all(
    z.object({...signed, release_id: text, known_at: text, loans: z.number(), amount: text}),
    `select period, at, who, release ->> '$.release_id' as release_id, release ->> '$.known_at' as known_at, loans, amount,
       max(event_id)
     from closed_period join period_event using (period) where action = 'close' group by period`,
  )
}

/** Closed periods were closed with them, so they are never pruned. */
export function listNeededReleases(stateDb: StateDb): Set<string> {
  return new Set(stateDb.column(z.string(), `select release ->> '$.release_id' from closed_period`))
}

/** `at` is ISO 8601, real clock. These records never change. */
export type PeriodEvent = z.output<typeof periodEventSchema>
export const periodEventSchema = z.object({
  period: z.string(),
  action: z.enum(['close', 'reopen', 'remap', 'true-up']),
  at: z.string(),
  who: z.string(),
  why: z.string().nullable(),
})

/** Oldest first. */
export function listPeriodEvents(stateDb: StateDb): PeriodEvent[] {
  return stateDb.all(periodEventSchema, 'select * from period_event order by event_id')
}

/** Leaves out mappings that do not matter to a release as of a day, `YYYY-MM-DD`. */
export function readMappingVersions(config: Config, asOf = '9999-12-31'): MappingVersion[] {
  const mapping = findOwnMapping(config) ?? DEFAULT_MAPPING
  const folder = dataFolderAt(config.dataDir)
  if (!hasStateDb(folder)) return [{since: FIRST_PERIOD, mapping, movesBalances: false}]
  using stateDb = openStateDb(folder.stateDb)
  return listMappingVersions(stateDb, mapping, asOf.slice(0, 7))
}

/** In periods up to `until`: closed ones keep their mapping, `current` holds from the first open one on. */
export function listMappingVersions(
  stateDb: StateDb,
  current: AccountMapping,
  until: string,
): MappingVersion[] {
  const closed = stateDb.all(
    z.object({since: z.string(), mapping: stored(mappingSchema)}),
    'select period as since, mapping from closed_period order by period',
  )
  const remapped = new Set(stateDb.column(z.string(), 'select period from remapped_period'))
  const versions: MappingVersion[] = []
  for (const {since, mapping} of [
    ...closed,
    {since: findFirstOpen(stateDb) ?? FIRST_PERIOD, mapping: current},
  ]) {
    const before = versions.at(-1)
    const isSame = before !== undefined && JSON.stringify(before.mapping) === JSON.stringify(mapping)
    if (isSame && !remapped.has(since)) continue
    if (before && since > until) break
    versions.push({
      since: before ? since : FIRST_PERIOD,
      mapping,
      movesBalances: before !== undefined && remapped.has(since),
    })
  }
  return versions
}

/** Undefined if none is closed. */
export function findFirstOpen(stateDb: StateDb): string | undefined {
  const last = listClosedPeriods(stateDb).at(-1)
  return last === undefined ? undefined : nextPeriod(last)
}

/** Entries and reversals of earlier days are dated on it, `YYYY-MM-DD`. If no period is closed, it sorts before every day. */
export function findFirstOpenDay(stateDb: StateDb): string {
  return `${findFirstOpen(stateDb) ?? FIRST_PERIOD}-01`
}

export function listMonths(first: string, last: string): string[] {
  const months: string[] = []
  for (let month = first; month <= last; month = nextPeriod(month)) months.push(month)
  return months
}

export function nextPeriod(period: string): string {
  return addDays(`${period}-28`, 4).slice(0, 7)
}
