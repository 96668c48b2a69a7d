import {setFlagsFromString} from 'node:v8'
import {runInNewContext} from 'node:vm'
import {expect, test} from 'vitest'
import {realClock} from '../../src/core/clock.ts'
import {createSilentLog} from '../../src/core/log.ts'
import type {Job} from '../../src/schedule/job.ts'
import {endRun} from '../../src/schedule/job-runs.ts'
import {createScheduler} from '../../src/schedule/scheduler.ts'
import {openStateDb} from '../../src/store/state-db.ts'

const MINUTE = 60_000
const MB = 1024 * 1024

test('the scheduler holds no more memory after 2,500 runs than after 500', async () => {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  let now = Date.parse('2026-06-01T00:00:00Z')
  using stateDb = openStateDb(':memory:')
  const job: Job = {
    name: 'each-minute',
    schedule: '* * * * *',
    timeZone: 'America/New_York',
    catchUp: 'latest',
    graceMinutes: 5,
    steps: [{do: 'build'}],
  }
  let runs = 0
  const well = {exitCode: 0, errorCode: null, error: null, summary: null, retryAt: null}
  const scheduler = createScheduler(
    {
      stateDb,
      jobs: [job],
      startRun: (run) => {
        runs += 1
        endRun(stateDb, run, well, now)
        return Promise.resolve({code: 0, signal: null})
      },
    },
    {
      clock: {now: () => now},
      realClock: {...realClock, now: () => now},
      random: Math.random,
      log: createSilentLog(),
      signal: new AbortController().signal,
      plans: new Map(),
      onProgress: () => undefined,
      onStep: () => undefined,
    },
  )
  const used: number[] = []
  scheduler.tick()
  while (runs < 2500) {
    now += MINUTE
    scheduler.tick()
    await scheduler.idle()
    if (runs === 500 || runs === 2500) {
      collect()
      used.push(process.memoryUsage().heapUsed)
    }
  }
  const [early = 0, late = 0] = used
  expect((late - early) / MB).toBeLessThan(1)
})
