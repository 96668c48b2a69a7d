import {spawn} from 'node:child_process'
import {join} from 'node:path'
import {createInterface} from 'node:readline'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {newError} from '../../src/core/errors.ts'
import {createSilentLog} from '../../src/core/log.ts'
import type {ProcessEnd} from '../../src/core/process.ts'
import type {World} from '../../src/core/types.ts'
import {listHeld, readConditions} from '../../src/schedule/alarms.ts'
import {type Job, webhookJob} from '../../src/schedule/job.ts'
import {
  adoptRun,
  beginRun,
  endRun,
  isoOf,
  type JobRun,
  listAttempts,
  listLastAttempts,
} from '../../src/schedule/job-runs.ts'
import {createScheduler, decideRetry} from '../../src/schedule/scheduler.ts'
import {listSlots} from '../../src/schedule/slots.ts'
import {createRandom} from '../../src/service/portfolio.ts'
import {listRuns} from '../../src/store/runs.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {storeEvent} from '../../src/sync/webhook-events.ts'
import {anyRow, createWorldBy} from '../support/data.ts'
import {aJob, listJobRuns} from '../support/jobs.ts'
import {useFolder} from '../support/set-up.ts'

const MINUTE = 60_000
const HOUR = 60 * MINUTE
const DAY = 24 * HOUR
const START = Date.parse('2026-06-01T00:00:00Z')

const {root} = useFolder().folder
let now: number
let stateDbs: StateDb[]

beforeEach(() => {
  now = START
  stateDbs = []
})

afterEach(() => {
  for (const stateDb of stateDbs) stateDb[Symbol.dispose]()
})

const world = () => createWorldBy(() => now)

function openStateAt(name: string): StateDb {
  const stateDb = openStateDb(name === ':memory:' ? name : join(root, name))
  stateDbs.push(stateDb)
  return stateDb
}

type Bench = ReturnType<typeof aScheduler>

/** Creates a scheduler as in one process; runs end when the test says so. */
function aScheduler(jobs: Job[], stateDb = openStateAt('state.sqlite'), changes: Partial<World> = {}) {
  const started: string[] = []
  let finish: (end: ProcessEnd) => void = () => undefined
  let running: JobRun | undefined
  const scheduler = createScheduler(
    {
      stateDb,
      jobs,
      startRun: (run) => {
        started.push(`${run.job} ${run.slot}`)
        running = run
        return new Promise((resolve) => {
          finish = resolve
        })
      },
    },
    {...world(), ...changes},
  )
  const crash = async (end: ProcessEnd) => {
    finish(end)
    await scheduler.idle()
  }
  return {
    ...scheduler,
    stateDb,
    started,
    /** Sets the clock (`06-01T06:30`) and ticks. */
    tickAt(time: string) {
      now = Date.parse(`2026-${time}Z`)
      scheduler.tick()
    },
    watch(minutes: number) {
      for (const end = now + minutes * MINUTE; now < end; ) {
        now = Math.min(now + MINUTE, end)
        scheduler.tick()
      }
    },
    /** Ends the process of the current run without recording an end. */
    crash,
    async end(end?: Partial<Parameters<typeof endRun>[2]>) {
      if (running) endRun(stateDb, running, {exit_code: 0, ...end}, now)
      await crash({code: 0, signal: null})
    },
  }
}

/** Creates a scheduler that has just started the nightly run of June 1. */
function aRun(jobs = [aJob()], ...more: [stateDb?: StateDb, changes?: Partial<World>]): Bench {
  const scheduler = aScheduler(jobs, ...more)
  scheduler.tick()
  scheduler.tickAt('06-01T06:30')
  return scheduler
}

const watched = {config: {alarmMaxAgeHours: 26}, release: undefined, jobs: [{name: 'nightly'}]}
const shrunk = {exit_code: 8, error_code: 'GUARD_SHRINK'}

const lastRun = (stateDb: StateDb) => listJobRuns(stateDb, 1)[0]

const statesOf = ({stateDb}: Bench) =>
  listJobRuns(stateDb, 1000)
    .map(({slot, state}) => `${slot?.slice(0, 16)} ${state}`)
    .sort()

