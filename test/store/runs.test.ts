import {type ChildProcess, spawn} from 'node:child_process'
import {once} from 'node:events'
import {afterEach, beforeEach, expect, test, vi} from 'vitest'
import {realClock} from '../../src/core/clock.ts'
import {LoantapeError} from '../../src/core/errors.ts'
import {createScheduler} from '../../src/schedule/scheduler.ts'
import {
  acquireLock,
  findLastRun,
  findLastSuccess,
  findLockHolder,
  findRunSince,
  listRuns,
  withRun,
} from '../../src/store/runs.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {findLearnt, storeLearnt} from '../../src/sync/at-source.ts'
import {createWorldAt} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {useFolder} from '../support/set-up.ts'

const NOW = '2026-02-02T23:30:00.000Z'
const world = createWorldAt(NOW)
const later = (seconds: number) => createWorldAt(new Date(Date.parse(NOW) + seconds * 1000).toISOString())

const data = useFolder()
let stateDb: StateDb

beforeEach(() => {
  stateDb = openStateDb(data.folder.stateDb)
})

afterEach(() => stateDb[Symbol.dispose]())

const acquire = async (runId = 'r2', at = world) => acquireLock(stateDb, {runId, command: 'sync'}, at)

function pretendHolder(changes: Record<string, string | number | null>): void {
  for (const [column, value] of Object.entries(changes))
    stateDb.db.prepare(`update lock set ${column} = ?`).run(value)
}

async function endedProcess(): Promise<ChildProcess> {
  const child = spawn(process.execPath, ['--version'], {stdio: 'ignore'})
  await once(child, 'exit')
  return child
}

test('the lock of a process that is gone, or whose pid was reused, is taken over, and not released by its old run', async () => {
  for (const changes of [{pid: (await endedProcess()).pid ?? 0}, {process_started: '1'}]) {
    const first = await acquire('r1')
    pretendHolder(changes)
    {
      using _second = await acquire()
      first.setProgress('still here')
      first[Symbol.dispose]()
      expect(findLockHolder(stateDb, world)).toMatchObject({run_id: 'r2', progress: 'starting'})
    }
    expect(findLockHolder(stateDb, world)).toBeUndefined()
  }
})

test('how far a run has come is noted for others, also under a clock that was set back', async () => {
  let now = Date.parse(NOW)
  const set = {...world, realClock: {...world.realClock, now: () => now}}
  await withRun(data.folder.stateDb, 'sync', set, async ({world: {onProgress}}) => {
    onProgress({step: 'walking'})
    now -= 3_600_000
    onProgress({step: 'applying'})
    expect(findLockHolder(stateDb, set)).toMatchObject({progress: 'applying'})
    return {outcome: 'applied'}
  })
})

const DAYS_AHEAD = {host: 'elsewhere', pid: 1, heartbeat_at: Date.parse(NOW) + 10 * 86_400_000}

test('a holder on another machine, its clock equal to ours or days ahead, is taken over a minute after its last heartbeat', async () => {
  for (const changes of [{host: 'elsewhere', pid: 1}, DAYS_AHEAD]) {
    using _first = await acquire('r1')
    pretendHolder(changes)
    for (const seconds of [0, 59])
      expect(await failureOf(acquire('r2', later(seconds)))).toMatchObject({code: 'RUN_IN_PROGRESS'})
    using second = await acquire('r2', later(60))
    expect(second).toBeDefined()
  }
  using _first = await acquire('r1')
  for (const seconds of [0, 50, 100]) {
    // The holder's heart still beats.
    pretendHolder(DAYS_AHEAD)
    expect(await failureOf(acquire('r2', later(seconds)))).toMatchObject({code: 'RUN_IN_PROGRESS'})
  }
})

