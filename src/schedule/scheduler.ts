import {hostname} from 'node:os'
import {z} from 'zod'
import {DAY_MS} from '../core/clock.ts'
import {codeOf, messageOf} from '../core/errors.ts'
import type {ProcessEnd} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {isHolderAlive} from '../store/lock.ts'
import {inStateTransaction, type StateDb} from '../store/state-db.ts'
import {listWaitingEvents} from '../sync/webhook-events.ts'
import {findJob, type Job, WEBHOOK_JOB} from './job.ts'
import {
  type AttemptEnd,
  beatRun,
  claimRun,
  dropRun,
  endRun,
  isUnderWay,
  type JobRun,
  KEPT_DAYS,
  listJobRuns,
  listLastAttempts,
  listOrphanedRuns,
  listRunning,
  listTurns,
  pruneRuns,
  recordSlot,
  storeAttemptLog,
} from './job-runs.ts'
import {listSlots} from './slots.ts'

/** A clock that goes ahead or back by more than this between two looks has stepped, or its machine slept. */
const JUMP_MS = 120_000

/** Until when a job's slots have been looked for; instants in ms since the epoch. */
type JobWatch = z.output<typeof watchRow>
const watchRow = z
  .object({
    schedule: z.string(),
    time_zone: z.string(),
    watched_from: z.string(),
    seen_until: z.string(),
    seen_before: z.string().nullable(),
  })
  .transform((row) => ({
    schedule: row.schedule,
    timeZone: row.time_zone,
    /** When this schedule was first seen: no slot before it counts. */
    watchedFrom: Date.parse(row.watched_from),
    seenUntil: Date.parse(row.seen_until),
    /** Where the last look that went over more than {@link JUMP_MS} began; null before the first. */
    seenBefore: row.seen_before === null ? null : Date.parse(row.seen_before),
  }))

/** What is known of a job; undefined when it was never scheduled. */
export function findWatch(stateDb: StateDb, job: string): JobWatch | undefined {
  return stateDb.first(watchRow, 'select * from job_watch where job = ?', [job])
}

/** Keeps until when a job's slots have been looked for. */
export function storeWatch(stateDb: StateDb, job: string, watch: JobWatch): void {
  const row = {
    job,
    schedule: watch.schedule,
    time_zone: watch.timeZone,
    watched_from: new Date(watch.watchedFrom).toISOString(),
    seen_until: new Date(watch.seenUntil).toISOString(),
    seen_before: watch.seenBefore === null ? null : new Date(watch.seenBefore).toISOString(),
  }
  stateDb.insert('job_watch', row, 'or replace')
}

/**
 * Takes back what was noted under a clock that has been far ahead of `now` since: slots are looked for again from where
 * they were before, those that were not run are forgotten, and nothing is noted as later than now.
 *
 * @returns until when slots had been looked for, ms since the epoch; null where the clock was not ahead
 */
function takeBackLooks(stateDb: StateDb, now: number): number | null {
  const latest = findInstant(stateDb, 'select max(seen_until) from job_watch')
  if (latest === undefined || latest - now <= JUMP_MS) return null
  const at = new Date(now).toISOString()
  inStateTransaction(stateDb, () => {
    stateDb.run(
      `update job_watch set watched_from = min(watched_from, ?1), seen_until = min(?1, coalesce(seen_before, ?1)),
         seen_before = null
       where seen_until > ?1`,
      [at],
    )
    stateDb.run(
      `delete from job_run
       where state not in ('running', 'done')
         and slot > coalesce((select seen_until from job_watch where job_watch.job = job_run.job), ?1)
         and (slot > ?1 or attempt = 0)`,
      [at],
    )
    for (const [table, column] of STAMPS) {
      stateDb.run(`update ${table} set ${column} = ?1 where ${column} > ?1`, [at])
    }
  })
  return latest
}

/** Real instants from which something is counted. */
const STAMPS = [
  ['job_run', 'started_at'],
  ['job_run', 'ended_at'],
  ['run', 'started_at'],
  ['run', 'ended_at'],
  ['webhook_event', 'received_at'],
] as const

/** Since when anything has been scheduled here, ms since the epoch. */
export function findFirstWatch(stateDb: StateDb): number | undefined {
  return findInstant(stateDb, 'select min(watched_from) from job_watch')
}

function findInstant(stateDb: StateDb, sql: string): number | undefined {
  const [instant = null] = stateDb.column(z.string().nullable(), sql)
  return instant === null ? undefined : Date.parse(instant)
}

/** Finds due slots and has them run, one at a time. */
export type Scheduler = ReturnType<typeof createScheduler>

