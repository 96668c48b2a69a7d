import pLimit from 'p-limit'
import {newError} from '../core/errors.ts'
import {capWait, parseNumber, parseRetryAfter} from '../core/retry.ts'
import type {World} from '../core/types.ts'
import {backoffMs} from './faults.ts'

export interface RateLimitSettings {
  /** Upper bound, requests per second. */
  ratePerSecond: number
  /** Requests that may be sent at once after a pause. */
  burst: number
  /** The rate at which an earlier run ended; clamped between the least rate and the upper bound. */
  learntRate?: number | undefined
  /** Until when the source asked an earlier run to wait, ms since the epoch. */
  pausedUntil?: number | undefined
  /** How long one run may wait for the source's limits, ms. */
  maxWaitMs: number
  host: string
}

export interface LimitedAnswer {
  status: number
  headers: ResponseHeaders
  /** When the request began, real clock, ms since the epoch. */
  startedAt: number
}

/** Added to each wait, because the source rounds to seconds and has another clock. */
const SLACK_MS = 250

export function createRateLimiter(
  settings: RateLimitSettings,
  world: Pick<World, 'realClock' | 'random' | 'log'>,
) {
  const clock = world.realClock
  const bucket = createTokenBucket(settings, clock.now())
  const inTurn = pLimit(1)
  let pause = {from: clock.now(), ms: Math.max(0, (settings.pausedUntil ?? 0) - clock.now())}
  /** The status of the last answer that asked to wait. */
  let asked: number | undefined
  let waitedMs = 0
  let waitingSince: number | null = null

  /** If the clock is set back, the pause restarts. */
  function pausedMs(now: number): number {
    if (now < pause.from) pause = {...pause, from: now}
    return Math.max(0, pause.ms - (now - pause.from))
  }

  function pauseFor(ms: number): void {
    const now = clock.now()
    if (ms > pausedMs(now)) pause = {from: now, ms}
  }

  async function waitImposed(ms: number, signal: AbortSignal): Promise<void> {
    if (waitedMs + ms > settings.maxWaitMs)
      throw newError(
        'SOURCE_RATE_LIMITED',
        `Source '${settings.host}' asks to wait${asked === undefined ? '' : ` (status ${asked})`}: another ${Math.ceil(ms / 1000)} s would take the waiting of this run past the ${settings.maxWaitMs / 60_000} min a run may wait.`,
        asked === 503
          ? {next: 'The next run continues from there; tell whoever runs the source if this continues.'}
          : {},
      )
    const startedAt = clock.now()
    waitingSince ??= startedAt
    try {
      await clock.sleep(ms, signal)
    } finally {
      waitedMs += Math.max(0, clock.now() - startedAt)
    }
  }

  /** Only the head of the queue waits, so no wait is counted twice. */
  async function takeToken(signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        const now = clock.now()
        const pauseMs = pausedMs(now)
        const waitMs = Math.max(pauseMs, bucket.msUntilToken(now))
        if (waitMs === 0) return bucket.spend(now)
        if (pauseMs > 0) await waitImposed(waitMs, signal)
        else await clock.sleep(waitMs, signal)
      }
    } finally {
      waitingSince = null
    }
  }

  /** Adapts pause and rate to the answer. */
  function mustSendAgain(answer: LimitedAnswer, refusals: number): boolean {
    const toldMs = parseWait(answer.headers, clock.now())
    const isOverload = answer.status === 503
    if (answer.status !== 429 && !isOverload) {
      if (answer.status < 500) bucket.raise(clock.now())
      if (toldMs > 0) pauseFor(toldMs)
      return false
    }
    bucket.cut(clock.now(), answer.startedAt)
    if (isOverload && toldMs === 0) return false
    asked = answer.status
    const waitMs = toldMs > 0 ? toldMs : backoffMs(refusals, world.random)
    pauseFor(waitMs + Math.ceil(SLACK_MS * (0.5 + world.random() / 2)))
    world.log.info(
      {host: settings.host, status: answer.status, retry_in_ms: waitMs, rate_per_second: bucket.rate},
      'the source asks to wait',
    )
    return true
  }

  return {
    /** Requests per second; later runs start with it. */
    get ratePerSecond(): number {
      return bucket.rate
    },
    /** Until when the source asked to wait, ms since the epoch. */
    get pausedUntil(): number {
      return pause.from + pause.ms
    },
    /** Time spent waiting because the source asked for it, ms. Keeping to our own rate does not count. */
    get waitedMs(): number {
      return waitedMs
    },
    /** Real clock, ms; null if the source does not make us wait. */
    get waitingSince(): number | null {
      return waitingSince
    },
    /**
     * Repeats a request while the source answers with a limit: 429, or 503 with a wait.
     * @throws DeferredError `SOURCE_RATE_LIMITED` when waiting would pass `maxWaitMs`; the signal's reason on abort
     */
    async send<T extends LimitedAnswer>(request: () => Promise<T>, signal: AbortSignal): Promise<T> {
      for (let refusals = 0; ; refusals += 1) {
        await inTurn(() => takeToken(signal))
        const answer = await request()
        if (!mustSendAgain(answer, refusals)) return answer
      }
    },
  }
}

