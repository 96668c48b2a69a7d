import {DAY_MS} from './clock.ts'
import {RetryableError} from './errors.ts'
import type {World} from './types.ts'

/** A longer requested pause is left to the next run. */
const LONGEST_PAUSE_MS = 300_000

export function capWait(ms: number): number {
  if (ms <= 0) return 0
  // A wait longer than a day is a mistake: milliseconds or an epoch instead of seconds.
  return ms > DAY_MS ? 60_000 : Math.ceil(ms)
}

export function parseNumber(text: string): number | null {
  return /^[+-]?\d+(\.\d+)?(e\d{1,2})?$/i.test(text.trim()) ? Number(text) : null
}

/**
 * Parses `Retry-After` (RFC 9110, 10.2.3), seconds or a date, into ms to wait; null if the text is neither. Of a header that was
 * sent twice, the longer wait counts; a date that names no zone is in UTC.
 */
export function parseRetryAfter(text: string, now: number): number | null {
  const seconds = text.split(',').map(parseNumber)
  if (!seconds.includes(null)) return capWait(Math.max(...seconds.map(Number)) * 1000)
  const isZoned = /(GMT|UTC|Z|[+-]\d\d:?\d\d)\s*$/i.test(text)
  const instant = Date.parse(isZoned ? text : `${text}Z`)
  return Number.isNaN(instant) ? null : capWait(instant - now)
}

/**
 * Tries until the attempt returns, fails for good, asks for a pause over five minutes, or has used up the retries. `pauseMs`: the
 * pause after that many failures, unless a longer one was asked for.
 */
export async function withRetries<T>(
  attempt: () => Promise<T>,
  how: {retries: number; pauseMs: (failures: number) => number; about?: {host: string; path: string}},
  {realClock, log, signal}: Pick<World, 'realClock' | 'log' | 'signal'>,
): Promise<T> {
  for (let failures = 0; ; failures += 1) {
    try {
      return await attempt()
    } catch (error) {
      if (!(error instanceof RetryableError) || failures >= how.retries) throw error
      const {code, problem: reason, waitMs} = error
      if (waitMs > LONGEST_PAUSE_MS) throw error
      const retry_in_ms = Math.max(waitMs, how.pauseMs(failures))
      log.info({...how.about, code, reason, attempt: failures + 1, retry_in_ms}, 'trying again')
      await realClock.sleep(retry_in_ms, signal)
    }
  }
}
