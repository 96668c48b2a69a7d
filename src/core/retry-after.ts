import {DAY_MS} from './clock.ts'

/** A requested wait in whole ms, never negative; a minute if it is absurd. */
export function capWait(ms: number): number {
  if (ms <= 0) return 0
  // A wait longer than a day is a fault: milliseconds or an epoch instead of seconds.
  return ms > DAY_MS ? 60_000 : Math.ceil(ms)
}

/** A decimal number; null if the text is not one. */
export function parseNumber(text: string): number | null {
  return /^[+-]?\d+(\.\d+)?(e\d{1,2})?$/i.test(text.trim()) ? Number(text) : null
}

/**
 * Reads `Retry-After` (RFC 9110, 10.2.3), seconds or an HTTP date, into ms to wait: never negative, a minute instead of more than a
 * day; null if the text is neither.
 */
export function parseRetryAfter(text: string, now: number): number | null {
  const seconds = parseNumber(text)
  if (seconds !== null) return capWait(seconds * 1000)
  const instant = Date.parse(text)
  return Number.isNaN(instant) ? null : capWait(instant - now)
}
