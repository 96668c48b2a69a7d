import type {Clock} from '../clock.ts'
import {refuse} from './problem-reply.ts'

/** A token bucket for each API key: `burst` requests at once, `perSecond` refilled. */
export interface RateLimit {
  perSecond: number
  burst: number
}

/**
 * Creates the rate limiter: it takes one token of a key's bucket and returns the headers of the answer.
 *
 * Headers follow draft-ietf-httpapi-ratelimit-headers: `t` is the whole seconds until the next request is served
 * (`r=0`), else until the bucket is full.
 *
 * @throws from the returned function: a Refusal (429) when the bucket is empty; a refused request costs no token
 */
export function createRateLimiter(limit: RateLimit, clock: Clock): (key: string) => Record<string, string> {
  const buckets = new Map<string, {tokens: number; filledAt: number}>()
  const window = Math.max(1, Math.ceil(limit.burst / limit.perSecond))
  const policy = {'RateLimit-Policy': `"default";q=${limit.burst};w=${window}`}

  function fillBucket(key: string): {tokens: number} {
    const now = clock.now()
    const bucket = buckets.get(key) ?? {tokens: limit.burst, filledAt: now}
    const elapsedMs = Math.max(0, now - bucket.filledAt)
    bucket.tokens = Math.min(limit.burst, bucket.tokens + (elapsedMs / 1000) * limit.perSecond)
    bucket.filledAt = now
    buckets.set(key, bucket)
    return bucket
  }

  function secondsUntil(bucket: {tokens: number}, tokens: number): number {
    return Math.max(1, Math.ceil((tokens - bucket.tokens) / limit.perSecond))
  }

  return (key) => {
    const bucket = fillBucket(key)
    if (bucket.tokens < 1) {
      const wait = secondsUntil(bucket, 1)
      const detail = `More than ${limit.perSecond} requests per second. Try again in ${wait} s.`
      const state = {RateLimit: `"default";r=0;t=${wait}`, 'Retry-After': String(wait)}
      throw refuse('rate_limited', {detail, headers: {...policy, ...state}})
    }
    bucket.tokens -= 1
    const remaining = Math.floor(bucket.tokens)
    const reset = secondsUntil(bucket, remaining === 0 ? 1 : limit.burst)
    return {...policy, RateLimit: `"default";r=${remaining};t=${reset}`}
  }
}