test('a scheduled run that died while the clock was ahead is found a minute later', () => {
  const claim = {process_started: null, state: 'running', attempt: 1, not_before: 0}
  stateDb.insert('job_run', {job: 'nightly', ...claim, ...DAYS_AHEAD})
  const startRun = () => Promise.reject(new Error('nothing is due'))
  const readStateAfter = (seconds: number) => {
    createScheduler({stateDb, jobs: [], startRun}, later(seconds)).tick()
    return stateDb.db.prepare('select state, error_code from job_run').get()
  }
  expect(readStateAfter(0)).toEqual({state: 'running', error_code: null})
  expect(readStateAfter(60)).toEqual({state: 'failed', error_code: 'JOB_CRASHED'})
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

/** Runs a command some seconds after the first; it ends with a result or an error. */
const run = (command: string, seconds: number, result: {outcome: string} | Error) =>
  withRun(data.folder.stateDb, command, later(seconds), async () => {
    if (result instanceof Error) throw result
    return result
  })

test('a run is recorded with its outcome, a failed one with its codes and its message, secrets masked', async () => {
  const problem = 'Answer to Bearer sk_live_abc123 has no list.'
  const unplanned = new Error('who knows')
  const found = {outcome: 'released', checks: {warned: 1, results: [{name: 'limit_is_kept'}]}}
  expect(await run('sync', 0, found)).toEqual(found)
  await failureOf(run('sync', 10, new LoantapeError({code: 'SOURCE_ENVELOPE', problem}, 'contract')))
  expect(await failureOf(run('sync', 20, unplanned))).toBe(unplanned)
  expect(findLockHolder(stateDb, world)).toBeUndefined()
  const [unexpected, refused, released] = listRuns(stateDb, 10)
  expect(unexpected).toMatchObject({exit_code: 1, error_code: 'UNEXPECTED'})
  expect(refused).toMatchObject({
    exit_code: 7,
    outcome: 'failed',
    error_code: 'SOURCE_ENVELOPE',
    error: expect.stringContaining('has no list'),
    summary: null,
  })
  expect(refused?.error).not.toContain('abc123')
  expect(released).toEqual({
    run_id: expect.stringMatching(/^20260202T233000Z-[0-9a-f]{6}$/),
    command: 'sync',
    pid: process.pid,
    started_at: NOW,
    ended_at: NOW,
    exit_code: 0,
    outcome: 'released',
    error_code: null,
    error: null,
    summary: '{"outcome":"released","checks":{"warned":1}}',
  })
})

test('the last run began last, even if the clock was set back; the last success is no failure and no other command', async () => {
  await run('sync', 0, {outcome: 'first'})
  await run('sync', -3600, {outcome: 'second'})
  await run('replay', 10, {outcome: 'third'})
  await failureOf(run('sync', 20, new Error('no')))
  expect(listRuns(stateDb, 3).map(({outcome}) => outcome)).toEqual(['failed', 'third', 'second'])
  expect(findLastRun(stateDb, 'sync')).toMatchObject({outcome: 'failed'})
  expect(findLastSuccess(stateDb, 'sync')).toMatchObject({outcome: 'second'})
  expect(findLastSuccess(stateDb, 'build')).toBeUndefined()
})

test.each<[which: string, said: string[], found: string | undefined, error_code: string | null]>([
  ['failed with its error, if not later', ['sync 12 6 X', 'build 25 6 X', 'sync 30 0'], 'sync 30 0', 'X'],
  ['failed in it, not before', ['sync 05 6 X', 'sync 30 0'], undefined, 'X'],
  ['was interrupted', ['sync 12 6 INTERRUPTED', 'sync 30 0'], 'sync 30 0', 'X'],
  ['died', ['sync 12', 'sync 30 0'], 'sync 30 0', 'X'],
  ['failed last', ['sync 12 6 INTERRUPTED', 'build 15 6 X', 'build 30 0', 'sync 31 8 Y'], 'build 30 0', 'X'],
  ['failed at all', ['sync 12 0', 'sync 30 0'], undefined, null],
])('what became of a failed attempt is what became of its command that %s', (_, said, found, error_code) => {
  const at = (minute: string) => `2026-02-02T23:${minute}:00.000Z`
  for (const run_id of said) {
    const [command = '', minute = '', exit_code = null, error_code = null] = run_id.split(' ')
    stateDb.insert('run', {run_id, command, pid: 1, started_at: at(minute), exit_code, error_code})
  }
  const attempt = {started_at: at('10'), ended_at: at('20'), error_code}
  expect(findRunSince(stateDb, attempt)?.run_id).toBe(found)
})

test('the rate a run arrived at is remembered for its source for 24 hours', () => {
  const source = 'http://localhost/v1'
  for (const rate of [2.5, 1.25]) storeLearnt(stateDb, source, {ratePerSecond: rate, pausedUntil: 0}, world)
  expect(findLearnt(stateDb, source, later(24 * 3600 - 1))).toMatchObject({learntRate: 1.25})
  expect(findLearnt(stateDb, source, later(24 * 3600))).toBeUndefined()
  expect(findLearnt(stateDb, 'http://elsewhere/v1', later(60))).toBeUndefined()
})