test('a slot runs once, when it is due; a job with a new schedule has slots from now on, a removed one none', async () => {
  const scheduler = aScheduler([aJob(), aJob({name: 'rates', schedule: '30 9 * * *'})])
  scheduler.tick()
  scheduler.tickAt('06-01T06:29:59')
  expect(scheduler.started).toEqual([])
  scheduler.tickAt('06-01T06:30')
  scheduler.tick()
  await scheduler.end()
  scheduler.tick()
  expect(scheduler.started).toEqual(['nightly 2026-06-01T06:30:00.000Z'])
  const changed = aScheduler([aJob({schedule: '0 8 * * *'})])
  changed.tickAt('06-01T11:00')
  changed.tickAt('06-01T15:00')
  changed.tickAt('06-02T12:30')
  expect(changed.started).toEqual(['nightly 2026-06-01T12:00:00.000Z'])
})

test('a slot that fell due while its job was disabled is not made up for', () => {
  for (const enabled of [true, false, true]) {
    const scheduler = aScheduler([aJob({enabled})])
    scheduler.tick()
    now += 4 * HOUR
    scheduler.tick()
    expect(statesOf(scheduler)).toEqual([])
  }
})

test('the run of a job whose file is wrong waits until it is right, and others run meanwhile', async () => {
  const scheduler = aRun([aJob(), aJob({name: 'rates', schedule: '30 9 * * *'})])
  await scheduler.end({exit_code: 6, not_before: now + MINUTE})
  const fault = newError('JOB_INVALID', 'Wrong.')
  const wrong = aScheduler([
    {...webhookJob, name: 'nightly', enabled: false, fault},
    aJob({name: 'rates', schedule: '30 9 * * *'}),
  ])
  wrong.tickAt('06-01T13:30')
  await wrong.end()
  wrong.tickAt('06-01T13:40')
  expect(wrong.started).toEqual(['rates 2026-06-01T13:30:00.000Z'])
  const right = aScheduler([aJob({graceMinutes: 600})])
  right.tickAt('06-01T13:50')
  expect(right.started).toEqual(['nightly 2026-06-01T06:30:00.000Z'])
})

test('while nothing is due, the state database is written once a minute, not on every tick', () => {
  const scheduler = aScheduler([aJob(), aJob({name: 'rates', schedule: '30 3 * * *'})])
  const reader = openStateAt('state.sqlite')
  const readVersion = () => reader.db.prepare('pragma data_version').get()?.data_version
  scheduler.tick()
  const before = readVersion()
  for (now += 1000; now < START + MINUTE; now += 1000) scheduler.tick()
  expect(readVersion()).toBe(before)
  scheduler.tick()
  expect(readVersion()).not.toBe(before)
})

test.each([
  ['the same jobs', {}, ['nightly 06:30']],
  ['another schedule of a job', {schedule: '0 3 * * *'}, ['nightly 06:30', 'nightly 07:00']],
  ['another job due while the first runs', {name: 'rates'}, ['nightly 06:30', 'rates 06:30']],
])(
  'two processes on one folder, the second with %s, run each slot once between them, one at a time',
  async (_, change, expected) => {
    const both = [aScheduler([aJob()]), aScheduler([aJob(change)])]
    for (now = START + 6 * HOUR; now < START + 8 * HOUR; now += 10 * MINUTE) {
      for (const one of both) one.tick()
      expect(both.filter((one) => one.current()).length).toBeLessThan(2)
      for (const one of both) await one.end()
    }
    const started = both.flatMap((one) => one.started).sort()
    expect(started.map((run) => run.replace(/ .*T(.{5}).*/, ' $1'))).toEqual(expected)
  },
)

test('a server that lacks a job leaves its run, which waits within its grace, to the server that has it', async () => {
  const [one, other] = [aScheduler([aJob(), aJob({name: 'rates'})]), aScheduler([])]
  const watch = (until: number) => {
    for (; now < until; now += 10 * MINUTE) for (const server of [one, other]) server.tick()
  }
  watch(START + 9 * HOUR)
  await one.end()
  watch(START + 9 * HOUR + MINUTE)
  expect(one.started).toEqual(['nightly', 'rates'].map((job) => `${job} 2026-06-01T06:30:00.000Z`))
})

test('a run that waited when its job was removed is skipped after an hour, and says why', () => {
  const scheduler = aRun([aJob(), aJob({name: 'rates'})])
  const without = aScheduler([aJob()], scheduler.stateDb)
  const findRates = () => listJobRuns(scheduler.stateDb, 2).find(({job}) => job === 'rates')
  without.tickAt('06-01T07:30')
  expect(findRates()).toMatchObject({state: 'queued'})
  without.tickAt('06-01T07:31')
  expect(findRates()).toMatchObject({state: 'skipped', reason: 'no server has the job'})
})