/**
 * Creates a scheduler. Its state is in the state database alone: several of them, or one that is killed, share the slots.
 *
 * @param tools `startRun` carries out a claimed run and resolves when its process has ended
 */
export function createScheduler(
  tools: {stateDb: StateDb; jobs: readonly Job[]; startRun: (run: JobRun) => Promise<ProcessEnd>},
  world: World,
) {
  const {stateDb, jobs, startRun} = tools
  let current: JobRun | undefined
  let underWay: Promise<void> = Promise.resolve()
  /** Records how the run under way ended; there until the state database has taken it. */
  let recordEnd: (() => void) | undefined
  const enforceLimit = createTimeLimit({stateDb, jobs}, world)

  async function carryOut(run: JobRun): Promise<void> {
    world.log.info({job: run.job, slot: run.slot, attempt: run.attempt}, 'run begins')
    let words: string
    let end: ProcessEnd | undefined
    try {
      end = await startRun(run)
      words =
        end.signal === null
          ? `Its process ended with ${end.code} and no word.`
          : `Its process was killed by ${end.signal}.`
    } catch (error) {
      words = `Its process did not start: ${messageOf(error)} (${codeOf(error)}).`
    }
    recordEnd = () => {
      endUnlessRecorded(run, words)
      if (end?.log !== undefined) storeAttemptLog(stateDb, run, end.log)
      current = undefined
      recordEnd = undefined
    }
    try {
      recordEnd()
    } catch (error) {
      // A full disk, or a state database that is busy for long: the run stays ours until a later tick can record it.
      world.log.error({job: run.job, code: codeOf(error), reason: messageOf(error)}, 'a run has no end yet')
    }
  }

  /** Without effect where the process has recorded its end itself. */
  function endUnlessRecorded(run: JobRun, words: string): void {
    const now = world.realClock.now()
    const job = findJob(jobs, run.job)
    const end = world.signal.aborted ? {exitCode: 6, errorCode: 'INTERRUPTED'} : null
    if (job && isOverdue(job, run, now)) endRun(stateDb, run, describeTimeout(job), now)
    else endRun(stateDb, run, describeCrash(words, decideRetry(job, run, end, now)), now)
  }

  return {
    /** The run under way, if it is this process's. */
    current: () => current,
    /** Resolves when the run under way has ended. */
    idle: () => underWay,
    /** Looks once what is due, and starts the next run when none is under way and it may. */
    tick({mayStart = true}: {mayStart?: boolean} = {}): void {
      recordEnd?.()
      const now = world.realClock.now()
      planSlots(stateDb, jobs, now, world)
      planEvents(stateDb, now)
      recoverRuns(stateDb, jobs, {now, ownRunId: current?.job_run_id})
      enforceLimit(now)
      if (current) {
        beatRun(stateDb, current, now)
        return
      }
      if (!mayStart) return
      current = claimRun(stateDb, listTurns(stateDb, now), now)
      if (current) underWay = carryOut(current)
    },
  }
}

/** A slot found later than this was missed: the scheduler was down, or slept. */
const ON_TIME_MS = 60_000
/** A look that finds nothing due is noted this often only: each note is a write to the disk. */
const NOTED_MS = 60_000

/**
 * Records every slot that has become due since a job's slots were last looked for, queued or skipped. A job that is new,
 * or whose schedule has changed, has slots from now on. What was looked for under a clock that was ahead is taken back.
 */
function planSlots(stateDb: StateDb, jobs: readonly Job[], now: number, {log}: Pick<World, 'log'>): void {
  const ahead = takeBackLooks(stateDb, now)
  if (ahead !== null) {
    const reason = `slots had been looked for until ${new Date(ahead).toISOString()}; they are looked for again`
    log.warn({code: 'CLOCK_STEPPED', reason}, 'the clock has gone back')
  }
  for (const job of jobs) {
    const {name, schedule, timeZone} = job
    const watch = findWatch(stateDb, name)
    if (!watch || watch.schedule !== schedule || watch.timeZone !== timeZone) {
      const fresh = {schedule, timeZone, watchedFrom: now, seenUntil: now, seenBefore: null}
      storeWatch(stateDb, name, fresh)
    } else {
      planJob(stateDb, job, watch, now)
    }
  }
  dropOutdated(stateDb, jobs, now)
}

