import {capWait, parseNumber, parseRetryAfter} from '../retry-after.ts'

/** Response headers by lower-case name, as undici hands them over. */
export type ResponseHeaders = Record<string, string | string[] | undefined>

/** What the headers of one answer say about waiting. Milliseconds; null where they say nothing. */
export interface LimitHints {
  /** `Retry-After`; 0 when it is zero, negative or past. */
  retryAfterMs: number | null
  /** Time until the quota is renewed, when nothing of it remains. */
  exhaustedMs: number | null
}

function firstOf(value: string | string[] | undefined): string | undefined {
  return Array.isArray(value) ? value.join(', ') : value
}

/** A reset is given as seconds from now, as an epoch in seconds or milliseconds, or as a date. */
function parseReset(text: string, now: number): number | null {
  const value = parseNumber(text)
  if (value === null) return parseRetryAfter(text, now)
  if (value >= 1e12) return capWait(value - now)
  if (value >= 1e9) return capWait(value * 1000 - now)
  return capWait(value * 1000)
}

/** `"default";r=0;t=3` → r 0, t 3; the policy's name and what is not a number are passed over. */
function parseParameters(item: string): Map<string, number> {
  const pairs = item.split(/[;,]/).flatMap((part): [string, number][] => {
    const [name = '', text = ''] = part.split('=', 2)
    const value = parseNumber(text)
    return value === null ? [] : [[name.trim().toLowerCase(), value]]
  })
  return new Map(pairs)
}

/** The newer form is a list with one item for each policy, the older one a single set of `name=value`. */
function splitItems(header: string): string[] {
  return /\b(remaining|reset)\s*=/i.test(header) ? [header] : header.split(',')
}

function longest(waits: (number | null)[]): number | null {
  return waits.reduce((longer, wait) => (wait !== null && wait > (longer ?? -1) ? wait : longer), null)
}

/** Time until renewal by `RateLimit`; a missing time is taken from the window of `RateLimit-Policy`. */
function parseRateLimit(header: string, policy: string): number | null {
  const windows = splitItems(policy).map((item) => parseParameters(item).get('w') ?? null)
  const window = longest(windows)
  const waits = splitItems(header).map((item) => {
    const parameters = parseParameters(item)
    const remaining = parameters.get('r') ?? parameters.get('remaining')
    const seconds = parameters.get('t') ?? parameters.get('reset') ?? window
    if (remaining === undefined || remaining > 0 || seconds === null) return null
    return capWait(seconds * 1000)
  })
  return longest(waits)
}

function parseRemaining(headers: ResponseHeaders, prefix: string, now: number): number | null {
  const remaining = parseNumber(firstOf(headers[`${prefix}-remaining`]) ?? '')
  const reset = firstOf(headers[`${prefix}-reset`])
  if (remaining === null || remaining > 0 || reset === undefined) return null
  return parseReset(reset, now)
}

/**
 * Reads every header in use for limits: `Retry-After`, `RateLimit` and `RateLimit-Policy`
 * (draft-ietf-httpapi-ratelimit-headers, its newer and older forms), `RateLimit-*` and `X-RateLimit-*`.
 * What cannot be read says nothing.
 *
 * @param now ms since the epoch
 */
export function parseLimitHeaders(headers: ResponseHeaders, now: number): LimitHints {
  const retryAfter = firstOf(headers['retry-after'])
  const rateLimit = firstOf(headers.ratelimit) ?? ''
  const policy = firstOf(headers['ratelimit-policy']) ?? ''
  return {
    retryAfterMs: retryAfter === undefined ? null : parseRetryAfter(retryAfter, now),
    exhaustedMs: longest([
      parseRateLimit(rateLimit, policy),
      parseRemaining(headers, 'ratelimit', now),
      parseRemaining(headers, 'x-ratelimit', now),
    ]),
  }
}
