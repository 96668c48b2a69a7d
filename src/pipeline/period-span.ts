import {z} from 'zod'
import {nextPeriod} from '../accounting/periods.ts'
import {addDays, businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {resolveMoment} from '../release/moment.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'

/** Which months there are, and how far they are known. */
export interface PeriodRange {
  /** The month of the first walk, and that of the last: `YYYY-MM`. */
  first: string
  last: string
  /** The business date of now. */
  today: string
  /** The last business date observed. */
  observedUntil: string
}

/** What is there of one of these months. */
export interface PeriodSpan extends PeriodRange {
  /** Its last day, or the last business date observed where that is earlier. */
  asOf: string
  /** The month is over, and a walk has seen its last day or a later one. */
  isComplete: boolean
}

/** The last day of `YYYY-MM`. */
export function lastDayOf(period: string): string {
  return addDays(`${nextPeriod(period)}-01`, -1)
}

/**
 * Which months there are.
 *
 * @throws UnexpectedError `HISTORY_MISSING`
 */
export async function readPeriodRange(config: Config, {clock}: Pick<World, 'clock'>): Promise<PeriodRange> {
  const today = businessDateOf(clock.now(), config)
  await using db = await openHistory(dataFolderAt(config.dataDir))
  const {asOf} = await resolveMoment(db, {}, today)
  const {first} = await db.one(
    z.object({first: z.string()}),
    `select min(business_date) as first from history.raw.walk where state = 'applied' and stream = 'deal'`,
  )
  return {first: first.slice(0, 7), last: asOf.slice(0, 7), today, observedUntil: asOf}
}

/**
 * What is there of a month.
 *
 * @throws ConfigError `USAGE`, `PERIOD_RANGE`
 */
export async function readPeriodSpan(config: Config, period: string, world: World): Promise<PeriodSpan> {
  requirePeriodName(period)
  const range = await readPeriodRange(config, world)
  const {first, last} = range
  if (period >= first && period <= last) return {...range, ...spanOf(range, period)}
  throw newError(
    'PERIOD_RANGE',
    `Period '${period}' on the command line: expected ${first} (the first walk) to ${last} (the last).`,
  )
}

/** Up to which day a month is known, and whether that is all of it. */
export function spanOf(
  {today, observedUntil}: PeriodRange,
  period: string,
): Pick<PeriodSpan, 'asOf' | 'isComplete'> {
  const end = lastDayOf(period)
  const isSeen = observedUntil >= end
  return {asOf: isSeen ? end : observedUntil, isComplete: today > end && isSeen}
}

/**
 * Holds a period given on the command line against its form.
 *
 * @throws ConfigError `USAGE`
 */
export function requirePeriodName(period: string): void {
  if (/^\d{4}-(0[1-9]|1[0-2])$/.test(period)) return
  throw newError('USAGE', `Period '${period}' on the command line: expected a month YYYY-MM.`)
}
