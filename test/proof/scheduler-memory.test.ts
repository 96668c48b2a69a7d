import {setFlagsFromString} from 'node:v8'
import {runInNewContext} from 'node:vm'
import {expect, test} from 'vitest'
import {endRun} from '../../src/schedule/job-runs.ts'
import {createScheduler} from '../../src/schedule/scheduler.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {createWorldBy} from '../support/data.ts'
import {aJob} from '../support/jobs.ts'

const MINUTE = 60_000
/** What a run may leave behind on average; a table grows in steps. */
const BYTES_PER_RUN = 500

test('the scheduler holds no more memory after 1,500 runs than after 300', async () => {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  let now = Date.parse('2026-06-01T00:00:00Z')
  const world = createWorldBy(() => now)
  using stateDb = openStateDb(':memory:')
  const job = aJob({schedule: '* * * * *', graceMinutes: 5})
  let runs = 0
  const startRun: Parameters<typeof createScheduler>[0]['startRun'] = async (run) => {
    runs += 1
    endRun(stateDb, run, {exit_code: 0}, now)
    return {code: 0, signal: null}
  }
  const scheduler = createScheduler({stateDb, jobs: [job], startRun}, world)
  const used: number[] = []
  scheduler.tick()
  while (runs < 1500) {
    now += MINUTE
    scheduler.tick()
    await scheduler.idle()
    if (runs === 300 || runs === 1500) {
      collect()
      used.push(process.memoryUsage().heapUsed)
    }
  }
  const [early = 0, late = 0] = used
  expect((late - early) / 1200).toBeLessThan(BYTES_PER_RUN)
})
