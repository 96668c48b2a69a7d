import {z} from 'zod'
import {addDays, businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'
import {nextPeriod} from '../ledger/periods.ts'
import {resolveMoment} from '../release/moment.ts'
import type {World} from '../types.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'

/** What is there of a period. */
export interface PeriodSpan {
  /** `YYYY-MM` */
  period: string
  /** Its last day, or the last business date observed where that is earlier. */
  asOf: string
  /** The month is over, and a walk has seen its last day or a later one. */
  isComplete: boolean
  /** The business date of now. */
  today: string
  /** The last business date observed. */
  observedUntil: string
}

/** The month of the first walk, and that of the last. */
export interface PeriodRange {
  first: string
  last: string
  /** The last business date observed. */
  observedUntil: string
}

/** The last day of `YYYY-MM`. */
export function lastDayOf(period: string): string {
  return addDays(`${nextPeriod(period)}-01`, -1)
}

/**
 * Which periods there are.
 *
 * @throws UnexpectedError `HISTORY_MISSING`, `HISTORY_EMPTY`
 */
export async function readPeriodRange(folder: DataFolder, today: string): Promise<PeriodRange> {
  await using db = await openHistory(folder)
  const {asOf} = await resolveMoment(db, {}, today)
  const {first} = await db.one(
    z.object({first: z.string()}),
    `select min(business_date) as first from history.raw.walk where state = 'applied' and stream = 'deal'`,
  )
  return {first: first.slice(0, 7), last: asOf.slice(0, 7), observedUntil: asOf}
}

/**
 * What is there of a period.
 *
 * @throws ConfigError `USAGE_PERIOD`, `PERIOD_RANGE`
 */
export async function readPeriodSpan(
  folder: DataFolder,
  config: Config,
  period: string,
  world: World,
): Promise<PeriodSpan> {
  requirePeriodName(period)
  const today = businessDateOf(world.clock.now(), config)
  const {first, last, observedUntil} = await readPeriodRange(folder, today)
  if (period < first || period > last) {
    throw newError(
      'PERIOD_RANGE',
      `Period '${period}' on the command line: expected ${first} (the first walk) to ${last} (the last).`,
    )
  }
  const end = lastDayOf(period)
  const isSeen = observedUntil >= end
  return {
    period,
    asOf: isSeen ? end : observedUntil,
    isComplete: today > end && isSeen,
    today,
    observedUntil,
  }
}

/**
 * Holds a period given on the command line against its form.
 *
 * @throws ConfigError `USAGE_PERIOD`
 */
export function requirePeriodName(period: string): void {
  if (/^\d{4}-(0[1-9]|1[0-2])$/.test(period)) return
  throw newError('USAGE_PERIOD', `Period '${period}' on the command line: expected a month YYYY-MM.`)
}
