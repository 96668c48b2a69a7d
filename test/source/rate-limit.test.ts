import {expect, test} from 'vitest'
import {createRateLimiter, type LimitedAnswer, type RateLimitSettings} from '../../src/source/rate-limit.ts'
import {failureOf} from '../support/lab.ts'
import {createGate} from './test-server.ts'
import {createTestWorld, START, type TestWorld} from './test-world.ts'

const SETTINGS = {ratePerSecond: 10, burst: 5, maxWaitMs: 3_600_000, host: 'deals.example.com'}

function setUp(changes: Partial<RateLimitSettings> = {}) {
  const world = createTestWorld()
  return {limiter: createRateLimiter({...SETTINGS, ...changes}, world), world}
}

/** A request that gets these answers in turn, and then the last one forever. */
function answering(
  world: TestWorld,
  answers: {status: number; headers?: LimitedAnswer['headers']}[],
): {send: () => Promise<LimitedAnswer>; sentAt: number[]} {
  const sentAt: number[] = []
  const send = async (): Promise<LimitedAnswer> => {
    const {status, headers = {}} = answers[Math.min(sentAt.length, answers.length - 1)]!
    sentAt.push(world.realClock.now() - START)
    return {status, headers, startedAt: world.realClock.now()}
  }
  return {send, sentAt}
}

test('keeps to the rate without counting that as waiting for the source', async () => {
  const {limiter, world} = setUp()
  const {send, sentAt} = answering(world, [{status: 200}])
  for (let count = 0; count < 8; count += 1) await limiter.send(send, world.signal)
  expect(sentAt).toEqual([0, 0, 0, 0, 0, 100, 200, 300])
  expect(limiter.waitedMs).toBe(0)
})

test('waits slightly longer than a 429 asks, reports since when, and sends again', async () => {
  const {limiter, world} = setUp()
  const {send, sentAt} = answering(world, [{status: 429, headers: {'retry-after': '7'}}, {status: 200}])
  const {sleep} = world.realClock
  const since: (number | null)[] = []
  world.realClock.sleep = async (ms, signal) => {
    since.push(limiter.waitingSince)
    await sleep(ms, signal)
  }
  const answer = await limiter.send(send, world.signal)
  expect(since[0]).toBe(START)
  expect(answer.status).toBe(200)
  expect(sentAt).toHaveLength(2)
  expect(sentAt[1]).toBeGreaterThan(7000)
  expect(sentAt[1]).toBeLessThan(7500)
  expect(limiter.waitedMs).toBe(sentAt[1])
  expect(limiter.waitingSince).toBeNull()
})

test('waits longer and longer for a source that refuses without saying sensibly how long', async () => {
  const {limiter, world} = setUp()
  const said = ['0', '-1', 'Sat, 01 Jan 2000 00:00:00 GMT', 'nonsense', undefined, undefined]
  const refusals = said.map((wait) => ({
    status: 429,
    headers: wait === undefined ? {} : {'retry-after': wait},
  }))
  const {send, sentAt} = answering(world, [...refusals, {status: 200}])
  await limiter.send(send, world.signal)
  expect(sentAt[1]).toBeGreaterThanOrEqual(200)
  const waits = sentAt.slice(1).map((instant, index) => instant - sentAt[index]!)
  expect(waits).toEqual(waits.toSorted((left, right) => left - right))
  expect(waits.at(-1)).toBeGreaterThan(4000)
})

test('halves the rate on a 429 and raises it again with answers', async () => {
  const {limiter, world} = setUp()
  const {send} = answering(world, [{status: 429, headers: {'retry-after': '1'}}, {status: 200}])
  await limiter.send(send, world.signal)
  expect(limiter.ratePerSecond).toBeGreaterThan(5)
  expect(limiter.ratePerSecond).toBeLessThan(6)
  for (let count = 0; count < 600; count += 1) await limiter.send(send, world.signal)
  expect(limiter.ratePerSecond).toBe(10)
})

test('waits for a 503 that names a wait, and returns one without as a failure', async () => {
  const named = setUp()
  const waiting = answering(named.world, [{status: 503, headers: {'retry-after': '2'}}, {status: 200}])
  expect((await named.limiter.send(waiting.send, named.world.signal)).status).toBe(200)
  expect(waiting.sentAt[1]).toBeGreaterThan(2000)
  const {limiter, world} = setUp()
  const {send, sentAt} = answering(world, [{status: 503}])
  expect((await limiter.send(send, world.signal)).status).toBe(503)
  expect(sentAt).toHaveLength(1)
  expect(limiter.ratePerSecond).toBe(5)
})

test('holds every request back while the quota of a good answer is exhausted', async () => {
  const {limiter, world} = setUp()
  const {send, sentAt} = answering(world, [
    {status: 200, headers: {ratelimit: '"default";r=0;t=3'}},
    {status: 200},
  ])
  await limiter.send(send, world.signal)
  await Promise.all([limiter.send(send, world.signal), limiter.send(send, world.signal)])
  expect(sentAt).toEqual([0, 3000, 3000])
  expect(limiter.waitedMs).toBe(3000)
})

test('waits no longer than asked if the clock is set back by a day meanwhile', async () => {
  const {limiter, world} = setUp()
  const {send} = answering(world, [{status: 200, headers: {'retry-after': '10'}}, {status: 200}])
  await limiter.send(send, world.signal)
  const {now} = world.realClock
  world.realClock.now = () => now() - 86_400_000
  await limiter.send(send, world.signal)
  expect(limiter.waitedMs).toBe(10_000)
})

test('counts the simultaneous waiting of several requests once', async () => {
  const {limiter, world} = setUp({burst: 2})
  const bothSent = createGate()
  let sent = 0
  const send = async (): Promise<LimitedAnswer> => {
    sent += 1
    const startedAt = world.realClock.now()
    if (sent === 2) bothSent.open()
    if (sent > 2) return {status: 200, headers: {}, startedAt}
    await bothSent.opened
    return {status: 429, headers: {'retry-after': '10'}, startedAt}
  }
  await Promise.all([limiter.send(send, world.signal), limiter.send(send, world.signal)])
  expect(limiter.waitedMs).toBeGreaterThan(10_000)
  expect(limiter.waitedMs).toBeLessThan(11_000)
})

test("gives up before a wait that would exceed the run's limit, also one of many waits of zero", async () => {
  const {limiter, world} = setUp({maxWaitMs: 60_000})
  const {send, sentAt} = answering(world, [{status: 429, headers: {'retry-after': '25'}}])
  const error = await failureOf(limiter.send(send, world.signal))
  expect(error).toMatchObject({code: 'SOURCE_RATE_LIMITED', exitCode: 6})
  expect(error.message).toContain("'deals.example.com'")
  expect(error.message).toContain('past the 1 min a run may wait')
  expect(sentAt).toHaveLength(3)
  expect(limiter.waitedMs).toBeLessThan(60_000)
  const zero = setUp({maxWaitMs: 60_000})
  const refused = answering(zero.world, [{status: 429, headers: {'retry-after': '0'}}])
  expect(await failureOf(zero.limiter.send(refused.send, zero.world.signal))).toMatchObject({
    code: 'SOURCE_RATE_LIMITED',
  })
  expect(refused.sentAt.length).toBeLessThan(20)
})

test('stops waiting when the signal aborts', async () => {
  const {limiter, world} = setUp()
  const {send, sentAt} = answering(world, [{status: 429, headers: {'retry-after': '5'}}])
  const waiting = failureOf(limiter.send(send, world.signal))
  world.abort()
  expect(await waiting).toBe(world.signal.reason)
  expect(sentAt.length).toBeLessThan(2)
})