test.each([
  ['400 days', 400 * DAY],
  ['a day', DAY],
])(
  'a clock that was ahead by %s for an hour silences no job, runs no slot twice and is reported',
  async (_, ahead) => {
    const jobs = [aJob(), aJob({name: 'often', schedule: '0 * * * *', catchUp: 'none'})]
    const warnings: unknown[] = []
    const log = Object.assign(createSilentLog(), {warn: (fields: unknown) => warnings.push(fields)})
    const scheduler = aScheduler(jobs, openStateAt(':memory:'), {log})
    const passUntil = async (end: number, offset = 0) => {
      for (; now - offset < end; now += 2 * MINUTE) {
        scheduler.tick()
        while (scheduler.current()) {
          await scheduler.end()
          scheduler.tick()
        }
      }
    }
    await passUntil(START + 5.5 * HOUR)
    now += ahead
    await passUntil(START + 6.6 * HOUR, ahead)
    const rows = scheduler.stateDb.db.prepare('select count(*) as n from job_run').get()
    expect(Number(rows?.n)).toBeLessThan(2_500)
    expect(warnings).toEqual([])

    now -= ahead
    const back = now
    await passUntil(START + DAY + 8 * HOUR)
    expect(warnings).toMatchObject([{code: 'CLOCK_STEPPED'}])
    expect(new Set(scheduler.started).size).toBe(scheduler.started.length)
    const nightly = [1, 2].map((day) => `nightly 2026-06-0${day}T06:30:00.000Z`)
    expect(scheduler.started).toEqual(expect.arrayContaining(nightly))
    for (const {name, ...schedule} of jobs) {
      const found = scheduler.stateDb.db
        .prepare('select slot from job_run where job = ? and slot > ? and slot <= ? order by slot')
        .all(name, new Date(START + 5.5 * HOUR).toISOString(), new Date(now).toISOString())
      const due = listSlots(schedule, START + 5.5 * HOUR, now - 1)
      expect(found.map(({slot}) => Date.parse(String(slot)))).toEqual(due)
    }
    const ends = listLastAttempts(scheduler.stateDb).map(({ended_at}) => Date.parse(ended_at ?? ''))
    expect(Math.max(...ends)).toBeLessThanOrEqual(now)
    const later = scheduler.stateDb.db.prepare(`select job from job_run where ended_at > ? and slot < ?`)
    expect(later.all(new Date(now).toISOString(), new Date(back).toISOString())).toEqual([])
  },
)

test('a run that failed under a clock that was ahead keeps its number, attempts and log; its slot runs when it is due', async () => {
  const scheduler = aScheduler([aJob()])
  scheduler.tick()
  const fail = () => scheduler.crash({code: 5, signal: null, log: 'loantape: No. [SOURCE_UNAUTHORIZED]'})
  scheduler.tickAt('06-11T06:29')
  scheduler.tickAt('06-11T06:30')
  const {job_run_id = 0} = scheduler.current() ?? {}
  await fail()
  scheduler.tickAt('06-01T06:29')
  scheduler.tickAt('06-01T06:31')
  scheduler.tick()
  await scheduler.end()
  const {stateDb} = scheduler
  expect(listAttempts(stateDb, job_run_id)).toMatchObject([{error_code: 'SOURCE_UNAUTHORIZED'}])
  expect(listJobRuns(stateDb, 100).filter(({attempt}) => attempt > 0)).toMatchObject([
    {job_run_id: job_run_id + 1, slot: '2026-06-01T06:30:00.000Z', state: 'done'},
    {job_run_id, slot: null, state: 'failed', reason: 'due by a clock that was ahead'},
  ])
  scheduler.tickAt('06-11T06:30')
  expect(scheduler.started.at(-1)).toBe('nightly 2026-06-11T06:30:00.000Z')
})

test('a run that is to be tried again by a clock that was ahead waits no longer than until the clock is right', async () => {
  const scheduler = aRun()
  now += 5 * HOUR
  scheduler.tick()
  await scheduler.end({exit_code: 4, error_code: 'RUN_IN_PROGRESS', not_before: now + MINUTE})
  now -= 5 * HOUR
  scheduler.watch(3)
  expect(scheduler.current()).toMatchObject({job: 'nightly', attempt: 2})
})

