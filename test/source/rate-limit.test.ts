import fc from 'fast-check'
import {expect, onTestFinished, test, vi} from 'vitest'
import {parseRetryAfter} from '../../src/core/retry.ts'
import {
  createRateLimiter,
  createTokenBucket,
  type LimitedAnswer,
  parseWait,
  type RateLimitSettings,
} from '../../src/source/rate-limit.ts'
import {failureOf} from '../support/lab.ts'
import {createGate} from './test-server.ts'
import {createTestWorld, START} from './test-world.ts'

const SETTINGS = {ratePerSecond: 10, burst: 5, maxWaitMs: 3_600_000, host: 'deals.example.com'}

function setUp(changes: Partial<RateLimitSettings> = {}) {
  const world = createTestWorld()
  return {limiter: createRateLimiter({...SETTINGS, ...changes}, world), world}
}

/** A limiter whose requests get these answers in turn, then the last one forever; `sentAt` is in ms since the start. */
function answering(
  answers: {status: number; headers?: LimitedAnswer['headers']}[],
  changes: Partial<RateLimitSettings> = {},
) {
  const {limiter, world} = setUp(changes)
  const sentAt: number[] = []
  const ask = () =>
    limiter.send(async () => {
      const {status, headers = {}} = answers[Math.min(sentAt.length, answers.length - 1)]!
      sentAt.push(world.realClock.now() - START)
      return {status, headers, startedAt: world.realClock.now()}
    }, world.signal)
  return {limiter, world, sentAt, ask}
}

const refusing = (wait: string, status = 429) => ({status, headers: {'retry-after': wait}})

test('keeps to the rate without counting that as waiting for the source', async () => {
  const {limiter, sentAt, ask} = answering([{status: 200}])
  for (let count = 0; count < 8; count += 1) await ask()
  expect(sentAt).toEqual([0, 0, 0, 0, 0, 100, 200, 300])
  expect(limiter.waitedMs).toBe(0)
})

test('waits slightly longer than a 429 asks, reports since when, and sends again, at half the rate, which then rises', async () => {
  const {limiter, world, sentAt, ask} = answering([refusing('7'), {status: 200}])
  const {sleep} = world.realClock
  const since: (number | null)[] = []
  world.realClock.sleep = async (ms, signal) => {
    since.push(limiter.waitingSince)
    // Woken early, it goes on waiting.
    await sleep(since.length === 1 ? 1000 : ms, signal)
  }
  expect((await ask()).status).toBe(200)
  expect(since).toEqual([START, START])
  expect(sentAt).toHaveLength(2)
  expect(sentAt[1]).toBeGreaterThan(7000)
  expect(sentAt[1]).toBeLessThan(7500)
  expect(limiter.waitedMs).toBe(sentAt[1])
  expect(limiter.waitingSince).toBeNull()
  expect(limiter.ratePerSecond).toBe(5.5)
})

test('waits longer and longer for a source that refuses without saying sensibly how long', async () => {
  const said = ['0', '-1', 'Sat, 01 Jan 2000 00:00:00 GMT', 'nonsense']
  const {sentAt, ask} = answering([
    ...said.map((wait) => refusing(wait)),
    {status: 429},
    {status: 429},
    {status: 200},
  ])
  await ask()
  expect(sentAt[1]).toBeGreaterThanOrEqual(200)
  const waits = sentAt.slice(1).map((instant, index) => instant - sentAt[index]!)
  expect(waits).toEqual(waits.toSorted((left, right) => left - right))
  expect(waits.at(-1)).toBeGreaterThan(4000)
})

test('waits for a 503 that names a wait, and returns one without as a failure', async () => {
  const named = answering([refusing('2', 503), {status: 200}])
  expect((await named.ask()).status).toBe(200)
  expect(named.sentAt[1]).toBeGreaterThan(2000)
  const {limiter, world, sentAt, ask} = answering([{status: 503}, {status: 500}])
  for (const status of [503, 500]) {
    expect((await ask()).status).toBe(status)
    await world.realClock.sleep(1000)
  }
  expect(sentAt).toHaveLength(2)
  expect(limiter.ratePerSecond, 'a failure does not raise it').toBe(5)
})

