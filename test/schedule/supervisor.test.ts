import {closeSync, existsSync, openSync, rmSync, writeSync} from 'node:fs'
import {join} from 'node:path'
import {setImmediate as turn} from 'node:timers/promises'
import {expect, test} from 'vitest'
import {parseConfig} from '../../src/core/config.ts'
import {adoptRun, claimRun, endRun, recordSlot} from '../../src/schedule/job-runs.ts'
import {createSupervisor} from '../../src/schedule/supervisor.ts'
import {dataFolderAt, requireWritable} from '../../src/store/data-folder.ts'
import {acquireLock} from '../../src/store/runs.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {createWorldBy} from '../support/data.ts'
import {startInbox} from '../support/inbox.ts'
import {aJob} from '../support/jobs.ts'
import {createLab} from '../support/lab.ts'
import {until} from '../support/until.ts'

test('a run that waits minutes for its source yields its place to others, and retakes it once it progresses', async () => {
  await using lab = await createLab()
  let now = Date.now()
  const world = createWorldBy(() => now)
  requireWritable(lab.folder)
  using stateDb = openStateDb(lab.folder.stateDb)
  const supervisor = createSupervisor(
    {
      list: () => ['one'],
      read: () => ({config: lab.config, folder: lab.folder, jobs: []}),
      runs: 1,
    },
    world,
  )
  const [source] = supervisor.served()
  if (!source) throw new Error('no source is served')
  expect(source.countRuns()).toEqual({running: 0, waiting: 0})

  recordSlot(stateDb, {job: 'nightly', instant: now, state: 'queued', reason: null}, now)
  expect(claimRun(stateDb, now, ['nightly'])?.job).toBe('nightly')
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
  // A run that applies changes or builds counts as working, however long it takes.
  lock.setProgress('applying')
  expect([after(0), after(600)]).toEqual([1, 1])
  await source.end()
})

test('never more runs than allowed are active, and a source with many jobs does not starve others', async () => {
  await using lab = await createLab()
  const each = (name: string) => aJob({name, schedule: '* * * * * *', graceMinutes: 60})
  const jobs = {busy: ['one', 'two', 'three'].map(each), a: [each('each')], b: [each('each')]}
  const runs: Record<string, number> = {busy: 0, a: 0, b: 0}
  let now = Date.parse('2026-06-01T00:00:00Z')
  let [underWay, most] = [0, 0]
  const stop = new AbortController()
  const sleep = async (ms: number) => {
    now += ms
    for (let turns = 0; turns < 20; turns += 1) await turn()
    if (now >= Date.parse('2026-06-01T00:01:00Z')) stop.abort()
  }
  const world = {...lab.createWorld(), signal: stop.signal, realClock: {now: () => now, sleep}}
  const rootOf = (name: string) => join(lab.folder.root, name)
  const supervisor = createSupervisor(
    {
      list: () => Object.keys(jobs),
      read: (name) => ({
        config: {...lab.config, dataDir: rootOf(name)},
        folder: dataFolderAt(rootOf(name)),
        jobs: jobs[name as keyof typeof jobs],
        environment: {env: {}, cwd: name},
      }),
      runs: 2,
      async carryOut(args, {cwd = ''}) {
        const [job_run_id = 0, attempt = 0] = (args[args.indexOf('--claim') + 1] ?? '').split('.').map(Number)
        using stateDb = openStateDb(dataFolderAt(rootOf(cwd)).stateDb)
        const run = adoptRun(stateDb, {job_run_id, attempt}, now)
        underWay += 1
        most = Math.max(most, underWay)
        runs[cwd] = (runs[cwd] ?? 0) + 1
        const until = now + (cwd === 'busy' ? 3_000 : 2_000)
        while (now < until && !stop.signal.aborted) await turn()
        underWay -= 1
        if (run) endRun(stateDb, run, {exit_code: 0}, now)
        return {code: 0, signal: null}
      },
    },
    world,
  )
  await supervisor.run()
  expect(most).toBe(2)
  expect(runs.busy).toBeGreaterThan(10)
  expect(runs.busy).toBeLessThanOrEqual(2 * Math.min(runs.a ?? 0, runs.b ?? 0))
})

test('that no job can run is told once, without the state database that is locked or damaged and although the clock was ahead, and so is its end', async () => {
  await using lab = await createLab()
  await using inbox = await startInbox()
  requireWritable(lab.folder)
  const config = {...lab.config, ...parseConfig(inbox.env, {readFile: () => ''}), dataDir: lab.folder.root}
  const requireServed = () => supervisor.served().map(({requireOpen}) => requireOpen())
  const stop = new AbortController()
  let now = Date.now()
  let aheadMs = 10_000 * 24 * 3_600_000
  const sleep = async (ms: number) => {
    now += ms
    try {
      requireServed()
    } catch {
      // The clock is set right as soon as something fails.
      now -= aheadMs
      aheadMs = 0
    }
    await turn()
  }
  const world = {...lab.createWorld(), signal: stop.signal, realClock: {now: () => now, sleep}}
  const read = () => ({config, folder: lab.folder, jobs: []})
  const supervisor = createSupervisor({list: () => [''], read, runs: 1, patienceMs: 0}, world)
  const ended = supervisor.run()
  {
    using other = openStateDb(lab.folder.stateDb)
    other.db.exec('begin immediate')
    await until(() => inbox.mails.length > 0)
    expect(requireServed).toThrow('database is locked')
    other.db.exec('rollback')
  }
  await until(() => inbox.mails.length > 1)
  const db = requireServed()[0]?.stateDb.db
  const {rootpage} = db?.prepare("select rootpage from sqlite_schema where name = 'alarm'").get() ?? {}
  // Everything goes to the file, so that the spoilt page is read from there, as in a database too large for memory.
  db?.exec('pragma wal_checkpoint(truncate)')
  const file = openSync(lab.folder.stateDb, 'r+')
  writeSync(file, Buffer.alloc(4096, 'spoilt'), 0, 4096, (Number(rootpage) - 1) * 4096)
  closeSync(file)
  db?.exec('pragma shrink_memory')
  await until(() => inbox.mails.length > 2)
  expect(requireServed).toThrow('cannot be read')
  for (const end of ['', '-wal', '-shm']) rmSync(`${lab.folder.stateDb}${end}`, {force: true})
  for (let turns = 0; turns < 50; turns += 1) await turn()
  expect(existsSync(lab.folder.stateDb)).toBe(false)
  openStateDb(lab.folder.stateDb)[Symbol.dispose]()
  await until(() => inbox.mails.length > 3)
  requireServed()
  stop.abort()
  await ended
  expect(inbox.posts).toEqual([
    expect.stringMatching(/^\*No job is run \[\w+\]\*\n/),
    expect.stringMatching(/^\*Recovered: jobs are run\*\n\w+ had held since /),
    expect.stringMatching(/^\*No job is run \[STATE_UNREADABLE\]\*\n/),
    expect.stringMatching(/^\*Recovered: jobs are run\*\nSTATE_UNREADABLE had held since /),
  ])
})
