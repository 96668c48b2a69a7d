import {createTask, parse, validateDetailed} from 'node-cron'
import {addDays, DAY_MS, dateOfWallTime, HOUR_MS, wallTimeOf} from '../core/clock.ts'

/** When a job is due: cron, five fields or six with seconds first, in an IANA time zone. */
interface Schedule {
  schedule: string
  timeZone: string
}

/** No wall clock is further from UTC, a gap included. */
const MARGIN_MS = 16 * HOUR_MS

/** What is wrong with a cron expression, field by field; empty when nothing is. */
export function findCronProblems(expression: string): string[] {
  return validateDetailed(expression).errors.map(({field, message}) => `${field}: ${message}`)
}

interface Times {
  hours: number[]
  minutes: number[]
  seconds: number[]
  /** `*` or a step over all hours: the schedule counts elapsed time, not times of the day. */
  isInterval: boolean
  isDue(midnight: WallTime): boolean
}

const known = new Map<string, Times>()

function timesOf(expression: string): Times {
  const cached = known.get(expression)
  if (cached) return cached
  const {hour, minute, second} = parse(expression)
  const fields = expression.trim().split(/\s+/)
  const dayFields = fields.slice(-3).join(' ')
  // Asked at midnight UTC of the local date, node-cron judges the date alone, its `L`, `W` and `#` included.
  const day = createTask(`0 0 0 ${dayFields}`, () => undefined, {timezone: 'UTC'})
  void day.destroy()
  const times: Times = {
    hours: hour,
    minutes: minute,
    seconds: second,
    isInterval: /^\*/.test(fields.at(-4) ?? ''),
    isDue: (midnight) => day.match(new Date(midnight)),
  }
  known.set(expression, times)
  return times
}

/**
 * The due instants in (`after`, `until`], ascending, ms since the epoch. Where clocks are put forward, a fixed time in
 * the gap is due when the gap ends; where they are put back, it is due the first time only. A schedule whose hour field
 * begins with `*` counts elapsed time: nothing is due in the gap, and the repeated hour is due twice.
 */
export function listSlots(schedule: Schedule, after: number, until: number): number[] {
  return [...new Set(listDue(schedule, after, until).map(({instant}) => instant))].sort((a, b) => a - b)
}

function listDue({schedule, timeZone}: Schedule, after: number, until: number): Resolved[] {
  const times = timesOf(schedule)
  const due: Resolved[] = []
  const first = Math.floor((after - MARGIN_MS) / DAY_MS) * DAY_MS
  for (let midnight = first; midnight <= until + MARGIN_MS; midnight += DAY_MS) {
    if (!times.isDue(midnight)) continue
    const day = readLocalDay(midnight, timeZone)
    for (const hour of times.hours) {
      const wallHour = midnight + hour * HOUR_MS
      if (isFarFrom(wallHour, day, after, until)) continue
      due.push(...listDueInHour(times, day, wallHour))
    }
  }
  return due.filter(({instant}) => instant > after && instant <= until)
}

function isFarFrom(wallHour: WallTime, {offsets}: LocalDay, after: number, until: number): boolean {
  return wallHour - Math.max(...offsets) > until || wallHour - Math.min(...offsets) + HOUR_MS <= after
}

function listDueInHour(times: Times, day: LocalDay, wallHour: WallTime): Resolved[] {
  return times.minutes.flatMap((minute) =>
    times.seconds.flatMap((second) => {
      const resolved = resolveWallTime(wallHour + minute * 60_000 + second * 1000, day)
      return times.isInterval ? resolved.filter(({change}) => change !== 'skipped') : resolved.slice(0, 1)
    }),
  )
}

/** From one 29 February to the next at the turn of a century. */
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

/** What changes of the clock will do to a schedule within a year of `now`, in words; one line per change and kind. */
export function describeClockChanges(schedule: Schedule, now: number): string[] {
  const {timeZone} = schedule
  if (timesOf(schedule.schedule).isInterval) return []
  const notes = new Map<string, string>()
  for (const day of listChangeDays(timeZone, now)) {
    const due = listDue(schedule, day - DAY_MS, day + 2 * DAY_MS)
    for (const {instant, wall, change} of due) {
      if (change === null || dateOfWallTime(wall) !== dateOfWallTime(day)) continue
      const time = new Date(wall).toISOString().slice(11, 16)
      const words =
        change === 'skipped'
          ? `the clock skips ${time}: due at ${formatLocal(instant, timeZone).slice(11, 16)} instead`
          : `the clock shows ${time} twice: due the first time only`
      notes.set(`${dateOfWallTime(wall)} ${change}`, `${dateOfWallTime(wall)}: ${words}`)
    }
  }
  return [...notes.values()]
}