test('holds every request back while the quota of a good answer is exhausted', async () => {
  const {limiter, sentAt, ask} = answering([
    {status: 200, headers: {ratelimit: '"default";r=0;t=3'}},
    {status: 200, headers: {ratelimit: '"default";r=0;t=1'}},
    {status: 200},
  ])
  await Promise.all([ask(), ask()])
  expect(limiter.pausedUntil).toBe(START + 3000)
  await Promise.all([ask(), ask()])
  expect(sentAt).toEqual([0, 0, 3000, 3000])
  expect(limiter.waitedMs).toBe(3000)
})

test('waits out what the source asked of an earlier run', async () => {
  const {limiter, sentAt, ask} = answering([{status: 200}], {pausedUntil: START + 3000})
  await ask()
  expect([sentAt, limiter.waitedMs]).toEqual([[3000], 3000])
})

test('waits no longer than asked if the clock is set back by a day meanwhile', async () => {
  const {limiter, world, ask} = answering([refusing('10', 200), {status: 200}])
  await ask()
  const {now} = world.realClock
  world.realClock.now = () => now() - 86_400_000
  await ask()
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
  const {limiter, sentAt, ask} = answering([refusing('25')], {maxWaitMs: 60_000})
  const error = await failureOf(ask())
  expect(error).toMatchObject({code: 'SOURCE_RATE_LIMITED', exitCode: 6})
  expect(error.message).toMatch(/'deals\.example\.com'.*past the 1 min a run may wait/)
  expect(sentAt).toHaveLength(3)
  expect(limiter.waitedMs).toBeLessThan(60_000)
  const zero = answering([refusing('0')], {maxWaitMs: 60_000})
  expect(await failureOf(zero.ask())).toMatchObject({code: 'SOURCE_RATE_LIMITED'})
  expect(zero.sentAt.length).toBeLessThan(20)
})

test('a source that is overloaded for long is not told as a rate limit', async () => {
  const {message} = await failureOf(answering([refusing('7200', 503)], {maxWaitMs: 60_000}).ask())
  expect(message).toMatch(
    /^Source 'deals.example.com' asks to wait \(status 503\): another 720\d s would take/,
  )
  expect(message).not.toMatch(/rate limit|LOANTAPE_RATE_PER_SECOND/i)
})

test('stops waiting when the signal aborts', async () => {
  const {world, sentAt, ask} = answering([refusing('5')])
  const waiting = failureOf(ask())
  world.abort()
  expect(await waiting).toBe(world.signal.reason)
  expect(sentAt.length).toBeLessThan(2)
})

test('a clock set back takes no token away and adds none, and a refusal still halves the rate', () => {
  const bucket = createTokenBucket({ratePerSecond: 1, burst: 2}, 10_000)
  bucket.spend(10_000)
  expect(bucket.msUntilToken(0)).toBe(0)
  bucket.spend(0)
  expect(bucket.msUntilToken(0)).toBe(1000)
  bucket.cut(9_000, 8_000)
  bucket.cut(500, 400)
  expect(bucket.rate).toBe(0.25)
})

test('halves on a refusal and is then empty, once for all requests in progress together', () => {
  const bucket = createTokenBucket({ratePerSecond: 8, burst: 5}, 0)
  for (const startedAt of [100, 110, 120]) bucket.cut(200, startedAt)
  expect([bucket.rate, bucket.msUntilToken(200)]).toEqual([4, 250])
  bucket.cut(400, 300)
  expect(bucket.rate).toBe(2)
})

test('rises by a hundredth of the setting per second, of a silence five at most, up to the setting', () => {
  const bucket = createTokenBucket({ratePerSecond: 10, burst: 5}, -60_000)
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
      fc.oneof(fc.integer({min: 1, max: 50}), fc.constant(0.05)),
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
            now += bucket.msUntilToken(now)
            bucket.spend(now)
            spent += 1
          }
          expect(spent).toBeLessThanOrEqual(burst + (now / 1000) * ratePerSecond + 1e-6)
          expect(bucket.rate).toBeGreaterThanOrEqual(Math.min(0.2, ratePerSecond))
          expect(bucket.rate).toBeLessThanOrEqual(ratePerSecond)
        }
      },
    ),
  )
})

const NOW = Date.parse('2026-01-31T12:00:00Z')
const DAY_MS = 86_400_000

