import {setTimeout as delay} from 'node:timers/promises'
import {newError} from './errors.ts'

/** An hour, in milliseconds. */
export const HOUR_MS = 3_600_000

/** A day of 24 hours, in milliseconds. */
export const DAY_MS = 24 * HOUR_MS

/** A source of instants, in milliseconds since the epoch. */
export interface Clock {
  now(): number
}

/** The clock of HTTP, locks and heartbeats, which can also sleep. */
export interface RealClock extends Clock {
  /** Resolves after `ms`; rejects with the signal's reason when it aborts first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

/** The machine's own clock. */
export const realClock: RealClock = {
  now: () => Date.now(),
  sleep: (ms, signal) => delay(ms, undefined, signal ? {signal} : undefined),
}

/** Sleeps for `ms`, or until the signal aborts. */
export async function sleepUntilStopped(clock: RealClock, ms: number, signal: AbortSignal): Promise<void> {
  try {
    await clock.sleep(ms, signal)
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

/** A clock that stands still at `instant` (ms since the epoch). */
export function createFrozenClock(instant: number): Clock {
  return {now: () => instant}
}

/** The business clock; `LOANTAPE_NOW` freezes it. */
export function createBusinessClock(now: string | undefined): Clock {
  const instant = now === undefined ? null : parseInstant(now)
  return instant === null ? realClock : createFrozenClock(Number(instant / 1000n))
}

/** A smaller step back is a clock correction; a larger one means the clock was wrong. */
export const SMALL_STEP_MS = 1000

/**
 * The clock of one walk: whole milliseconds that never decrease. After a small step back it repeats the last instant.
 *
 * @param floor the earliest instant, ms since the epoch
 * @throws DeferredError `CLOCK_STEPPED`, from `now`, at a larger step back
 */
export function createSteadyClock(clock: Clock, floor: number): Clock {
  let last = floor
  return {
    now() {
      const now = Math.floor(clock.now())
      if (last - now >= SMALL_STEP_MS)
        throw newError(
          'CLOCK_STEPPED',
          `Clock '${new Date(now).toISOString()}': earlier than at the previous request, ${new Date(last).toISOString()}; expected a clock that only goes forward.`,
        )
      last = Math.max(last, now)
      return last
    },
  }
}

const wallClocks = new Map<string, Intl.DateTimeFormat>()

function wallClockOf(timeZone: string): Intl.DateTimeFormat {
  const known = wallClocks.get(timeZone)
  if (known) return known
  const clock = new Intl.DateTimeFormat('en-US', {
    timeZone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
  })
  wallClocks.set(timeZone, clock)
  return clock
}

/** The wall time of an instant in a time zone, as ms since the epoch if it were UTC. */
export function wallTimeOf(instant: number, timeZone: string): number {
  const parts = Object.fromEntries(
    wallClockOf(timeZone)
      .formatToParts(instant)
      .map(({type, value}) => [type, Number(value)]),
  )
  const {year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0} = parts
  return Date.UTC(year, month - 1, day, hour, minute, second)
}

/** The calendar day of a wall time, `YYYY-MM-DD`. */
export function dateOfWallTime(wall: number): string {
  return new Date(wall).toISOString().slice(0, 10)
}

/**
 * The day an instant counts for: its local date in `timeZone`, or the day before if the local time is earlier than
 * `dayCutoff` (`HH:MM`), so that a run at 05:30 counts for the previous day.
 *
 * @param instant ms since the epoch
 * @returns `YYYY-MM-DD`
 */
export function businessDateOf(instant: number, zone: {timeZone: string; dayCutoff: string}): string {
  const [hours = 0, minutes = 0] = zone.dayCutoff.split(':').map(Number)
  return dateOfWallTime(wallTimeOf(instant, zone.timeZone) - (hours * 60 + minutes) * 60_000)
}

/** `YYYY-MM-DD` moved by whole calendar days. */
export function addDays(date: string, days: number): string {
  const moved = new Date(`${date}T00:00:00Z`)
  moved.setUTCDate(moved.getUTCDate() + days)
  return moved.toISOString().slice(0, 10)
}

/** Whether this machine knows the time zone `name`; the engine does not accept offsets such as `+05:30`. */
export function isTimeZone(name: string): boolean {
  if (/^[+-]/.test(name)) return false
  try {
    new Intl.DateTimeFormat('en', {timeZone: name})
    return true
  } catch (error) {
    if (error instanceof RangeError) return false
    throw error
  }
}

/** Midnight UTC of a day, ms since the epoch; null if there is no such day. */
function midnightOf(year: number, month: number, day: number): number | null {
  // Date.UTC reads the years 0 to 99 as 1900 to 1999.
  const date = new Date(0)
  date.setUTCFullYear(year, month - 1, day)
  return date.getUTCMonth() === month - 1 && date.getUTCDate() === day ? date.getTime() : null
}

/** Whether `text` is a calendar date `YYYY-MM-DD` that exists. */
export function isCalendarDate(text: string): boolean {
  const match = text.length === 10 ? /^(\d{4})-(\d{2})-(\d{2})$/.exec(text) : null
  return match !== null && midnightOf(Number(match[1]), Number(match[2]), Number(match[3])) !== null
}

const isoInstant = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}(:\d{2}(?:\.(\d{1,9}))?)?\s*([Zz]|[+-]\d{2}:?\d{2})$/

/**
 * Reads an ISO 8601 instant with an offset into microseconds since the epoch; further digits are cut off.
 *
 * @returns null if the text is not an existing instant
 */
export function parseInstant(text: string): bigint | null {
  const match = isoInstant.exec(text)
  if (!match) return null
  const [, time, fraction, offset = ''] = match
  const midnight = midnightOf(readDigits(text, 0, 4), readDigits(text, 5, 2), readDigits(text, 8, 2))
  const [hours, minutes] = [readDigits(text, 11, 2), readDigits(text, 14, 2)]
  const seconds = time === undefined ? 0 : readDigits(text, 17, 2)
  if (midnight === null || hours > 23 || minutes > 59 || seconds > 59) return null
  const offsetMinutes = parseOffset(offset)
  if (offsetMinutes === null) return null
  const utc = midnight + ((hours * 60 + minutes - offsetMinutes) * 60 + seconds) * 1000
  const micros = fraction === undefined ? 0 : Number(fraction.slice(0, 6).padEnd(6, '0'))
  return BigInt(utc) * 1000n + BigInt(micros)
}

/** Reads the digits at a position of a text; ten times as fast as slicing it. */
function readDigits(text: string, start: number, length: number): number {
  let number = 0
  for (let index = start; index < start + length; index++) number = number * 10 + text.charCodeAt(index) - 48
  return number
}

/** Minutes east of UTC of `Z`, `+05:30` or `-0500`. */
function parseOffset(text: string): number | null {
  if (text === 'Z' || text === 'z') return 0
  const [hours, minutes] = [Number(text.slice(1, 3)), Number(text.slice(-2))]
  if (hours > 23 || minutes > 59) return null
  return (text.startsWith('-') ? -1 : 1) * (hours * 60 + minutes)
}

/** Microseconds since the epoch as `YYYY-MM-DDTHH:MM:SS.ssssssZ`. */
export function formatInstant(micros: bigint): string {
  const ms = micros >= 0n ? micros / 1000n : (micros - 999n) / 1000n
  const rest = micros - ms * 1000n
  return new Date(Number(ms)).toISOString().replace('Z', `${String(rest).padStart(3, '0')}Z`)
}
