import {expect, test} from 'vitest'
import {claimRun, recordSlot} from '../../src/schedule/job-runs.ts'
import {serveSource} from '../../src/schedule/supervisor.ts'
import {requireWritable} from '../../src/store/data-folder.ts'
import {acquireLock} from '../../src/store/lock.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {createLab} from '../support/lab.ts'

test('a run that waits for its source for minutes gives its place to others, and takes it again as soon as it gets on', async () => {
  await using lab = await createLab()
  let now = Date.now()
  const world = {...lab.createWorld(), realClock: {...lab.createWorld().realClock, now: () => now}}
  requireWritable(lab.folder)
  using stateDb = openStateDb(lab.folder.stateDb)
  const source = serveSource(
    'one',
    {
      read: async () => ({
        config: lab.config,
        folder: lab.folder,
        jobs: [],
        environment: {env: {}, cwd: '.'},
      }),
      isTaken: () => false,
    },
    world,
  )
  source.tick(false)
  await source.looked()
  expect(source.countRuns()).toEqual({running: 0, waiting: 0})

  recordSlot(stateDb, {job: 'nightly', instant: now, state: 'queued', reason: null}, now)
  expect(claimRun(stateDb, now)?.job).toBe('nightly')
  using lock = acquireLock(stateDb, {runId: 'w_1', command: 'sync'}, world)
  lock.setProgress('walking: 300 deals')
  const after = (minutes: number) => {
    now += minutes * 60_000
    const {running, waiting} = source.countRuns()
    return running - waiting
  }
  expect([after(0), after(4), after(1), after(600)]).toEqual([1, 1, 0, 0])
  lock.setProgress('walking: 400 deals')
  expect([after(0), after(4), after(2)]).toEqual([1, 1, 0])
  // It works, however long: on a large model, or on what a walk has brought.
  lock.setProgress('applying')
  expect([after(0), after(600)]).toEqual([1, 1])
  await source.end()
})