test.each([
  ['3', 3000],
  ['0.5', 500],
  ['0', 0],
  ['-5', 0],
  ['86400', DAY_MS],
  ['1000000000', 60_000],
  ['Sat, 31 Jan 2026 12:00:07 GMT', 7000],
  ['Sat, 31 Jan 2026 11:00:00 GMT', 0],
  ['Fri, 31 Jan 2126 12:00:00 GMT', 60_000],
  ['3, 5', 5000],
  ['Saturday, 31-Jan-26 12:00:07 GMT', 7000],
  ['Sat Jan 31 12:00:07 2026', 7000],
  ['2026-01-31 12:00:07', 7000],
  ['2026-01-31T14:00:07+02:00', 7000],
  ['', null],
  ['soon', null],
])('reads Retry-After %j as %j ms', (text, expected) => {
  onTestFinished(() => void vi.unstubAllEnvs())
  vi.stubEnv('TZ', 'America/New_York')
  expect(parseRetryAfter(text, NOW)).toBe(expected)
})

test.each([
  [{ratelimit: '"default";r=0;t=3'}, 3000],
  [{ratelimit: 'default;t=3;r=0'}, 3000],
  [{ratelimit: '"default";r=1;t=3'}, 0],
  [{ratelimit: '"burst";r=0;t=2, "day";r=0;t=9'}, 9000],
  [{ratelimit: '"burst";r=0;t=2, "day";r=70;t=900'}, 2000],
  [{ratelimit: ['"burst";r=0;t=2', '"day";r=0;t=9']}, 9000],
  [{ratelimit: '"default";r=0'}, 0],
  [{ratelimit: '"default";r=0', 'ratelimit-policy': '"default";q=100;w=60'}, 60_000],
  [{ratelimit: '"b";r=0, "day";r=7', 'ratelimit-policy': '"b";q=9;w=1, "day";q=99;w=86400'}, 1000],
  [{ratelimit: '"default";r=0;t=0', 'ratelimit-policy': '"default";q=100;w=60'}, 0],
  [{'ratelimit-policy': '"default";q=100;w=60'}, 0],
  [{ratelimit: 'limit=100, remaining=0, reset=3'}, 3000],
  [{'ratelimit-limit': '10', 'ratelimit-remaining': '0', 'ratelimit-reset': '4'}, 4000],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '4'}, 4000],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW / 1000 + 5)}, 5000],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW + 6000)}, 6000],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': String(NOW / 1000 - 5)}, 0],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '2026-01-31T12:00:08Z'}, 8000],
  [{'x-ratelimit-remaining': '0'}, 0],
  [{'x-ratelimit-remaining': '0', 'x-ratelimit-reset': 'later'}, 0],
  [{'x-ratelimit-remaining': '-1', 'x-ratelimit-reset': '1'}, 1000],
  [{ratelimit: '"a";r=0;t=1', 'x-ratelimit-remaining': '0', 'x-ratelimit-reset': '2'}, 2000],
  [{ratelimit: '"a";r=0;t=999999999999'}, 60_000],
  [{ratelimit: ';;==,,"'}, 0],
  [{}, 0],
  [{'retry-after': '2', ratelimit: '"default";r=0;t=5'}, 5000],
  [{'retry-after': '8', ratelimit: '"default";r=0;t=5'}, 8000],
  [{ratelimit: '"default";r=0;t=30;burst-t=1'}, 30_000],
  [{ratelimit: '"default";r=0;t="30"'}, 30_000],
  [{ratelimit: '"default";r=0;t=', 'ratelimit-policy': '"default";q=9;w=60'}, 60_000],
])('reads the quota of %j as %j ms to wait', (headers, expected) => {
  expect(parseWait(headers, NOW)).toBe(expected)
})

test('never throws and never asks for more than a day, whatever the headers say', () => {
  const headerText = fc.oneof(
    fc.oneof(fc.string(), fc.integer(), fc.double()).map(String),
    fc.stringMatching(/^[a-z"=;, 0-9.-]{0,40}$/),
    fc.date({noInvalidDate: true}).map((date) => date.toUTCString()),
    fc.tuple(fc.integer(), fc.integer()).map(([r, t]) => `"default";r=${r};t=${t}`),
  )
  const names = fc.stringMatching(/^(retry-after|(x-)?ratelimit(-(policy|remaining|reset))?)$/)
  fc.assert(
    fc.property(fc.dictionary(names, fc.oneof(headerText, fc.array(headerText))), (headers) => {
      const waitMs = parseWait(headers, NOW)
      expect(Number.isInteger(waitMs)).toBe(true)
      expect(waitMs).toBeGreaterThanOrEqual(0)
      expect(waitMs).toBeLessThanOrEqual(DAY_MS)
    }),
  )
})
