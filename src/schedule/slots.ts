import {createTask, parse, validateDetailed} from 'node-cron'
import {addDays, DAY_MS, HOUR_MS, wallTimeOf} from '../core/clock.ts'

/** When a job is due: cron, five fields or six with seconds first, in an IANA time zone. */
interface Schedule {
  schedule: string
  timeZone: string
}

/** What is wrong with a cron expression, field by field; empty when nothing is. */
export function findCronProblems(expression: string): string[] {
  return validateDetailed(expression).errors.map(({field, message}) => `${field}: ${message}`)
}

/**
 * The due instants in (`after`, `until`], ascending, ms since the epoch. When clocks go forward, a fixed time in the gap is due
 * when the gap ends; when they go back, it is due only the first time. A schedule whose hour field begins with `*` counts elapsed
 * time: nothing is due in the gap, and the repeated hour is due twice.
 */
export function listSlots({schedule, timeZone}: Schedule, after: number, until: number): number[] {
  const times = timesOf(schedule)
  const due = new Set<number>()
  const first = Math.floor((after - MARGIN_MS) / DAY_MS) * DAY_MS
  for (let midnight = first; midnight <= until + MARGIN_MS; midnight += DAY_MS) {
    if (!times.isDue(midnight)) continue
    const offsets = listOffsets(midnight, timeZone)
    for (const hour of times.hours) {
      const wall = midnight + hour * HOUR_MS
      const isOutside = wall - Math.max(...offsets) > until || wall - Math.min(...offsets) + HOUR_MS <= after
      if (isOutside) continue
      for (const instant of listDueInHour(times, wall, (at) => listInstants(at, offsets, timeZone)))
        due.add(instant)
    }
  }
  return [...due].filter((instant) => instant > after && instant <= until).sort((a, b) => a - b)
}

/** February 29 can be eight years away, at the turn of a century. */
const LONGEST_PAUSE_DAYS = 366 * 8

/** The next due instants after `after`; fewer when eight years hold no more. */
export function listNextSlots(schedule: Schedule, after: number, count: number): number[] {
  const slots: number[] = []
  let from = after
  for (let days = 1; slots.length < count && from < after + LONGEST_PAUSE_DAYS * DAY_MS; days *= 2) {
    const to = from + days * DAY_MS
    slots.push(...listSlots(schedule, from, to))
    from = to
  }
  return slots.slice(0, count)
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

/** A cron expression, parsed. */
interface Times {
  hours: number[]
  minutes: number[]
  seconds: number[]
  /** `*` or a step over all hours: the schedule counts elapsed time, not times of the day. */
  isInterval: boolean
  isDue(midnight: WallTime): boolean
}

const timesByExpression = new Map<string, Times>()

function timesOf(expression: string): Times {
  const known = timesByExpression.get(expression)
  if (known) return known
  const {hour, minute, second} = parse(expression)
  const fields = expression.trim().split(/\s+/)
  // Asked at midnight UTC of the local date, node-cron judges only the date, including its `L`, `W` and `#`.
  const day = createTask(`0 0 0 ${fields.slice(-3).join(' ')}`, () => undefined, {timezone: 'UTC'})
  void day.destroy()
  const times: Times = {
    hours: hour,
    minutes: minute,
    seconds: second,
    isInterval: /^\*/.test(fields.at(-4) ?? ''),
    isDue: (midnight) => day.match(new Date(midnight)),
  }
  timesByExpression.set(expression, times)
  return times
}

/** No wall clock is further from UTC, even with a gap. */
const MARGIN_MS = 16 * HOUR_MS

/** Wall time without a zone, as ms since the epoch if it were UTC. */
type WallTime = number

const MINUTE_MS = 60_000

function listDueInHour(times: Times, hour: WallTime, shownAt: (wall: WallTime) => number[]): number[] {
  return times.minutes.flatMap((minute) => {
    const start = hour + minute * MINUTE_MS
    return times.seconds.flatMap((second) => {
      const instants = shownAt(start + second * 1000)
      if (times.isInterval) return instants
      if (instants.length > 0) return instants.slice(0, 1)
      let end = start
      while (shownAt(end).length === 0) end += MINUTE_MS
      return shownAt(end)
    })
  })
}

/** How far the wall clock is ahead of UTC around a day, ms, the most first: one offset, or two if the clock is changed. */
function listOffsets(midnight: WallTime, timeZone: string): number[] {
  const offsets = [midnight - DAY_MS, midnight + 2 * DAY_MS].map((at) => wallTimeOf(at, timeZone) - at)
  return [...new Set(offsets)].sort((a, b) => b - a)
}

/** The instants at which the clock shows a wall time, ascending: none in a gap, two in a repeated hour. */
function listInstants(wall: WallTime, offsets: readonly number[], timeZone: string): number[] {
  const instants = offsets.map((offset) => wall - offset)
  return offsets.length === 1 ? instants : instants.filter((at) => wallTimeOf(at, timeZone) === wall)
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
