import {z} from 'zod'
import {DAY_MS} from '../core/clock.ts'
import {codeOf, EXIT_CODES, messageOf, tolerate} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {findComplaint, HOST, type ProcessEnd} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {findRunSince} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {listWaitingEvents} from '../sync/webhook-events.ts'
import {findJob, type Job, webhookJob} from './job.ts'
import {
  type AttemptEnd,
  claimRun,
  describeTimeout,
  endAs,
  endRun,
  hasPendingRun,
  isOverdue,
  isoOf,
  type JobRun,
  listAttempts,
  listLastAttempts,
  listQueuedRuns,
  listRunning,
  recordSlot,
} from './job-runs.ts'
import {listSlots} from './slots.ts'

/**
 * Plans due slots and runs them, one at a time. Its state is in the state database: several can share the slots, and any can die.
 * @param tools runs of `jobs` whose files are wrong wait; `startRun` resolves when the process of a run has ended
 */
export function createScheduler(
  tools: {stateDb: StateDb; jobs: readonly Job[]; startRun: (run: JobRun) => Promise<ProcessEnd>},
  world: World,
) {
  const {stateDb, startRun} = tools
  const {on: jobs = [], off = []} = Object.groupBy(tools.jobs, ({enabled, fault}) =>
    enabled || fault ? 'on' : 'off',
  )
  // Once enabled again, a job has slots from then on.
  for (const {name} of off) stateDb.run('delete from job_watch where job = ?', [name])
  let current: JobRun | undefined
  let idle: Promise<void> = Promise.resolve()
  /** Kept until the state database has stored how the run ended. */
  let recordEnd: (() => void) | undefined
  /** When each overdue attempt was asked to stop. A second SIGTERM would end it before it records its end. */
  const asked = new Map<string, number>()
  /** Since when the clock has been behind what was planned. */
  let behindSince: number | undefined
  /** Another server may have another schedule for a job. */
  const watches: Watches = new Map()

  async function carryOut(run: JobRun): Promise<void> {
    const which = {job: run.job, slot: run.slot, attempt: run.attempt}
    const begunAt = world.realClock.now()
    world.log.info(which, 'run begins')
    const {end, log, code} = await startRun(run).then(
      (ended) => ({...ended, end: describeEnd(ended)}),
      (error: unknown) => ({
        end: endAs(CRASHED, `Its process did not start: ${messageOf(error)} (${codeOf(error)}).`),
        log: undefined,
        code: null,
      }),
    )
    // Logged here too, because the run's own log may name neither job nor source.
    if (code !== 0) world.log.error({...which, code: end.error_code, reason: end.error}, 'run failed')
    else world.log.info({...which, duration_ms: world.realClock.now() - begunAt}, 'run is done')
    recordEnd = () => {
      const now = world.realClock.now()
      if (asked.has(attemptOf(run))) endRun(stateDb, run, describeTimeout(findLimits(run)), now)
      else endFailed(run, world.signal.aborted ? {...end, error_code: 'INTERRUPTED'} : end, now)
      if (log !== undefined) storeAttemptLog(stateDb, run, log)
      current = undefined
      recordEnd = undefined
    }
    try {
      recordEnd()
    } catch (error) {
      // The disk is full or the state database is busy: a later tick records the end.
      world.log.error(
        {job: run.job, code: codeOf(error), reason: messageOf(error)},
        'the end of a run could not be recorded yet',
      )
    }
  }

  /** Has no effect if the process recorded a result. */
  function endFailed(run: JobRun, end: AttemptEnd, now: number): void {
    const crashes = listAttempts(stateDb, run.job_run_id).filter((one) => one.error_code === CRASHED).length
    const not_before = decideRetry(findJob(jobs, run.job), {...run, crashes}, end, now)
    endRun(stateDb, run, {...end, not_before}, now)
  }

  /** A default if the job has been disabled, removed or renamed meanwhile. */
  const findLimits = (run: JobRun) => findJob(jobs, run.job) ?? webhookJob

  /** Ends runs whose process is dead. Stops, then kills, overdue runs on this machine, even if another process started them. */
  function endLost(now: number): void {
    // Time without a heartbeat does not count, since the machine slept. A heartbeat in the future is reset to now, so that a dead
    // process becomes stale.
    stateDb.run(
      `update job_run set heartbeat_at = ?1, started_at = case when ?1 - heartbeat_at <= ${JUMP_MS} then started_at
         else strftime('%Y-%m-%dT%H:%M:%fZ', started_at, format('%.3f seconds', (?1 - heartbeat_at) / 1000.0)) end
       where state = 'running' and (host = ?2 or heartbeat_at > ?1)`,
      [now, HOST],
    )
    for (const {isAlive, pid, host, ...run} of listRunning(stateDb, now)) {
      const job = findLimits(run)
      if (!isAlive) {
        if (run.job_run_id !== current?.job_run_id)
          endFailed(run, endAs(CRASHED, 'Its process is gone and recorded no result.'), now)
        continue
      }
      // Until its process has started, a run has the server's own pid.
      if (pid === process.pid || host !== HOST || !isOverdue(job, run, now)) continue
      // The server that has the job knows its limit.
      if (!findJob(jobs, run.job) && listWatched(stateDb, now).includes(run.job)) continue
      const attempt = attemptOf(run)
      const askedAt = asked.get(attempt)
      if (askedAt === undefined) {
        const fields = {code: 'JOB_TIMEOUT', job: run.job, slot: run.slot, pid}
        world.log.error(fields, 'a run takes too long and is being stopped')
        asked.set(attempt, now)
        sendSignal(pid, 'SIGTERM')
      } else if (Math.abs(now - askedAt) >= TERM_MS) {
        endRun(stateDb, run, describeTimeout(job), now)
        asked.delete(attempt)
        sendSignal(pid, 'SIGKILL')
      }
    }
  }

  return {
    /** Started, but not yet recorded as ended. */
    current: () => current,
    idle: () => idle,
    /** After a start the clock may be set right at once; until then nothing is planned or told. */
    isClockBehind: () => behindSince !== undefined,
    tick({mayStart = true}: {mayStart?: boolean} = {}): void {
      recordEnd?.()
      const now = world.realClock.now()
      const isBehind = readPlannedUntil(stateDb) - now > JUMP_MS
      behindSince = isBehind ? Math.min(behindSince ?? now, now) : undefined
      if (behindSince !== undefined) {
        if (now - behindSince < JUMP_MS) return
        undoFutureSlots(stateDb, {now, since: behindSince}, world)
        behindSince = undefined
      }
      for (const job of jobs) if (job.enabled) planSlots(stateDb, job, now, watches)
      dropOutdated(stateDb, jobs, now)
      planEvents(stateDb, now)
      endLost(now)
      if (current || !mayStart) return
      const able = [webhookJob, ...jobs].filter(({fault}) => !fault).map(({name}) => name)
      current = claimRun(stateDb, now, able)
      if (current) idle = carryOut(current)
    },
  }
}

