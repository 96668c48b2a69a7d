import pLimit from 'p-limit'
import {type LoantapeError, newError} from '../errors.ts'
import type {World} from '../types.ts'
import {parseLimitHeaders, type ResponseHeaders} from './limit-headers.ts'
import {backoffMs} from './retry.ts'
import {type BucketSettings, createTokenBucket} from './token-bucket.ts'

/** What the limiter is set to. */
export interface RateLimitSettings extends BucketSettings {
  /** Time one run may wait for the source's limits. */
  maxWaitMs: number
  /** Named in errors. */
  host: string
}

/** What the limiter must know of an answer. */
export interface LimitedAnswer {
  status: number
  headers: ResponseHeaders
  /** Real instant at which the request began, ms. */
  startedAt: number
}

/** The source names full seconds and its clock is not ours: a little more than it asks for. */
const SLACK_MS = 250

/** Creates what lets the requests of one client start at the rate the settings and the source allow. */
export function createRateLimiter(
  settings: RateLimitSettings,
  world: Pick<World, 'realClock' | 'random' | 'log'>,
) {
  const clock = world.realClock
  const bucket = createTokenBucket(settings, clock.now())
  const inTurn = pLimit(1)
  let pause = {from: 0, ms: 0}
  let waitedMs = 0
  let waitingSince: number | null = null

  /** What is left of the pause, which begins anew when the clock is set back. */
  function pausedMs(now: number): number {
    if (now < pause.from) pause = {...pause, from: now}
    return Math.max(0, pause.ms - (now - pause.from))
  }

  function pauseFor(ms: number): void {
    const now = clock.now()
    if (ms > pausedMs(now)) pause = {from: now, ms}
  }

  async function waitImposed(ms: number, signal: AbortSignal): Promise<void> {
    if (waitedMs + ms > settings.maxWaitMs) throw createRateLimited(settings, ms)
    const startedAt = clock.now()
    waitingSince ??= startedAt
    try {
      await clock.sleep(ms, signal)
    } finally {
      waitedMs += Math.max(0, clock.now() - startedAt)
    }
  }

  /** Only the head of the queue waits, so that waited time is never counted twice. */
  async function takeToken(isRefused: boolean, signal: AbortSignal): Promise<void> {
    try {
      for (;;) {
        signal.throwIfAborted()
        const now = clock.now()
        const pauseMs = pausedMs(now)
        const waitMs = Math.max(pauseMs, bucket.msUntilToken(now))
        if (waitMs === 0) return bucket.spend(now)
        if (pauseMs > 0 || isRefused) await waitImposed(waitMs, signal)
        else await clock.sleep(waitMs, signal)
      }
    } finally {
      waitingSince = null
    }
  }

  /** Takes note of an answer; true when it is a limit and the request must be sent again. */
  function isRefusedBy(answer: LimitedAnswer, refusals: number): boolean {
    const {retryAfterMs, exhaustedMs} = parseLimitHeaders(answer.headers, clock.now())
    const toldMs = Math.max(retryAfterMs ?? 0, exhaustedMs ?? 0)
    const isOverload = answer.status === 503
    if (answer.status !== 429 && !isOverload) {
      if (answer.status < 500) bucket.raise(clock.now())
      if (toldMs > 0) pauseFor(toldMs)
      return false
    }
    bucket.cut(clock.now(), answer.startedAt)
    if (isOverload && toldMs === 0) return false
    const waitMs = toldMs > 0 ? toldMs : backoffMs(refusals, world.random)
    pauseFor(waitMs + Math.ceil(SLACK_MS * (0.5 + world.random() / 2)))
    world.log.info(
      {host: settings.host, status: answer.status, retry_in_ms: waitMs, rate_per_second: bucket.rate},
      'the source asks to wait',
    )
    return true
  }

  return {
    /** Requests a second at present: what the source taught so far. */
    get ratePerSecond(): number {
      return bucket.rate
    },
    /** Time spent waiting because the source asked for it; keeping to our own rate is not counted. */
    get waitedMs(): number {
      return waitedMs
    },
    /** Real instant since which the source makes us wait, ms; null when it does not. */
    get waitingSince(): number | null {
      return waitingSince
    },
    /**
     * Sends, and sends again for as long as the source answers with a limit: 429, or 503 naming a wait.
     *
     * @throws DeferredError `SOURCE_RATE_LIMITED` when waiting would pass `maxWaitMs`; the signal's reason on abort
     */
    async send<T extends LimitedAnswer>(request: () => Promise<T>, signal: AbortSignal): Promise<T> {
      for (let refusals = 0; ; refusals += 1) {
        await inTurn(() => takeToken(refusals > 0, signal))
        const answer = await request()
        if (!isRefusedBy(answer, refusals)) return answer
      }
    },
  }
}

function createRateLimited(settings: RateLimitSettings, waitMs: number): LoantapeError {
  const minutes = settings.maxWaitMs / 60_000
  return newError(
    'SOURCE_RATE_LIMITED',
    `Rate limit of source '${settings.host}': waiting another ${Math.ceil(waitMs / 1000)} s would take the ` +
      `waiting of this run past the ${minutes} min a run may wait.`,
  )
}