test('a run that failed while the clock was behind is the last of its job, so that people are told', async () => {
  const scheduler = aScheduler([aJob()])
  scheduler.tick()
  scheduler.tickAt('06-01T06:30')
  await scheduler.end()
  scheduler.tickAt('06-02T06:30')
  now -= 400 * DAY
  await scheduler.end({exit_code: 2, error_code: 'CLOCK_BACKWARDS'})
  scheduler.tickAt('06-02T06:31')
  const last = {error_code: 'CLOCK_BACKWARDS', ended_at: '2026-06-02T06:30:00.000Z'}
  expect(listLastAttempts(scheduler.stateDb)).toMatchObject([last])
})

test('a run that is given up for a later slot has failed when it did, not after somebody has done it by hand', async () => {
  const {stateDb, ...scheduler} = aRun([aJob({graceMinutes: 2000})])
  await scheduler.end({exit_code: 6, error_code: 'SOURCE_UNREACHABLE', not_before: now + MINUTE})
  now += HOUR
  endRun(stateDb, beginRun(stateDb, 'nightly', now), {exit_code: 0}, now)
  scheduler.tickAt('06-02T06:30')
  const given = {state: 'failed', reason: 'a later slot runs instead', ended_at: '2026-06-01T06:30:00.000Z'}
  expect(listJobRuns(stateDb, 3)).toContainEqual(expect.objectContaining(given))
  expect(listLastAttempts(stateDb)).toMatchObject([{exit_code: 0}])
})

const receive = ({stateDb}: Bench, eventId: string) =>
  storeEvent(stateDb, {eventId, type: 'deal.updated', dealId: 'deal_1'}, now)

test('events are applied together, once none has come for a while or the first has waited long', async () => {
  const scheduler = aScheduler([])
  receive(scheduler, 'evt_1')
  scheduler.tickAt('06-01T00:00:02')
  expect(scheduler.started).toEqual([])
  scheduler.tickAt('06-01T00:00:03')
  scheduler.tickAt('06-01T00:00:04')
  expect(listJobRuns(scheduler.stateDb, 9)).toMatchObject([{slot: '2026-06-01T00:00:03.000Z'}])
  await scheduler.end()
  scheduler.stateDb.db.exec('delete from webhook_event')
  for (now = START + HOUR; now < START + HOUR + MINUTE; now += 2000) {
    receive(scheduler, `evt_of_${now}`)
    scheduler.tick()
  }
  expect(scheduler.started).toHaveLength(1)
  scheduler.tickAt('06-01T01:01')
  expect(scheduler.started).toHaveLength(2)
})

test('events whose run failed wait for half an hour, or until somebody runs them', async () => {
  const scheduler = aScheduler([])
  receive(scheduler, 'evt_1')
  scheduler.tickAt('06-01T00:00:05')
  await scheduler.end(shrunk)
  scheduler.tickAt('06-01T00:00:06')
  receive(scheduler, 'evt_2')
  scheduler.tickAt('06-01T00:29')
  expect(scheduler.started).toHaveLength(1)
  scheduler.tickAt('06-01T00:31')
  expect(scheduler.started).toHaveLength(2)
  await scheduler.end(shrunk)
  endRun(scheduler.stateDb, beginRun(scheduler.stateDb, webhookJob.name, now), {exit_code: 0}, now + MINUTE)
  scheduler.tickAt('06-01T00:33')
  expect(scheduler.started).toHaveLength(3)
  for (const how of [shrunk, {exit_code: 0}]) {
    const at = new Date(now).toISOString()
    const run = {run_id: `r ${how.exit_code}`, command: 'events', pid: 1, started_at: at, ended_at: at}
    scheduler.stateDb.insert('run', {...run, ...how})
    if (how === shrunk) await scheduler.end(shrunk)
    scheduler.tickAt('06-01T00:34')
    expect(scheduler.started, `${how.exit_code}`).toHaveLength(how === shrunk ? 3 : 4)
  }
})

test('a machine that starts with a clock behind, and sets it right at once, keeps every run, slot and alarm as it was', async () => {
  const {stateDb, ...before} = aRun()
  await before.end()
  const read = () =>
    ['job_run', 'job_attempt', 'job_watch'].map((name) => stateDb.all(anyRow, `select * from ${name}`))
  const server = aScheduler([aJob()], stateDb)
  const kept = read()
  server.tickAt('01-01T00:00')
  expect(server.isClockBehind()).toBe(true)
  server.tickAt('06-01T06:30')
  expect(server.isClockBehind()).toBe(false)
  expect(read()).toEqual(kept)
})