const attemptOf = ({job_run_id, attempt}: JobRun) => `${job_run_id}.${attempt}`

const CRASHED = 'JOB_CRASHED'

/** A process that recorded nothing may have failed before it reached its run, for instance without a secret. */
function describeEnd({code, signal, log = ''}: ProcessEnd): AttemptEnd {
  if (signal !== null) return endAs(CRASHED, `Its process was killed by ${signal}.`)
  const problem = `Its process ended with exit code ${code} and recorded no result.`
  const [, error = problem, error_code = null] = /^(.*?) \[(\w+)\]$/ms.exec(findComplaint(log) ?? '') ?? []
  // Node itself ends with 1 for many reasons.
  const isKnown = code === 1 ? error_code !== null : code !== 0 && code !== null && code in EXIT_CODES
  return isKnown ? {exit_code: code, error_code, error} : endAs(CRASHED, problem)
}

const MINUTE_MS = 60_000
const LONGEST_PAUSE_MS = 30 * MINUTE_MS
const MOST_CRASHES = 3
/** A slot waits at least this long for other runs, even if its grace is shorter. */
const LEAST_WAIT_MS = 60 * MINUTE_MS

const endOfGrace = ({graceMinutes}: Job, slot: string) => Date.parse(slot) + graceMinutes * MINUTE_MS

/** Other runs delayed the slot. */
const lastStartOf = (job: Job, slot: string) =>
  Math.max(endOfGrace(job, slot), Date.parse(slot) + LEAST_WAIT_MS)

/**
 * Returns when a failed attempt is retried, ms since the epoch; null if never. Waiting can help if another run held the warehouse
 * (4), the source was unavailable (6, within the grace), or the process was stopped or killed. Everything else needs a person.
 * `crashes` counts earlier attempts of the run.
 */
export function decideRetry(
  job: Job | undefined,
  {slot, attempt, crashes = 0}: Pick<JobRun, 'slot' | 'attempt'> & {crashes?: number},
  end: Pick<AttemptEnd, 'exit_code' | 'error_code'>,
  now: number,
): number | null {
  if (!job || slot === null) return null
  if (end.error_code === CRASHED) return crashes + 1 < MOST_CRASHES ? now : null
  if (end.error_code === 'INTERRUPTED') return now
  if (end.exit_code !== 4 && end.exit_code !== 6) return null
  const [pauseMs, last] =
    end.exit_code === 4
      ? [MINUTE_MS, lastStartOf(job, slot)]
      : [Math.min(MINUTE_MS * 2 ** (attempt - 1), LONGEST_PAUSE_MS), endOfGrace(job, slot)]
  return now + pauseMs <= last ? now + pauseMs : null
}

