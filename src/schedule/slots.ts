import {Cron} from 'croner'
import {addDays, wallTimeOf} from '../core/clock.ts'
import {messageOf} from '../core/errors.ts'

/** When a job is due: cron, five fields or six with seconds first, in an IANA time zone. */
interface Schedule {
  schedule: string
  timeZone: string
}

/** A time without `*` or step is due at the end of a gap it falls in, and once in a repeated hour; others count elapsed time. */
function cronOf({schedule, timeZone}: Schedule): Cron {
  return new Cron(schedule, {
    timezone: timeZone,
    mode: '5-or-6-parts',
    domAndDow: true,
    fixedTimeRule: 'no-wildcard',
  })
}

/** What is wrong with a cron expression; undefined if nothing is. */
export function findCronProblem(schedule: string): string | undefined {
  try {
    return cronOf({schedule, timeZone: 'UTC'}).nextRun(new Date(0)) ? undefined : 'no day is ever due'
  } catch (error) {
    return messageOf(error)
  }
}

/** The due instants in (`after`, `until`], ascending, ms since the epoch. */
export function listSlots(schedule: Schedule, after: number, until: number): number[] {
  const cron = cronOf(schedule)
  const slots: number[] = []
  let next = cron.nextRun(new Date(after))
  while (next && next.getTime() <= until) {
    slots.push(next.getTime())
    next = cron.nextRun(next)
  }
  return slots
}

/** The next due instants after `after`. */
export function listNextSlots(schedule: Schedule, after: number, count: number): number[] {
  return cronOf(schedule)
    .nextRuns(count, new Date(after))
    .map((slot) => slot.getTime())
}

/** The next due instant of each schedule that has one, the soonest first. */
export function listNextOfEach<Job extends Schedule>(jobs: readonly Job[], now: number) {
  return jobs
    .flatMap((job) => listNextSlots(job, now, 1).map((slot) => ({job, slot})))
    .sort((a, b) => a.slot - b.slot)
}

/** `YYYY-MM-DD HH:MM:SS` of an instant in a time zone. */
export function formatLocal(instant: number, timeZone: string): string {
  return new Date(wallTimeOf(instant, timeZone)).toISOString().slice(0, 19).replace('T', ' ')
}

/**
 * The `nth` business day of a month, `YYYY-MM-DD`: Monday to Friday, without holidays.
 *
 * @param month `YYYY-MM`
 */
export function findBusinessDay(month: string, nth: number, holidays: 'us-federal' | undefined): string {
  const isHoliday = holidays === undefined ? () => false : isFederalHoliday
  let left = nth
  let day = `${month}-01`
  for (;;) {
    if (!isWeekend(day) && !isHoliday(day)) left -= 1
    if (left === 0) return day
    day = addDays(day, 1)
  }
}

/** 0 is Sunday. */
const weekdayOf = (day: string) => new Date(`${day}T00:00:00Z`).getUTCDay()

const isWeekend = (day: string) => [0, 6].includes(weekdayOf(day))

/** Month, day and the first year. */
const FIXED: [monthDay: string, since: number][] = [
  ['01-01', 0],
  ['06-19', 2021],
  ['07-04', 0],
  ['11-11', 0],
  ['12-25', 0],
]

/** Month, weekday, and which one in the month; -1 is the last. */
const FLOATING: [month: string, weekday: number, nth: number][] = [
  ['01', 1, 3],
  ['02', 1, 3],
  ['05', 1, -1],
  ['09', 1, 1],
  ['10', 1, 2],
  ['11', 4, 4],
]

/**
 * Whether the Federal Reserve is closed on a weekday: the holidays of 5 U.S.C. § 6103. A Sunday holiday moves to Monday; a
 * Saturday holiday does not move.
 */
function isFederalHoliday(day: string): boolean {
  const [year = '', month = ''] = day.split('-')
  const isFixed = [day, addDays(day, -1)].some(
    (kept) =>
      FIXED.some(([monthDay, since]) => kept.slice(5) === monthDay && Number(year) >= since) &&
      (kept === day || weekdayOf(kept) === 0),
  )
  return isFixed || FLOATING.some(([of, weekday, nth]) => of === month && isNthWeekday(day, weekday, nth))
}

function isNthWeekday(day: string, weekday: number, nth: number): boolean {
  if (weekdayOf(day) !== weekday) return false
  if (nth === -1) return addDays(day, 7).slice(5, 7) !== day.slice(5, 7)
  return Math.ceil(Number(day.slice(8)) / 7) === nth
}