test('an event received under a clock that was ahead is processed once the clock is right again, and no alarm begins later', () => {
  const scheduler = aScheduler([aJob()])
  scheduler.tick()
  now = START + 400 * DAY
  scheduler.tick()
  receive(scheduler, 'evt_1')
  scheduler.stateDb.insert('alarm', {name: 'rates', state: 'faulty', since: isoOf(now)})
  scheduler.tickAt('06-01T01:00')
  scheduler.tickAt('06-01T01:02')
  scheduler.tickAt('06-01T01:03')
  expect(scheduler.started.at(-1)).toMatch(/^webhooks 2026-06-01T01:03/)
  expect(listHeld(scheduler.stateDb).get('rates')?.since).toBe('2026-06-01T01:02:00.000Z')
})

test('a slot that falls due during another run waits its turn, and a constantly due job does not block it', async () => {
  const busy = {schedule: '* * * * *', graceMinutes: 5}
  const scheduler = aScheduler([aJob({...busy, name: 'a'}), aJob({...busy, name: 'b'})])
  scheduler.tick()
  for (let minute = 1; minute <= 6; minute += 1) {
    now = START + minute * MINUTE
    scheduler.tick()
    scheduler.tick()
    expect(scheduler.started).toHaveLength(minute)
    await scheduler.end()
  }
  expect(scheduler.started.map((run) => run[0])).toEqual(['a', 'b', 'a', 'b', 'a', 'b'])
})

test.each([
  ['latest', ['06-03T06:30 skipped', '06-04T06:30 running']],
  ['each', ['06-03T06:30 running', '06-04T06:30 queued']],
  ['none', ['06-03T06:30 skipped', '06-04T06:30 skipped']],
] as const)('slots missed while down: catch up %s', (catchUp, expected) => {
  const jobs = [aJob({catchUp, graceMinutes: 2000})]
  aScheduler(jobs).tick()
  const restarted = aScheduler(jobs)
  restarted.tickAt('06-04T12:00')
  // Two slots are older than the grace period.
  const states = ['06-01T06:30 skipped', '06-02T06:30 skipped', ...expected]
  expect(statesOf(restarted)).toEqual(states.map((state) => `2026-${state}`))
})

test('the log says when a run begins and when it is done', async () => {
  const said: unknown[] = []
  const log = Object.assign(createSilentLog(), {info: (...one: unknown[]) => said.push(one)})
  const scheduler = aRun(undefined, undefined, {log})
  await scheduler.crash({code: 0, signal: null})
  const which = {job: 'nightly', slot: expect.any(String), attempt: 1}
  expect(said).toEqual([
    [which, 'run begins'],
    [{...which, duration_ms: 0}, 'run is done'],
  ])
})

test('the end of each attempt is kept with its last log lines, as long as its run', async () => {
  const scheduler = aRun()
  await scheduler.crash({code: null, signal: 'SIGKILL', log: 'out of memory\n'})
  scheduler.tick()
  now += MINUTE
  await scheduler.end()
  const readAttempts = () => listAttempts(scheduler.stateDb, 1)
  expect(readAttempts()).toMatchObject([
    {attempt: 1, error_code: 'JOB_CRASHED', exit_code: null, log: 'out of memory\n'},
    {attempt: 2, error_code: null, exit_code: 0, ended_at: '2026-06-01T06:31:00.000Z'},
  ])
  scheduler.tickAt('06-02T06:30')
  await scheduler.end()
  now += 91 * DAY
  scheduler.tick()
  expect(readAttempts()).toEqual([])
})

/** Ends the current run's process before it has begun its run, and waits for the next attempt. */
async function failEarly(scheduler: Bench, code: number, log = ''): Promise<void> {
  await scheduler.crash({code, signal: null, log})
  now += MINUTE
  scheduler.tick()
}

test.each([
  [6, 'SECRET_COMMAND', 2],
  [4, 'STATE_BUSY', 2],
  [2, 'STORES_DISAGREE', 1],
  [1, 'DISK_FULL', 1],
])(
  'a process that fails with exit code %i and %s before it reaches its run is repeated where waiting helps',
  async (exit_code, error_code, starts) => {
    const errors: unknown[] = []
    const logged = Object.assign(createSilentLog(), {error: (fields: unknown) => errors.push(fields)})
    const scheduler = aRun(undefined, undefined, {log: logged})
    const log = `loantape: Another. [OTHER]\nloantape: One line\nand another. [${error_code}]\nan agent of a vault`
    await failEarly(scheduler, exit_code, log)
    const error = 'One line\nand another.'
    expect(listAttempts(scheduler.stateDb, 1)).toMatchObject([{exit_code, error_code, error, log}])
    const failed = {job: 'nightly', slot: '2026-06-01T06:30:00.000Z', attempt: 1, code: error_code}
    expect(errors).toEqual([{...failed, reason: error}])
    expect(scheduler.started).toHaveLength(starts)
  },
)