/** Local midnights of the days of the coming year on which the offset changes. */
function listChangeDays(timeZone: string, now: number): WallTime[] {
  const days: WallTime[] = []
  const today = Math.floor(wallTimeOf(now, timeZone) / DAY_MS) * DAY_MS
  for (let midnight = today; midnight < today + 366 * DAY_MS; midnight += DAY_MS) {
    const [before, after] = readLocalDay(midnight, timeZone).offsets
    if (before !== after) days.push(midnight)
  }
  return days
}

/** Wall time without a zone, as ms since the epoch if it were UTC. */
type WallTime = number

const MINUTE_MS = 60_000

/** How far the wall clock is ahead of UTC, ms. */
function offsetAt(instant: number, timeZone: string): number {
  const second = Math.floor(instant / 1000) * 1000
  return wallTimeOf(second, timeZone) - second
}

/** `YYYY-MM-DD HH:MM:SS` of an instant in a time zone. */
export function formatLocal(instant: number, timeZone: string): string {
  return new Date(wallTimeOf(instant, timeZone)).toISOString().slice(0, 19).replace('T', ' ')
}

/** What the wall clock of a zone does on one day. */
interface LocalDay {
  /** The offsets of the days before and after; they differ around a change of the clock. */
  offsets: [before: number, after: number]
  timeZone: string
}

const days = new Map<string, LocalDay>()
/** The scheduler asks for the same few days every second. */
const MOST_DAYS_KEPT = 1000

/** Reads the day that begins at this wall time; most have one offset, so that their wall times are instants by subtraction. */
function readLocalDay(midnight: WallTime, timeZone: string): LocalDay {
  const key = `${timeZone} ${midnight}`
  const known = days.get(key)
  if (known) return known
  const offsets: LocalDay['offsets'] = [
    offsetAt(midnight - DAY_MS, timeZone),
    offsetAt(midnight + 2 * DAY_MS, timeZone),
  ]
  const day = {offsets, timeZone}
  if (days.size >= MOST_DAYS_KEPT) days.clear()
  days.set(key, day)
  return day
}

/** An instant that a wall time comes to, and what a change of the clock did to it. */
interface Resolved {
  /** Ms since the epoch. */
  instant: number
  wall: WallTime
  /** `skipped`: the clock never shows the time, this is the end of the gap; `repeated`: it shows it twice. */
  change: 'skipped' | 'repeated' | null
}

/** The instants at which the wall clock shows a time of a day, ascending: one, or two where the hour is repeated. */
function resolveWallTime(wall: WallTime, {timeZone, offsets}: LocalDay): Resolved[] {
  if (offsets[0] === offsets[1]) return [{instant: wall - offsets[0], wall, change: null}]
  const [early = 0, late = 0] = offsets.map((offset) => wall - offset).sort((a, b) => a - b)
  const shown = [...new Set([early, late])].filter((instant) => wallTimeOf(instant, timeZone) === wall)
  if (shown.length === 0) return [{instant: findChange(early, late, timeZone), wall, change: 'skipped'}]
  return shown.map((instant) => ({instant, wall, change: shown.length === 2 ? 'repeated' : null}))
}

/** The first minute in (low, high] at which the offset is that of `high`. */
function findChange(low: number, high: number, timeZone: string): number {
  const after = offsetAt(high, timeZone)
  let [before, changed] = [Math.floor(low / MINUTE_MS), Math.ceil(high / MINUTE_MS)]
  while (changed - before > 1) {
    const middle = Math.floor((before + changed) / 2)
    if (offsetAt(middle * MINUTE_MS, timeZone) === after) changed = middle
    else before = middle
  }
  return changed * MINUTE_MS
}

/**
 * The day of a month, `YYYY-MM-DD`, that is its `nth` business day: Monday to Friday, holidays left out.
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

/** Month, day and, for those that came later, the first year. */
const FIXED: [monthDay: string, since: number][] = [
  ['01-01', 0],
  ['06-19', 2021],
  ['07-04', 0],
  ['11-11', 0],
  ['12-25', 0],
]

/** Month, weekday, and which of the month; -1 is the last. */
const FLOATING: [month: string, weekday: number, nth: number][] = [
  ['01', 1, 3],
  ['02', 1, 3],
  ['05', 1, -1],
  ['09', 1, 1],
  ['10', 1, 2],
  ['11', 4, 4],
]

/**
 * Whether banks of the Federal Reserve are closed on a weekday: the holidays of 5 U.S.C. § 6103. One on a Sunday is kept on
 * the Monday after; one on a Saturday is not moved, as at the Federal Reserve.
 */
export function isFederalHoliday(day: string): boolean {
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