/** Headers by lower-case name, as undici hands them over. */
export type ResponseHeaders = Record<string, string | string[] | undefined>

/** A reset is seconds from now, an epoch in seconds or milliseconds, or a date. Returns ms to wait. */
function parseReset(text: string, now: number): number {
  const value = parseNumber(text)
  if (value === null) return parseRetryAfter(text, now) ?? 0
  if (value >= 1e12) return capWait(value - now)
  return capWait(value >= 1e9 ? value * 1000 - now : value * 1000)
}

/**
 * Parameters of each policy, and its name: `"default";r=0;t=3` → name "default", r 0, t 3. The older form has one set for all:
 * `remaining=0, reset=3`.
 */
function listPolicies(header: string): Record<string, string>[] {
  const text = header.toLowerCase()
  const items = /\b(remaining|reset)\s*=/.test(text) ? [text] : text.split(',')
  return items.map((item) => {
    const pairs = item.matchAll(/(?:^|[;,])\s*([a-z]+)\s*=\s*"?([^;,"]*)/g)
    return {
      name: item.replace(/;.*/s, '').trim(),
      ...Object.fromEntries(pairs.map(([, name, text]) => [name, text])),
    }
  })
}

/**
 * The longest wait that headers ask for, ms; 0 if none. Reads `Retry-After`, `RateLimit` and `RateLimit-Policy`
 * (draft-ietf-httpapi-ratelimit-headers, newer and older forms), `RateLimit-*`, `X-RateLimit-*`; ignores the unreadable.
 */
export function parseWait(headers: ResponseHeaders, now: number): number {
  const said = (name: string) => [headers[name] ?? ''].flat().join(', ')
  const windows = new Map(listPolicies(said('ratelimit-policy')).map(({name, w}) => [name, w]))
  const quotas = [
    // Without a reset time, a quota is renewed after the window of its policy.
    ...listPolicies(said('ratelimit')).map(({name, remaining, reset, r = remaining, t = reset}) => [
      r,
      t || windows.get(name),
    ]),
    ...['ratelimit', 'x-ratelimit'].map((name) => [said(`${name}-remaining`), said(`${name}-reset`)]),
  ]
  const waits = quotas.map(([remaining = '', reset = '']) =>
    (parseNumber(remaining) ?? 1) > 0 ? 0 : parseReset(reset, now),
  )
  return Math.max(parseRetryAfter(said('retry-after'), now) ?? 0, ...waits)
}

const LEAST_RATE = 0.2
const RAISE_PER_SECOND = 0.01
/** Idle time proves nothing about the source, so one answer counts for no more than this. */
const LONGEST_RAISE_MS = 5_000

/** Full at `now`. Refusals halve the rate; answers then raise it slowly. Instants are in ms. */
export function createTokenBucket(
  {ratePerSecond, burst, learntRate}: Omit<RateLimitSettings, 'maxWaitMs' | 'host'>,
  now: number,
) {
  const leastRate = Math.min(LEAST_RATE, ratePerSecond)
  let rate = Math.min(ratePerSecond, Math.max(leastRate, learntRate ?? ratePerSecond))
  let tokens = burst
  let filledAt = now
  let changedAt = now
  let cutAt = Number.NEGATIVE_INFINITY

  /** A clock that is set back takes no tokens away. */
  function fill(instant: number): void {
    tokens = Math.min(burst, tokens + (Math.max(0, instant - filledAt) / 1000) * rate)
    filledAt = instant
  }

  return {
    get rate(): number {
      return rate
    },
    msUntilToken(instant: number): number {
      fill(instant)
      return tokens >= 1 ? 0 : Math.ceil(((1 - tokens) / rate) * 1000)
    },
    spend(instant: number): void {
      fill(instant)
      tokens -= 1
    },
    /** Cuts the rate once for all requests that started before the last cut; never below the least rate. */
    cut(instant: number, startedAt: number): void {
      fill(instant)
      tokens = Math.min(tokens, 0)
      // A clock that was set back says nothing about which came first.
      if (startedAt < cutAt && cutAt <= instant) return
      rate = Math.max(leastRate, rate / 2)
      cutAt = instant
      changedAt = instant
    },
    /** Raises the rate by 1 % of the upper bound for each second since the last change, at most five. */
    raise(instant: number): void {
      fill(instant)
      const elapsedMs = Math.min(LONGEST_RAISE_MS, Math.max(0, instant - changedAt))
      rate = Math.min(ratePerSecond, rate + ratePerSecond * RAISE_PER_SECOND * (elapsedMs / 1000))
      changedAt = instant
    },
  }
}