test.each([
  [1, 'JOB_CRASHED', null],
  [13, 'JOB_CRASHED', null],
  [0, 'JOB_CRASHED', null],
  [6, null, 6],
])('a process that ends with exit code %i and no message: %s', async (code, error_code, exit_code) => {
  const scheduler = aRun()
  await failEarly(scheduler, code)
  expect(listAttempts(scheduler.stateDb, 1)).toMatchObject([{error_code, exit_code}])
  expect(scheduler.started).toHaveLength(2)
})

test.each([
  ['a source that does not answer: after growing pauses, within the grace', 6, 90, [1, 3, 7, 15, 31, 61]],
  [
    'a taken warehouse: each minute, at least an hour',
    4,
    0,
    Array.from({length: 60}, (_, index) => index + 1),
  ],
  ...[3, 5, 7, 8].map((code) => ['what needs a person: never', code, 90, []] as const),
] as const)('a failed run is tried again for %s', async (_, exit_code, graceMinutes, expected) => {
  const scheduler = aRun([aJob({graceMinutes})], openStateAt(':memory:'))
  const again: number[] = []
  for (let minute = 1; minute <= 120; minute += 1) {
    if (scheduler.current()) await failEarly(scheduler, exit_code, 'loantape: No. [SOURCE_FAILING]')
    else scheduler.watch(1)
    if (scheduler.current()) again.push(minute)
  }
  expect(again).toEqual(expected)
})

test('what somebody started by hand, or has no job any more, is not tried again', () => {
  const slot = new Date(START).toISOString()
  const end = {exit_code: 6, error_code: 'SOURCE_FAILING'}
  expect(decideRetry(aJob(), {slot, attempt: 1}, end, START)).toBe(START + MINUTE)
  expect(decideRetry(aJob(), {slot: null, attempt: 1}, end, START)).toBeNull()
  expect(decideRetry(undefined, {slot, attempt: 1}, end, START)).toBeNull()
})

test('a run that is stopped with its server is run again by the next; only crashes count towards the three, not a taken warehouse', async () => {
  const jobs = [aJob()]
  const stopping = new AbortController()
  const stopped = aRun(jobs, undefined, {signal: stopping.signal})
  for (let attempt = 1; attempt <= 3; attempt += 1)
    await failEarly(stopped, 4, 'loantape: Taken. [RUN_IN_PROGRESS]')
  stopping.abort()
  await stopped.crash({code: null, signal: 'SIGKILL'})
  const next = aScheduler(jobs)
  for (let tick = 0; tick < 5; tick += 1) {
    next.tick()
    if (next.current()) await next.crash({code: null, signal: 'SIGKILL'})
  }
  expect(next.started).toHaveLength(3)
  const ends = listAttempts(next.stateDb, 1).map(({error_code}) => error_code)
  expect(ends.slice(3)).toEqual(['INTERRUPTED', 'JOB_CRASHED', 'JOB_CRASHED', 'JOB_CRASHED'])
  const error = expect.stringMatching(
    /^Its process was killed by SIGKILL\. .* intact; .* Read the log of that time/,
  )
  const crashed = {error_code: 'JOB_CRASHED', error}
  expect(lastRun(next.stateDb)).toMatchObject({state: 'failed', attempt: 7, ...crashed})
})

test('a run whose end cannot be stored ends on a later tick, and blocks nobody forever', async () => {
  const scheduler = aRun()
  scheduler.stateDb.db.exec('pragma query_only = on')
  await scheduler.crash({code: null, signal: 'SIGKILL'})
  expect(() => scheduler.tick()).toThrow(/readonly/)
  scheduler.stateDb.db.exec('pragma query_only = off')
  scheduler.tick()
  expect(scheduler.started).toHaveLength(2)
  expect(lastRun(scheduler.stateDb)).toMatchObject({state: 'running', attempt: 2})
})

