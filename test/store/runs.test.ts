import {afterEach, beforeEach, expect, test} from 'vitest'
import {ContractError} from '../../src/core/errors.ts'
import {acquireLock, findLockHolder} from '../../src/store/lock.ts'
import {findLastRun, findLastSuccess, listRuns, withRun} from '../../src/store/runs.ts'
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

test('a run is recorded with its outcome', async () => {
  const result = await withRun(data.folder.stateDb, 'sync', world, async () => ({
    outcome: 'released',
    release_id: 'x',
  }))
  expect(result).toEqual({outcome: 'released', release_id: 'x'})
  expect(findLockHolder(stateDb, world)).toBeUndefined()
  using again = openStateDb(data.folder.stateDb)
  expect(listRuns(again, 10)).toEqual([
    {
      run_id: expect.stringMatching(/^20260202T233000Z-[0-9a-f]{6}$/),
      command: 'sync',
      pid: process.pid,
      started_at: NOW,
      ended_at: NOW,
      exit_code: 0,
      outcome: 'released',
      error_code: null,
      error: null,
      summary: '{"outcome":"released","release_id":"x"}',
    },
  ])
})

test('the last run is the one that began last, even if the clock was set back', async () => {
  const run = (seconds: number, outcome: string) =>
    withRun(data.folder.stateDb, 'sync', later(seconds), async () => ({outcome}))
  await run(0, 'first')
  await run(-3600, 'second')
  expect(listRuns(stateDb, 10).map(({outcome}) => outcome)).toEqual(['second', 'first'])
  expect(findLastRun(stateDb, 'sync')?.outcome).toBe('second')
  expect(findLastSuccess(stateDb, 'sync')?.outcome).toBe('second')
})

const failRun = (error: unknown, at = world) =>
  failureOf(withRun(data.folder.stateDb, 'sync', at, () => Promise.reject(error)))

test('a failed run is recorded with exit code, error code and message, secrets masked', async () => {
  await failRun(
    new ContractError({code: 'SOURCE_ENVELOPE', problem: 'Answer to Bearer sk_live_abc123 has no list.'}),
  )
  const [run] = listRuns(stateDb, 10)
  expect(run).toMatchObject({exit_code: 7, outcome: 'failed', error_code: 'SOURCE_ENVELOPE', summary: null})
  expect(run?.error).toContain('has no list')
  expect(run?.error).not.toContain('abc123')
  expect(findLockHolder(stateDb, world)).toBeUndefined()
  const unplanned = new Error('who knows')
  expect(await failRun(unplanned, later(10))).toBe(unplanned)
  expect(listRuns(stateDb, 10)).toContainEqual(
    expect.objectContaining({exit_code: 1, error_code: 'UNEXPECTED'}),
  )
})

test('a run refused because of another leaves no record', async () => {
  using _ = acquireLock(stateDb, {runId: 'r1', command: 'sync'}, world)
  const refused = withRun(data.folder.stateDb, 'sync', world, async () => ({outcome: 'released'}))
  expect(await failureOf(refused)).toMatchObject({code: 'RUN_IN_PROGRESS'})
  expect(listRuns(stateDb, 10)).toEqual([])
})

test('runs are listed newest first, up to the limit', async () => {
  for (const seconds of [0, 10, 20])
    await withRun(data.folder.stateDb, `run ${seconds}`, later(seconds), async () => ({outcome: 'unchanged'}))
  expect(listRuns(stateDb, 2).map(({command}) => command)).toEqual(['run 20', 'run 10'])
})

test('the last success of a command ignores failures and other commands', async () => {
  await withRun(data.folder.stateDb, 'sync', world, async () => ({outcome: 'released'}))
  await withRun(data.folder.stateDb, 'replay', later(10), async () => ({outcome: 'released'}))
  await failureOf(withRun(data.folder.stateDb, 'sync', later(20), () => Promise.reject(new Error('no'))))
  expect(findLastSuccess(stateDb, 'sync')).toMatchObject({command: 'sync', started_at: NOW})
  expect(findLastSuccess(stateDb, 'build')).toBeUndefined()
})
