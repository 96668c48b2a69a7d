import {Cron, CronPattern} from 'croner'
import {addDays, dateOfWallTime, instantsOfWallTime, wallTimeOf} from '../core/clock.ts'
import {messageOf} from '../core/errors.ts'

/** Cron with five fields, or six with seconds first, in an IANA time zone. */
interface Schedule {
  schedule: string
  timeZone: string
}

/** Day of month and day of week must both match. */
const RULES = {mode: '5-or-6-parts', domAndDow: true, fixedTimeRule: 'no-wildcard'} as const

/**
 * Ascending, ms since the epoch. A time without `*` or step that falls into a clock change is due once: at the end of a gap, or
 * at its first occurrence in a repeated hour. Other times count elapsed time.
 */
function* slotsAfter({schedule, timeZone}: Schedule, after: number): Generator<number, undefined> {
  const {isFixedTime} = new CronPattern(schedule, timeZone, RULES)
  // Croner loses a fixed time whose gap ends on the next day, so it computes wall times here.
  const cron = new Cron(schedule, {...RULES, timezone: isFixedTime ? 'UTC' : timeZone})
  let last = after
  let next = cron.nextRun(new Date(isFixedTime ? wallTimeOf(after, timeZone) : after))
  while (next) {
    const slot = isFixedTime ? firstInstantOf(next.getTime(), timeZone) : next.getTime()
    if (slot > last) yield slot
    last = Math.max(last, slot)
    next = cron.nextRun(next)
  }
}

/** Returns a later instant if clocks skip the wall time. */
function firstInstantOf(wall: number, timeZone: string): number {
  let [before, reached] = instantsOfWallTime(wall, timeZone)
  if (wallTimeOf(before, timeZone) >= wall) return before
  while (reached - before > 1000) {
    const middle = before + Math.ceil((reached - before) / 2000) * 1000
    if (wallTimeOf(middle, timeZone) >= wall) reached = middle
    else before = middle
  }
  return reached
}

/** Croner counts days and months from 0 in its messages. */
export function findCronProblem(schedule: string): string | undefined {
  try {
    const cron = new Cron(schedule, {...RULES, timezone: 'UTC'})
    if (cron.getPattern() === undefined) return 'expected five or six fields, not a date'
    return cron.nextRun(new Date(0)) ? undefined : 'no day is ever due'
  } catch (error) {
    const said = messageOf(error).replace(/(?<=(day|month): )-?\d+$/, (value) => `${Number(value) + 1}`)
    return said.replace(/^CronPattern: |\.$/g, '')
  }
}

/** Those in (`after`, `until`], ascending, ms since the epoch. */
export function listSlots(schedule: Schedule, after: number, until: number): number[] {
  const slots: number[] = []
  for (const slot of slotsAfter(schedule, after)) {
    if (slot > until) break
    slots.push(slot)
  }
  return slots
}

export function listNextSlots(schedule: Schedule, after: number, count: number): number[] {
  return slotsAfter(schedule, after).take(count).toArray()
}

/** `YYYY-MM-DD HH:MM:SS` */
export function formatLocal(instant: number, timeZone: string): string {
  return new Date(wallTimeOf(instant, timeZone)).toISOString().slice(0, 19).replace('T', ' ')
}

const weekdayOf = (day: string) => new Date(`${day}T00:00:00Z`).getUTCDay()

/** Returns `YYYY-MM-DD`: Monday to Friday, except the holidays. */
export function findBusinessDay(month: string, nth: number, holidays: 'us-federal' | undefined): string {
  const closed = holidays ? listFederalHolidays(Number(month.slice(0, 4))) : []
  let left = nth
  let day = `${month}-01`
  for (;;) {
    if (![0, 6].includes(weekdayOf(day)) && !closed.includes(day)) left -= 1
    if (left === 0) return day
    day = addDays(day, 1)
  }
}

/** 5 U.S.C. § 6103. */
const FEDERAL_HOLIDAYS = [
  '0 0 1 1 *',
  '0 0 * 1 MON#3',
  '0 0 * 2 MON#3',
  '0 0 * 5 MON#L',
  '0 0 19 6 *',
  '0 0 4 7 *',
  '0 0 * 9 MON#1',
  '0 0 * 10 MON#2',
  '0 0 11 11 *',
  '0 0 * 11 THU#4',
  '0 0 25 12 *',
]

/** The days on which the Federal Reserve is closed. A holiday on a Sunday moves to Monday; one on a Saturday does not move. */
function listFederalHolidays(year: number): string[] {
  return FEDERAL_HOLIDAYS.flatMap((schedule) =>
    listNextSlots({schedule, timeZone: 'UTC'}, Date.UTC(year - 1, 11, 31), 1),
  )
    .map(dateOfWallTime)
    .map((day) => (weekdayOf(day) === 0 ? addDays(day, 1) : day))
}
