import {setTimeout as delay} from 'node:timers/promises'
import {newError} from './errors.ts'

export const HOUR_MS = 3_600_000

export const DAY_MS = 24 * HOUR_MS

/** Instants in milliseconds since the epoch. */
export interface Clock {
  now(): number
}

export interface RealClock extends Clock {
  /** Resolves after `ms`, or rejects if the signal aborts first. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>
}

export const realClock: RealClock = {
  now: () => Date.now(),
  sleep: (ms, signal) => delay(ms, undefined, signal ? {signal} : undefined),
}

/** Sleeps for `ms`; an abort ends the sleep early, without an error. */
export async function sleepUntilStopped(clock: RealClock, ms: number, signal: AbortSignal): Promise<void> {
  try {
    await clock.sleep(ms, signal)
  } catch (error) {
    if (!signal.aborted) throw error
  }
}

export function createBusinessClock(now: string | undefined): Clock {
  const instant = now === undefined ? null : parseInstant(now)
  return instant === null ? realClock : {now: () => Number(instant / 1000n)}
}

/** A shorter step back is a clock correction; a longer one means that the clock was wrong. */
export const SMALL_STEP_MS = 1000

/** Both in ms since the epoch. */
export const isBehind = (now: number, taken: number): boolean => taken - now >= SMALL_STEP_MS

/**
 * The clock of a walk: whole ms that never decrease from `floor` on. @throws DeferredError `CLOCK_STEPPED` after more than a
 * small step back
 */
export function createSteadyClock(clock: Clock, floor: number): Clock {
  let last = floor
  return {
    now() {
      const now = Math.floor(clock.now())
      if (isBehind(now, last))
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

/** Returns the wall time of an instant, as ms since the epoch as if it were UTC. */
export function wallTimeOf(instant: number, timeZone: string): number {
  let clock = wallClocks.get(timeZone)
  if (!clock) {
    // The Swedish locale writes ISO 8601, but does not pad short years with zeros.
    clock = new Intl.DateTimeFormat('sv-SE', {timeZone, dateStyle: 'short', timeStyle: 'medium'})
    wallClocks.set(timeZone, clock)
  }
  return Date.parse(`+${clock.format(instant).padStart(21, '0').replace(' ', 'T')}Z`)
}

/**
 * Returns two instants, earlier first: one or both show a wall time of whole seconds, unless clocks skip it; then one lies before
 * the gap and one behind it. All in ms.
 */
export function instantsOfWallTime(wall: number, timeZone: string): [earlier: number, later: number] {
  // The offset in force at the instant also holds either a day earlier or a day later.
  const instants = [-DAY_MS, DAY_MS].map((step) => 2 * wall + step - wallTimeOf(wall + step, timeZone))
  return [Math.min(...instants), Math.max(...instants)]
}

export function dateOfWallTime(wall: number): string {
  return new Date(wall).toISOString().slice(0, 10)
}

/** Returns `YYYY-MM-DD`: the local date of an instant (ms), or the day before if it is earlier than `dayCutoff` (`HH:MM`). */
export function businessDateOf(instant: number, zone: {timeZone: string; dayCutoff: string}): string {
  const [hours = 0, minutes = 0] = zone.dayCutoff.split(':').map(Number)
  return dateOfWallTime(wallTimeOf(instant, zone.timeZone) - (hours * 60 + minutes) * 60_000)
}

export function addDays(date: string, days: number): string {
  return dateOfWallTime(Date.parse(`${date}T00:00:00Z`) + days * DAY_MS)
}

/** Offsets such as `+05:30` do not count: the engine does not accept them. */
export function isTimeZone(name: string): boolean {
  if (/^[+-]/.test(name)) return false
  try {
    new Intl.DateTimeFormat('en', {timeZone: name})
    return true
  } catch {
    return false
  }
}

/** The last day that every month has. `Date.parse` takes the 31st of a shorter month for a day of the next month. */
const LAST_OF_ALL = '28'

/** Whether `text` is an existing calendar date `YYYY-MM-DD` in the years 0001 to 9999. */
export function isCalendarDate(text: string): boolean {
  const midnight = /^(?!0000)\d{4}-\d{2}-\d{2}$/.test(text) ? Date.parse(`${text}T00:00Z`) : Number.NaN
  return !Number.isNaN(midnight) && (text.slice(8) <= LAST_OF_ALL || dateOfWallTime(midnight) === text)
}

const isoInstant =
  /^((?!0000)\d{4}-\d{2}-(\d{2}))[Tt ]((?:[01]\d|2[0-3]):[0-5]\d)(?::([0-5]\d)(?:\.(\d{1,9}))?)?\s*(?:[Zz]|([+-](?:[01]\d|2[0-3])):?([0-5]\d))$/

/** Tables and files write years with four digits. */
const [FIRST_MS, LAST_MS] = [Date.parse('0001-01-01'), Date.parse('9999-12-31T23:59:59.999Z')]

/**
 * Parses an ISO 8601 instant with an offset into microseconds since the epoch; further digits are cut off. Returns null if the
 * instant does not exist or lies outside the years 0001 to 9999.
 */
export function parseInstant(text: string): bigint | null {
  const [, date = '', day = '', time, seconds = '00', fraction = '', hours = '+00', minutes = '00'] =
    isoInstant.exec(text) ?? []
  const ms = Date.parse(`${date}T${time}:${seconds}${hours}:${minutes}`)
  if (!(ms >= FIRST_MS && ms <= LAST_MS) || (day > LAST_OF_ALL && !isCalendarDate(date))) return null
  return BigInt(ms) * 1000n + BigInt(Number(fraction.slice(0, 6).padEnd(6, '0')))
}

/** Formats microseconds since the epoch as `YYYY-MM-DDTHH:MM:SS.ssssssZ`. */
export function formatInstant(micros: bigint): string {
  const ms = micros >= 0n ? micros / 1000n : (micros - 999n) / 1000n
  const rest = micros - ms * 1000n
  return new Date(Number(ms)).toISOString().replace('Z', `${String(rest).padStart(3, '0')}Z`)
}
