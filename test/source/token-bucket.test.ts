import fc from 'fast-check'
import {expect, test} from 'vitest'
import {createTokenBucket} from '../../src/source/rate-limit.ts'

/** Spends as soon as allowed; returns the instant. */
function spendNext(bucket: ReturnType<typeof createTokenBucket>, now: number): number {
  const instant = now + bucket.msUntilToken(now)
  bucket.spend(instant)
  return instant
}

test('a clock set back takes no token away and adds none', () => {
  const bucket = createTokenBucket({ratePerSecond: 1, burst: 2}, 10_000)
  bucket.spend(10_000)
  expect(bucket.msUntilToken(0)).toBe(0)
  bucket.spend(0)
  expect(bucket.msUntilToken(0)).toBe(1000)
})

test('halves on a refusal and is then empty, once for all requests in progress together', () => {
  const bucket = createTokenBucket({ratePerSecond: 8, burst: 5}, 0)
  for (const startedAt of [100, 110, 120]) bucket.cut(200, startedAt)
  expect([bucket.rate, bucket.msUntilToken(200)]).toEqual([4, 250])
  bucket.cut(400, 300)
  expect(bucket.rate).toBe(2)
})

test('never falls below 0.2 a second, nor below a lower setting', () => {
  const bucket = createTokenBucket({ratePerSecond: 5, burst: 5}, 0)
  const slow = createTokenBucket({ratePerSecond: 0.05, burst: 5}, 0)
  for (let now = 1; now < 20; now += 1) {
    bucket.cut(now, now)
    slow.cut(now, now)
  }
  expect(bucket.rate).toBe(0.2)
  expect(slow.rate).toBe(0.05)
})

test('rises by a hundredth of the setting per second, of a silence five at most, up to the setting', () => {
  const bucket = createTokenBucket({ratePerSecond: 10, burst: 5}, 0)
  bucket.cut(0, 0)
  bucket.raise(1000)
  expect(bucket.rate).toBeCloseTo(5.1)
  bucket.raise(2000)
  expect(bucket.rate).toBeCloseTo(5.2)
  bucket.raise(3_600_000)
  expect(bucket.rate).toBeCloseTo(5.7)
  for (let now = 3_601_000; now < 3_690_000; now += 1000) bucket.raise(now)
  expect(bucket.rate).toBe(10)
})

test('starts from a learned rate within bounds', () => {
  const rateFrom = (learntRate: number | undefined) =>
    createTokenBucket({ratePerSecond: 10, burst: 5, learntRate}, 0).rate
  expect([2, 50, 0.001, undefined].map(rateFrom)).toEqual([2, 10, 0.2, 10])
})

test('never lets more through than burst plus rate times time, whatever happens in between', () => {
  const step = fc.record({
    pauseMs: fc.integer({min: 0, max: 3000}),
    act: fc.constantFrom('spend', 'spend', 'spend', 'cut', 'raise'),
  })
  fc.assert(
    fc.property(
      fc.integer({min: 1, max: 50}),
      fc.integer({min: 1, max: 20}),
      fc.array(step, {maxLength: 60}),
      (ratePerSecond, burst, steps) => {
        const bucket = createTokenBucket({ratePerSecond, burst}, 0)
        let now = 0
        let spent = 0
        for (const {pauseMs, act} of steps) {
          now += pauseMs
          if (act === 'cut') bucket.cut(now, now)
          if (act === 'raise') bucket.raise(now)
          if (act === 'spend') {
            now = spendNext(bucket, now)
            spent += 1
          }
          expect(spent).toBeLessThanOrEqual(burst + (now / 1000) * ratePerSecond + 1e-6)
          expect(bucket.rate).toBeGreaterThanOrEqual(0.2)
          expect(bucket.rate).toBeLessThanOrEqual(ratePerSecond)
        }
      },
    ),
  )
})
