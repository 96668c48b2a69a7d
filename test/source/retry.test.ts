import fc from 'fast-check'
import {expect, test} from 'vitest'
import {AuthError, RetryableError} from '../../src/core/errors.ts'
import {backoffMs, classifyFault, withRetries} from '../../src/source/retry.ts'
import {createTestWorld, failureOf} from './test-world.ts'

const TARGET = {host: 'deals.example.com', path: '/deals'}

/** An attempt that fails so many times, then returns how often it was made. */
function failing(times: number, error: Error): {attempt: () => Promise<number>; count: () => number} {
  let made = 0
  return {
    count: () => made,
    attempt: async () => {
      made += 1
      if (made <= times) throw error
      return made
    },
  }
}

const RESET = new RetryableError({code: 'SOURCE_UNREACHABLE', problem: 'ECONNRESET'})

test('tries again until it works', async () => {
  const world = createTestWorld()
  const {attempt} = failing(3, RESET)
  expect(await withRetries(attempt, {retries: 3, target: TARGET}, world)).toBe(4)
  expect(world.realClock.sleeps).toEqual([250, 500, 1000])
})

test('makes one attempt more than there are retries, and keeps the last cause', async () => {
  const world = createTestWorld()
  const {attempt, count} = failing(99, RESET)
  const error = await failureOf(withRetries(attempt, {retries: 2, target: TARGET}, world))
  expect(count()).toBe(3)
  expect(error).toMatchObject({code: 'SOURCE_UNREACHABLE', exitCode: 6, cause: RESET})
  expect(error.message).toBe(
    "Source 'deals.example.com' could not be reached at GET /deals, 3 times in a row, at last with 'ECONNRESET': expected an answer. " +
      'Everything read so far is kept. The next run continues from there; check LOANTAPE_BASE_URL and the network if this continues.',
  )
})

test('does not try again what is not retryable', async () => {
  const refused = new AuthError({code: 'SOURCE_UNAUTHORIZED', problem: 'refused'})
  const {attempt, count} = failing(99, refused)
  const error = await failureOf(withRetries(attempt, {retries: 5, target: TARGET}, createTestWorld()))
  expect(error).toBe(refused)
  expect(count()).toBe(1)
})

test('full jitter stays between nothing and a bound that doubles up to half a minute', () => {
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

test.each(['ECONNRESET', 'ENOTFOUND', 'UND_ERR_SOCKET', 'UND_ERR_BODY_TIMEOUT', 'HPE_INVALID_CONSTANT'])(
  '%s is worth trying again',
  (code) => {
    const fault = Object.assign(new Error('fault'), {code})
    const classified = classifyFault(fault, TARGET, {maxAnswerMb: 32})
    expect(classified).toBeInstanceOf(RetryableError)
    expect(classified).toMatchObject({problem: code, cause: fault})
  },
)

test.each([
  new TypeError('a bug'),
  Object.assign(new Error('bad path'), {code: 'UND_ERR_INVALID_ARG'}),
  Object.assign(new TypeError('bad argument'), {code: 'ERR_INVALID_ARG_TYPE'}),
  Object.assign(new Error('used after its end'), {code: 'UND_ERR_DESTROYED'}),
])('a fault of our own stays what it is: %s', (fault) => {
  expect(classifyFault(fault, TARGET, {maxAnswerMb: 32})).toBe(fault)
})