test('a run whose state database was lost meanwhile ends with it, and the next slots of a new one run', async () => {
  const scheduler = aRun()
  scheduler.stateDb.db.exec('delete from job_run; delete from job_watch')
  await scheduler.crash({code: 2, signal: null})
  scheduler.tick()
  scheduler.tickAt('06-02T06:30')
  expect(scheduler.started).toHaveLength(2)
  expect(listAttempts(scheduler.stateDb, 1)).toEqual([])
})

/** Starts a run in a process that hangs and ignores requests to stop. */
async function aDeafRun(timeoutMinutes = 30) {
  const scheduler = aRun([aJob({timeoutMinutes})])
  const code = `process.on('SIGTERM', () => console.log('asked')); setInterval(() => {}, 1000); console.log('up')`
  const child = spawn(process.execPath, ['-e', code], {stdio: ['ignore', 'pipe', 'inherit']})
  const ended = new Promise<ProcessEnd>((resolve) => {
    child.once('exit', (code, signal) => resolve({code, signal}))
  })
  const said = createInterface({input: child.stdout})[Symbol.asyncIterator]()
  expect((await said.next()).value).toBe('up')
  adoptRun(scheduler.stateDb, {job_run_id: 1, attempt: 1}, now, child.pid)
  return {scheduler, child, said, ended}
}

test('a run that hangs is asked to stop after its timeout and killed ten seconds later; its slot fails, the next runs', async () => {
  const {scheduler, said, ended} = await aDeafRun()
  scheduler.watch(30 - 1 / MINUTE)
  now += 1
  for (let tick = 0; tick < 10; tick += 1) {
    scheduler.tick()
    now += 1000
  }
  // The first word after `up`: the process was not asked to stop too early, nor killed before ten seconds had passed.
  expect((await said.next()).value).toBe('asked')
  expect(lastRun(scheduler.stateDb)).toMatchObject({state: 'running'})
  scheduler.tick()
  const end = await ended
  expect(end).toEqual({code: null, signal: 'SIGKILL'})
  await scheduler.crash(end)
  expect(lastRun(scheduler.stateDb)).toMatchObject({
    state: 'failed',
    attempt: 1,
    error_code: 'JOB_TIMEOUT',
    error: expect.stringContaining('longer than its timeout of 30 minutes'),
  })
  const title = 'Job nightly took too long and was ended [JOB_TIMEOUT]'
  const told = expect.objectContaining({name: 'job nightly', state: 'JOB_TIMEOUT', title})
  expect(readConditions(scheduler.stateDb, watched, now)).toContainEqual(told)
  now += DAY
  scheduler.tick()
  expect(scheduler.started).toEqual(['nightly 2026-06-01T06:30:00.000Z', 'nightly 2026-06-02T06:30:00.000Z'])
})

test.each([
  ['the server that started it is gone', [aJob({timeoutMinutes: 30})], 30, 0],
  ['its job is, too: after the usual time', [], 240, 0],
  ['the clock is set back once it was asked', [aJob({timeoutMinutes: 30})], 30, 5 * HOUR],
])('a run that hangs is ended even if %s', async (_, jobs, minutes, backMs) => {
  const {said, ended} = await aDeafRun()
  const next = aScheduler(jobs)
  next.watch(minutes)
  expect((await said.next()).value).toBe('asked')
  now -= backMs
  if (backMs > 0) next.watch(minutes + 5)
  now += 10_000
  next.tick()
  expect(await ended).toEqual({code: null, signal: 'SIGKILL'})
  expect(lastRun(next.stateDb)).toMatchObject({state: 'failed', error_code: 'JOB_TIMEOUT'})
})

test('a run is ended after the time of its own job, even if another server of the machine lacks that job', async () => {
  const {scheduler, said, child} = await aDeafRun(300)
  const other = aScheduler([])
  scheduler.watch(290)
  other.tick()
  expect(lastRun(other.stateDb)).toMatchObject({state: 'running'})
  scheduler.watch(10)
  expect((await said.next()).value).toBe('asked')
  child.kill('SIGKILL')
})

test('the time for which the machine slept, or by which its clock was stepped, is no time of a run', async () => {
  const {scheduler, child, said, ended} = await aDeafRun()
  const other = aScheduler([aJob({timeoutMinutes: 30})])
  scheduler.watch(20)
  now += 5 * HOUR
  other.tick()
  scheduler.watch(9)
  expect(lastRun(scheduler.stateDb)).toMatchObject({state: 'running'})
  scheduler.watch(1)
  expect((await said.next()).value).toBe('asked')
  child.kill('SIGKILL')
  await scheduler.crash(await ended)
  expect(lastRun(scheduler.stateDb)).toMatchObject({state: 'failed', error_code: 'JOB_TIMEOUT'})
})

