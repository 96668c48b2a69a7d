import {DAY_MS, wallTimeOf} from '../clock.ts'

/** Wall time without a zone, as ms since the epoch if it were UTC. */
export type WallTime = number

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
export interface LocalDay {
  /** The offsets of the days before and after; they differ around a change of the clock. */
  offsets: [before: number, after: number]
  timeZone: string
}

const days = new Map<string, LocalDay>()
/** The scheduler asks for the same few days every second. */
const MOST_DAYS_KEPT = 1000

/** Reads the day that begins at this wall time; most have one offset, so that their wall times are instants by subtraction. */
export function readLocalDay(midnight: WallTime, timeZone: string): LocalDay {
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
export interface Resolved {
  /** Ms since the epoch. */
  instant: number
  wall: WallTime
  /** `skipped`: the clock never shows the time, this is the end of the gap; `repeated`: it shows it twice. */
  change: 'skipped' | 'repeated' | null
}

/** The instants at which the wall clock shows a time of a day, ascending: one, or two where the hour is repeated. */
export function resolveWallTime(wall: WallTime, {timeZone, offsets}: LocalDay): Resolved[] {
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