function planJob(stateDb: StateDb, job: Job, watch: JobWatch, now: number): void {
  const seenBefore = now - watch.seenUntil > JUMP_MS ? watch.seenUntil : watch.seenBefore
  // What is older is forgotten as soon as it is recorded: a clock that is years ahead costs no more than this.
  const first = Math.max(watch.seenUntil, now - KEPT_DAYS * DAY_MS)
  for (let from = first; from < now; from = Math.min(from + DAY_MS, now)) {
    const until = Math.min(from + DAY_MS, now)
    const due = listSlots(job, from, until)
    if (due.length === 0 && (until < now || now - watch.seenUntil < NOTED_MS)) continue
    inStateTransaction(stateDb, () => {
      for (const instant of due) {
        recordSlot(stateDb, {job: job.name, instant, ...judgeSlot(job, instant, now)}, now)
      }
      storeWatch(stateDb, job.name, {...watch, seenUntil: until, seenBefore})
      pruneRuns(stateDb, job.name, now)
    })
  }
}

function judgeSlot(
  {catchUp, graceMinutes}: Job,
  instant: number,
  now: number,
): {state: 'queued' | 'skipped'; reason: string | null} {
  const lateMs = now - instant
  if (lateMs > graceMinutes * 60_000 && lateMs > ON_TIME_MS) {
    return {state: 'skipped', reason: `missed, and found later than the ${graceMinutes} minutes of grace`}
  }
  if (catchUp === 'none' && lateMs > ON_TIME_MS) {
    return {state: 'skipped', reason: 'missed while the scheduler was down'}
  }
  return {state: 'queued', reason: null}
}

/** Queued runs that must not start any more: superseded, too late, or of a job that is gone. */
function dropOutdated(stateDb: StateDb, jobs: readonly Job[], now: number): void {
  const queued = listJobRuns(stateDb, 'queued')
  const latest = new Map(queued.map(({job, job_run_id}) => [job, job_run_id]))
  for (const run of queued) {
    const job = findJob(jobs, run.job)
    if (!job) {
      dropRun(stateDb, run, 'the job is no longer there', now)
    } else if (job.catchUp !== 'each' && latest.get(run.job) !== run.job_run_id) {
      dropRun(stateDb, run, 'a later slot runs instead', now)
    } else if (run.slot !== null && now > lastStartOf(job, run.slot)) {
      dropRun(stateDb, run, 'others held it up for too long', now)
    }
  }
}

/**
 * Queues once more what a dead process left under way, or gives it up.
 *
 * @param ownRunId the run of this process, which knows best itself how it ends
 */
function recoverRuns(
  stateDb: StateDb,
  jobs: readonly Job[],
  {now, ownRunId}: {now: number; ownRunId?: number | undefined},
): void {
  for (const run of listOrphanedRuns(stateDb, now)) {
    if (run.job_run_id === ownRunId) continue
    const job = findJob(jobs, run.job)
    const retryAt = decideRetry(job, run, null, now)
    endRun(stateDb, run, describeCrash('Its process is gone without a word.', retryAt), now)
  }
}

/** The end of an attempt whose process did not say how it ended. */
function describeCrash(error: string, retryAt: number | null): Parameters<typeof endRun>[2] {
  return {exitCode: null, errorCode: 'JOB_CRASHED', error, summary: null, retryAt}
}

/** Events are looked at together: when none has come for this long, or the first has waited for that long. */
const QUIET_MS = 3_000
const LONGEST_WAIT_MS = 60_000

/** Queues a run for the events that wait, unless one is queued or under way, or has just failed. */
export function planEvents(stateDb: StateDb, now: number): void {
  const waiting = listWaitingEvents(stateDb)
  const [first, last] = [waiting[0], waiting.at(-1)]
  if (!first || !last) return
  const isQuiet = now - Date.parse(last.received_at) >= QUIET_MS
  if (!isQuiet && now - Date.parse(first.received_at) < LONGEST_WAIT_MS) return
  if (isUnderWay(stateDb, WEBHOOK_JOB) || hasJustFailed(stateDb, now)) return
  recordSlot(stateDb, {job: WEBHOOK_JOB, instant: now, state: 'queued', reason: null}, now)
}

/** What failed wants somebody to look; the events still wait, and would be run again at once and for ever. */
function hasJustFailed(stateDb: StateDb, now: number): boolean {
  const last = listLastAttempts(stateDb).find(({job}) => job === WEBHOOK_JOB)
  return last?.state === 'failed' && now - Date.parse(last.ended_at ?? '') < LONGEST_PAUSE_MS
}

const MINUTE_MS = 60_000
/** Between an attempt that failed and the next. */
const LONGEST_PAUSE_MS = 30 * MINUTE_MS
/** An attempt that kills its process each time is not repeated for ever. */
const MOST_CRASHES = 3
/** A slot that others hold up waits this long at least, whatever its grace. */
const HELD_UP_MS = 60 * MINUTE_MS

