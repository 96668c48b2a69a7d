import {type ChildProcess, spawn} from 'node:child_process'
import {once} from 'node:events'
import {hostname} from 'node:os'
import {afterEach, beforeEach, expect, test, vi} from 'vitest'
import {realClock} from '../../src/core/clock.ts'
import {listOrphanedRuns} from '../../src/schedule/scheduler.ts'
import {acquireLock, findLockHolder} from '../../src/store/lock.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {createFolder, createWorldAt, type TestFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'

const NOW = '2026-02-02T23:30:00.000Z'
const world = createWorldAt(NOW)
const later = (seconds: number) => createWorldAt(new Date(Date.parse(NOW) + seconds * 1000).toISOString())

let data: TestFolder
let stateDb: StateDb

beforeEach(() => {
  data = createFolder()
  stateDb = openStateDb(data.folder.stateDb)
})

afterEach(() => {
  stateDb[Symbol.dispose]()
  data[Symbol.dispose]()
})

const acquire = async (runId = 'r2', at = world) => acquireLock(stateDb, {runId, command: 'sync'}, at)

/** Rewrites the lock's holder. */
function pretendHolder(changes: Record<string, string | number | null>): void {
  for (const [column, value] of Object.entries(changes))
    stateDb.db.prepare(`update lock set ${column} = ?`).run(value)
}

test('a second run is refused while the first holds the warehouse, and told who does what', async () => {
  using first = await acquire('r1')
  first.setProgress('walking: 7 pages, 700 deals')
  const refusal = await failureOf(acquire())
  expect(refusal).toMatchObject({code: 'RUN_IN_PROGRESS', exitCode: 4})
  expect(refusal.message).toContain(
    `sync, pid ${process.pid} on ${hostname()}, started ${NOW}, walking: 7 pages, 700 deals.`,
  )
})

test("other connections see who holds the warehouse and the run's progress", async () => {
  using lock = await acquire('r1')
  lock.setProgress('applying')
  using other = openStateDb(data.folder.stateDb)
  expect(findLockHolder(other, world)).toMatchObject({
    run_id: 'r1',
    command: 'sync',
    pid: process.pid,
    progress: 'applying',
  })
})

/** A process that has ended. */
async function endedProcess(): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['--version'], {stdio: 'ignore'})
  await once(child, 'exit')
  return child
}

test('the lock of a process that is gone, or whose pid was reused, is taken over', async () => {
  for (const changes of [{pid: (await endedProcess()).pid ?? 0}, {process_started: '1'}]) {
    using _ = await acquire('r1')
    pretendHolder(changes)
    {
      using _second = await acquire()
      expect(findLockHolder(stateDb, world)).toMatchObject({run_id: 'r2'})
    }
    expect(findLockHolder(stateDb, world)).toBeUndefined()
  }
})

const DAYS_AHEAD = {host: 'elsewhere', pid: 1, heartbeat_at: Date.parse(NOW) + 10 * 86_400_000}

test.each([
  ['equal to ours', {host: 'elsewhere', pid: 1}],
  ['days ahead', DAYS_AHEAD],
])(
  'a holder on another machine whose clock is %s is taken over a minute after its last heartbeat',
  async (_, changes) => {
    using _first = await acquire('r1')
    pretendHolder(changes)
    for (const seconds of [0, 59])
      expect(await failureOf(acquire('r2', later(seconds)))).toMatchObject({code: 'RUN_IN_PROGRESS'})
    using second = await acquire('r2', later(60))
    expect(second).toBeDefined()
  },
)

test('a scheduled run that died while the clock was ahead is found a minute later', () => {
  const claim = {process_started: null, state: 'running', attempt: 1, not_before: 0}
  stateDb.insert('job_run', {job: 'nightly', ...claim, ...DAYS_AHEAD})
  const listOrphans = (seconds: number) => listOrphanedRuns(stateDb, Date.parse(NOW) + seconds * 1000)
  expect(listOrphans(0)).toEqual([])
  expect(listOrphans(60)).toMatchObject([{job: 'nightly'}])
})

test('a holder on another machine whose clock is ahead is trusted while its heart beats', async () => {
  using _ = await acquire('r1')
  for (const seconds of [0, 50, 100]) {
    pretendHolder(DAYS_AHEAD)
    expect(await failureOf(acquire('r2', later(seconds)))).toMatchObject({code: 'RUN_IN_PROGRESS'})
  }
})

test('a run whose lock was taken over does not release the new one', async () => {
  const first = await acquire('r1')
  pretendHolder({process_started: '1'})
  using _ = await acquire()
  first.setProgress('still here')
  first[Symbol.dispose]()
  expect(findLockHolder(stateDb, world)).toMatchObject({run_id: 'r2', progress: 'starting'})
})

test('the heart beats during a run, and a beat that cannot be written does not end the run', async () => {
  vi.useFakeTimers({now: Date.parse(NOW), toFake: ['setInterval', 'clearInterval', 'Date']})
  try {
    using _ = await acquire('r1', {...world, realClock})
    const beatAt = () => findLockHolder(stateDb, world)?.heartbeat_at
    vi.advanceTimersByTime(60_000)
    expect(beatAt()).toBe(Date.parse(NOW) + 60_000)
    stateDb.db.exec('pragma query_only = true')
    expect(() => vi.advanceTimersByTime(60_000)).not.toThrow()
    stateDb.db.exec('pragma query_only = false')
    vi.advanceTimersByTime(60_000)
    expect(beatAt()).toBe(Date.parse(NOW) + 180_000)
  } finally {
    vi.useRealTimers()
  }
})
