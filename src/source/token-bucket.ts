/** How fast requests may follow each other. */
export interface BucketSettings {
  /** Upper bound, requests a second. */
  ratePerSecond: number
  /** Requests that may follow each other at once after a pause. */
  burst: number
  /** Where an earlier run had arrived; kept between the least rate and the upper bound. */
  learntRate?: number | undefined
}

const LEAST_RATE = 0.2
const RAISE_PER_SECOND = 0.01
/** Idle time proves nothing about the source, so that one answer never counts for more than this. */
const LONGEST_RAISE_MS = 5_000

/**
 * Creates a token bucket that is full at `now` and whose rate adapts: halved when the source refuses, raised slowly again.
 * All instants are ms.
 */
export function createTokenBucket(settings: BucketSettings, now: number) {
  const {ratePerSecond, burst} = settings
  const leastRate = Math.min(LEAST_RATE, ratePerSecond)
  let rate = Math.min(ratePerSecond, Math.max(leastRate, settings.learntRate ?? ratePerSecond))
  let tokens = burst
  let filledAt = now
  let changedAt = now
  let cutAt = Number.NEGATIVE_INFINITY

  /** The clock may be set back: that never takes tokens away. */
  function fill(instant: number): void {
    tokens = Math.min(burst, tokens + (Math.max(0, instant - filledAt) / 1000) * rate)
    filledAt = instant
  }

  return {
    /** Requests a second at present. */
    get rate(): number {
      return rate
    },
    /** Time until a token can be spent; 0 when one can. */
    msUntilToken(instant: number): number {
      fill(instant)
      return tokens >= 1 ? 0 : Math.ceil(((1 - tokens) / rate) * 1000)
    },
    spend(instant: number): void {
      fill(instant)
      tokens -= 1
    },
    /** Halves the rate, once for all requests that started before the last cut; never under 0.2/s. */
    cut(instant: number, startedAt: number): void {
      fill(instant)
      tokens = Math.min(tokens, 0)
      if (startedAt < cutAt) return
      rate = Math.max(leastRate, rate / 2)
      cutAt = instant
      changedAt = instant
    },
    /** Raises the rate after an answer: by a hundredth of the upper bound for each second since the last change. */
    raise(instant: number): void {
      fill(instant)
      const elapsedMs = Math.min(LONGEST_RAISE_MS, Math.max(0, instant - changedAt))
      rate = Math.min(ratePerSecond, rate + ratePerSecond * RAISE_PER_SECOND * (elapsedMs / 1000))
      changedAt = instant
    },
  }
}