/** A slot found later than this was missed because the scheduler was down or slept. */
const ON_TIME_MS = 60_000
/** How often `job_watch` is stored while nothing is due; each time is a write to the disk. */
const STORED_MS = 60_000

/** Records each slot once it is due, queued or skipped. A job with a new schedule has slots from now on. */
function planSlots(stateDb: StateDb, job: Job, now: number, watches: Watches): void {
  const {name, schedule, timeZone: time_zone} = job
  const sameWatch = 'select * from job_watch where job = ? and schedule = ? and time_zone = ?'
  const watch = stateDb.first(watchRow, sameWatch, [name, schedule, time_zone]) ?? watches.get(name)
  if (!watch) {
    const at = isoOf(now)
    const begun = {job: name, schedule, time_zone, watched_from: at, seen_until: at, seen_before: null}
    stateDb.insert('job_watch', begun, 'or replace')
    watches.set(name, begun)
    return
  }
  const seenUntil = Date.parse(watch.seen_until)
  const seen_before = now - seenUntil > JUMP_MS ? watch.seen_until : watch.seen_before
  // Older runs would be pruned at once. This also limits the work after a clock was years ahead.
  const due = listSlots(job, Math.max(seenUntil, now - KEPT_DAYS * DAY_MS), now)
  if (due.length === 0 && now - seenUntil < STORED_MS) return
  const seen = {...watch, seen_until: isoOf(now), seen_before}
  stateDb.transaction(() => {
    for (const instant of due) {
      const reason = whySkipped(job, now - instant)
      recordSlot(stateDb, {job: name, instant, state: reason === null ? 'queued' : 'skipped', reason}, now)
    }
    stateDb.insert('job_watch', seen, 'or replace')
    pruneRuns(stateDb, name, now)
  })
  watches.set(name, seen)
}

function whySkipped({catchUp, graceMinutes}: Job, lateMs: number): string | null {
  if (lateMs <= ON_TIME_MS) return null
  if (lateMs > graceMinutes * MINUTE_MS)
    return `missed: found after its grace of ${quantity(graceMinutes, 'minute')}`
  return catchUp === 'none' ? 'missed while the scheduler was down' : null
}

function dropOutdated(stateDb: StateDb, jobs: readonly Job[], now: number): void {
  const queued = listQueuedRuns(stateDb)
  const latest = new Map(queued.map(({job, job_run_id}) => [job, job_run_id]))
  for (const run of queued) {
    const job = findJob(jobs, run.job)
    if (job?.fault) continue
    if (!job) {
      // A server may have it again soon.
      if (now > run.not_before + LEAST_WAIT_MS && !listWatched(stateDb, now).includes(run.job))
        dropRun(stateDb, run, 'no server has the job', now)
    } else if (job.catchUp !== 'each' && latest.get(run.job) !== run.job_run_id) {
      dropRun(stateDb, run, 'a later slot runs instead', now)
    } else if (run.slot !== null && now > lastStartOf(job, run.slot)) {
      dropRun(stateDb, run, 'other runs delayed it for too long', now)
    }
  }
}

/** The jobs that servers have, perhaps other ones. */
export const listWatched = (stateDb: StateDb, now: number): string[] =>
  stateDb.column(z.string(), 'select job from job_watch where seen_until > ?', [isoOf(now - JUMP_MS)])

/** A longer time between two looks means that the clock was stepped or the machine slept. */
const JUMP_MS = 120_000

/** Instants are ISO 8601, real clock. */
const watchRow = z.object({
  job: z.string(),
  schedule: z.string(),
  time_zone: z.string(),
  /** Earlier slots do not count. */
  watched_from: z.string(),
  seen_until: z.string(),
  /** `seen_until` before the last jump of more than {@link JUMP_MS}; null if there was none. */
  seen_before: z.string().nullable(),
})

type Watches = Map<string, z.output<typeof watchRow>>

function readPlannedUntil(stateDb: StateDb): number {
  const [latest = null] = stateDb.column(z.string().nullable(), 'select max(seen_until) from job_watch')
  return latest === null ? 0 : Date.parse(latest)
}