/** Until when a slot held up by other runs may start, ms since the epoch. */
function lastStartOf({graceMinutes}: Job, slot: string): number {
  return Date.parse(slot) + Math.max(graceMinutes * MINUTE_MS, HELD_UP_MS)
}

/**
 * When an attempt that ended badly is made again, ms since the epoch; null when it is not. What waiting can fix is
 * tried again: another run held the warehouse (4), the source was not to be had (6, within the grace), the process was
 * stopped or killed. Everything else wants somebody to look.
 *
 * @param end null for a process that was gone without a word
 */
export function decideRetry(
  job: Job | undefined,
  {slot, attempt}: Pick<JobRun, 'slot' | 'attempt'>,
  end: {exitCode: number; errorCode: string} | null,
  now: number,
): number | null {
  if (!job || slot === null) return null
  if (end === null) return attempt < MOST_CRASHES ? now : null
  if (end.errorCode === 'INTERRUPTED') return now
  if (end.exitCode === 4) return beforeOrNever(now + MINUTE_MS, lastStartOf(job, slot))
  if (end.exitCode !== 6) return null
  const pauseMs = Math.min(MINUTE_MS * 2 ** (attempt - 1), LONGEST_PAUSE_MS)
  return beforeOrNever(now + pauseMs, Date.parse(slot) + job.graceMinutes * MINUTE_MS)
}

function beforeOrNever(instant: number, last: number): number | null {
  return instant <= last ? instant : null
}

/** Shorter than the grace of the nightly job: a run that hangs never costs a night. */
const DEFAULT_MINUTES = 240
/** From SIGTERM to SIGKILL. */
const TERM_MS = 10_000

/** How long one attempt of a job may take. */
export function timeoutMinutesOf({timeoutMinutes}: Job): number {
  return timeoutMinutes ?? DEFAULT_MINUTES
}

/** Whether an attempt has taken longer than its job may; one that somebody asked for may take as long as it likes. */
export function isOverdue(
  job: Job | undefined,
  {slot, started_at}: Pick<JobRun, 'slot' | 'started_at'>,
  now: number,
): boolean {
  if (!job || slot === null || started_at === null) return false
  return now - Date.parse(started_at) >= timeoutMinutesOf(job) * 60_000
}

/** The end of an attempt that took too long: what made it hang would most likely do so again, so it is not made again. */
export function describeTimeout(job: Job): AttemptEnd {
  const error = `It took longer than the ${timeoutMinutesOf(job)} minutes of its timeoutMinutes and was ended. What it had stored is kept; the current release stays. The log of that time says what it waited for; a job that needs longer is given a larger timeoutMinutes.`
  return {exitCode: null, errorCode: 'JOB_TIMEOUT', error, summary: null, retryAt: null}
}

/**
 * Creates the limit of one server, to be called each time it looks: it asks the process of a run that is overdue to stop,
 * and kills one that was asked long enough ago. It looks at every process that carries out a slot on this machine, also one that a
 * killed server has left behind.
 */
function createTimeLimit(
  {stateDb, jobs}: {stateDb: StateDb; jobs: readonly Job[]},
  {log}: Pick<World, 'log'>,
): (now: number) => void {
  /** When each attempt was asked; a second SIGTERM would end it without a word. */
  const asked = new Map<string, number>()

  function enforceOn(run: JobRun, pid: number, now: number): void {
    const job = findJob(jobs, run.job)
    if (!job || !isOverdue(job, run, now)) return
    const attempt = `${run.job_run_id}.${run.attempt}`
    const askedAt = asked.get(attempt)
    if (askedAt === undefined) {
      log.error({code: 'JOB_TIMEOUT', job: run.job, slot: run.slot, pid}, 'a run takes too long: it is ended')
      asked.set(attempt, now)
      sendSignal(pid, 'SIGTERM')
    } else if (now - askedAt >= TERM_MS) {
      endRun(stateDb, run, describeTimeout(job), now)
      asked.delete(attempt)
      sendSignal(pid, 'SIGKILL')
    }
  }

  return (now) => {
    for (const {run, holder} of listRunning(stateDb)) {
      // As long as a run is only claimed it is the server's own.
      if (holder.pid === process.pid || holder.host !== hostname() || !isHolderAlive(holder, now)) continue
      enforceOn(run, holder.pid, now)
    }
  }
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    // It has just ended by itself.
    if (codeOf(error) !== 'ESRCH') throw error
  }
}