test('what failed in a run during which the machine slept can be done by hand', async () => {
  const {stateDb, ...scheduler} = aRun()
  const sync = (exit_code: number, error_code: string | null, started_at: string) =>
    stateDb.insert('run', {
      ...{run_id: `r ${exit_code}`, command: 'sync', pid: 1, started_at, ended_at: isoOf(now)},
      ...{exit_code, error_code, error: error_code},
    })
  now += HOUR
  scheduler.tick()
  const refused = {exit_code: 5, error_code: 'SOURCE_UNAUTHORIZED', error: 'No.'}
  sync(5, refused.error_code, isoOf(now - HOUR))
  await scheduler.end(refused)
  const find = () => readConditions(stateDb, watched, now).find(({name}) => name === 'job nightly')?.state
  expect(find()).toBe('SOURCE_UNAUTHORIZED')
  sync(0, null, isoOf(now))
  expect(find()).toBe('ok')
})

test('after 90 days a run is forgotten but the last of its job, and a command that ended well but syncs and the last of each', () => {
  const scheduler = aScheduler([aJob()])
  const {stateDb} = scheduler
  scheduler.tick()
  for (const job of ['nightly', webhookJob.name, 'yearly'])
    for (const exit_code of [0, 1]) endRun(stateDb, beginRun(stateDb, job, now), {exit_code}, now)
  const times = {pid: 1, started_at: isoOf(now), ended_at: isoOf(now)}
  for (const command of ['sync', 'events'])
    for (const [index, exit_code] of [0, 6, 0].entries())
      stateDb.insert('run', {run_id: `${command} ${index}`, command, ...times, exit_code})
  const listIds = () => listRuns(stateDb, 100).map(({run_id}) => run_id)
  now += 89 * DAY
  scheduler.tick()
  expect(listIds()).toHaveLength(6)
  now += 2 * DAY
  scheduler.tick()
  expect(listIds()).toEqual(['events 2', 'events 1', 'sync 2', 'sync 1', 'sync 0'])
  const old = listJobRuns(stateDb, 100).filter(({slot}) => slot === null)
  expect(old.map(({job, exit_code}) => [job, exit_code])).toEqual([
    ['yearly', 1],
    ['yearly', 0],
    ['webhooks', 1],
    ['nightly', 1],
  ])
})

test('a year in which the scheduler sleeps, is busy and dies: every due slot ran once or is recorded as skipped', async () => {
  const timeZone = 'Australia/Lord_Howe'
  const jobs = [
    aJob({timeZone}),
    aJob({name: 'six-hourly', schedule: '0 */6 * * *', timeZone, catchUp: 'none', graceMinutes: 30}),
    aJob({name: 'month-end', schedule: '30 1 1-10 * *', timeZone, catchUp: 'each', graceMinutes: 4000}),
  ]
  const end = START + 365 * DAY
  let scheduler = aScheduler(jobs, openStateAt(':memory:'))
  // Keeps the rows that are removed after 90 days, so that they count here, too.
  scheduler.stateDb.db.exec(
    `create table forgotten as select job, slot, state from job_run limit 0;
     create trigger keep before delete on job_run
     begin insert into forgotten values (old.job, old.slot, old.state); end`,
  )
  scheduler.tick()
  const random = createRandom('a year')
  while (now < end) {
    now += random.integer(0, random.chance(0.1) ? 5 * DAY : 20 * HOUR)
    scheduler.tick()
    if (scheduler.current() && random.chance(0.9)) await scheduler.end()
    if (random.chance(0.98)) continue
    // Another process takes over the state database of a killed one.
    scheduler.stateDb.db.exec(`update job_run set pid = 4000000 where state = 'running'`)
    scheduler = aScheduler(jobs, scheduler.stateDb)
    scheduler.tick()
  }
  const runs = scheduler.stateDb.db
    .prepare('select job, slot, state from job_run union all select job, slot, state from forgotten')
    .all()
  for (const job of jobs) {
    const found = runs.filter(({job: name}) => name === job.name).map(({slot}) => Date.parse(String(slot)))
    expect(found.sort((a, b) => a - b)).toEqual(listSlots(job, START, now))
  }
  expect(runs.filter(({state: is}) => is === 'queued').length).toBeLessThan(10)
})
