import fc from 'fast-check'
import {expect, test, vi} from 'vitest'
import {RetryableError} from '../../src/core/errors.ts'
import {backoffMs, withRetries} from '../../src/source/retry.ts'
import {failureOf} from '../support/lab.ts'
import {createTestWorld} from './test-world.ts'

const TARGET = {host: 'deals.example.com', path: '/deals'}

const RESET = new RetryableError({code: 'SOURCE_UNREACHABLE', problem: 'ECONNRESET'})

test('makes one attempt more than there are retries, after growing pauses, and keeps the last cause', async () => {
  const world = createTestWorld()
  const attempt = vi.fn(() => Promise.reject(RESET))
  const error = await failureOf(withRetries(attempt, {retries: 2, target: TARGET}, world))
  expect(attempt).toHaveBeenCalledTimes(3)
  expect(world.realClock.sleeps).toEqual([250, 500])
  expect(error).toMatchObject({code: 'SOURCE_UNREACHABLE', exitCode: 6, cause: RESET})
  expect(error.message).toMatch(
    /'deals\.example\.com' .* GET \/deals, 3 times in a row, .*'ECONNRESET'.* is kept\. The next/,
  )
})

test('full jitter stays between zero and a bound that doubles up to half a minute', () => {
  fc.assert(
    fc.property(
      fc.integer({min: 0, max: 200}),
      fc.double({min: 0, max: 1, maxExcluded: true, noNaN: true}),
      (n, r) => {
        const waitMs = backoffMs(n, () => r)
        expect(waitMs).toBeGreaterThanOrEqual(0)
        expect(waitMs).toBeLessThanOrEqual(Math.min(30_000, 500 * 2 ** n))
      },
    ),
  )
})