/** All but the done are planned again, and no stored instant stays later than now. */
function undoFutureSlots(
  stateDb: StateDb,
  {now, since}: {now: number; since: number},
  {log}: Pick<World, 'log'>,
): void {
  const latest = isoOf(readPlannedUntil(stateDb))
  const at = isoOf(now)
  stateDb.transaction(() => {
    stateDb.run(
      `update job_watch set watched_from = min(watched_from, ?1), seen_until = min(?1, coalesce(seen_before, ?1)),
         seen_before = null
       where seen_until > ?1`,
      [isoOf(since)],
    )
    stateDb.run(
      `delete from job_run
       where attempt = 0 and slot > coalesce((select seen_until from job_watch where job_watch.job = job_run.job), ?1)`,
      [at],
    )
    // A run that was started keeps its number, which people were told, but gives up its slot.
    stateDb.run(
      `update job_run set slot = null, state = 'failed', reason = 'due by a clock that was ahead'
       where state in ('queued', 'failed') and slot > ?1`,
      [at],
    )
    stateDb.run('update job_run set not_before = ?1 where not_before > ?1', [now])
    for (const table of ['job_run', 'job_attempt', 'run'])
      stateDb.run(
        `update ${table} set started_at = min(started_at, ?1), ended_at = min(ended_at, ?1)
         where started_at > ?1 or ended_at > ?1`,
        [at],
      )
    stateDb.run('update webhook_event set received_at = ?1 where received_at > ?1', [at])
    stateDb.run('update alarm set since = ?1 where since > ?1', [at])
  })
  const reason = `slots had been planned until ${latest}; they are planned again`
  log.warn({code: 'CLOCK_STEPPED', reason}, 'the clock has gone back')
}

/** Events are applied together: once none has come for QUIET_MS, or the first has waited for LONGEST_WAIT_MS. */
const QUIET_MS = 3_000
const LONGEST_WAIT_MS = 60_000

function planEvents(stateDb: StateDb, now: number): void {
  const waiting = listWaitingEvents(stateDb)
  const [first, last] = [waiting[0], waiting.at(-1)]
  if (!first || !last) return
  const isQuiet = now - Date.parse(last.received_at) >= QUIET_MS
  if (!isQuiet && now - Date.parse(first.received_at) < LONGEST_WAIT_MS) return
  if (hasPendingRun(stateDb, webhookJob.name)) return
  const run = listLastAttempts(stateDb).find(({job}) => job === webhookJob.name)
  // After a failure the events still wait; without a pause they would be tried again at once, forever.
  const isPaused = run?.state === 'failed' && now - Date.parse(run.ended_at ?? '') < LONGEST_PAUSE_MS
  if (isPaused && findRunSince(stateDb, run)?.exit_code !== 0) return
  recordSlot(stateDb, {job: webhookJob.name, instant: now, state: 'queued', reason: null}, now)
}

function dropRun(stateDb: StateDb, run: JobRun, reason: string, now: number): void {
  stateDb.run(
    `update job_run set state = case attempt when 0 then 'skipped' else 'failed' end, reason = ?,
       ended_at = coalesce(ended_at, ?)
     where job_run_id = ? and state = 'queued'`,
    [reason, isoOf(now), run.job_run_id],
  )
}

/** Keeps the attempts of the last 1000 runs. */
function storeAttemptLog(stateDb: StateDb, {job_run_id, attempt}: JobRun, log: string): void {
  stateDb.transaction(() => {
    stateDb.update('job_attempt', {job_run_id, attempt}, {log})
    stateDb.run('delete from job_attempt where job_run_id <= ?', [job_run_id - 1000])
  })
}

/** Slots before the last look are never planned again, so nothing older is needed. */
const KEPT_DAYS = 90

/**
 * Keeps the last run of each job: if it failed, its alarm lasts until a run succeeds. Of commands it deletes those that ended
 * well, which webhooks make by the hundred thousand a year; metrics count all syncs.
 */
function pruneRuns(stateDb: StateDb, job: string, now: number): void {
  const last = listLastAttempts(stateDb).map(({job_run_id}) => job_run_id)
  const before = isoOf(now - KEPT_DAYS * DAY_MS)
  stateDb.run(
    `delete from job_run
     where job in (?, ?) and coalesce(slot, started_at) < ? and state in ('done', 'failed', 'skipped')
       and job_run_id not in (select value from json_each(?))`,
    [job, webhookJob.name, before, JSON.stringify(last)],
  )
  stateDb.run(
    `delete from run
     where exit_code = 0 and command <> 'sync' and started_at < ?
       and rowid not in (select max(rowid) from run where exit_code = 0 group by command)`,
    [before],
  )
}

const TERM_MS = 10_000

/** The process may just have ended by itself. */
const sendSignal = (pid: number, signal: NodeJS.Signals) =>
  tolerate(['ESRCH'], () => process.kill(pid, signal))
