import {z} from 'zod'
import {datePresent, type Holder, holderRow, isHolderAlive, markHolder} from '../store/lock.ts'
import {inStateTransaction, type StateDb} from '../store/state-db.ts'

const text = z.string().nullable()

/** How one start of a job run ended; instants are ISO 8601, real clock. */
export type JobAttempt = z.output<typeof attemptRow>
const attemptRow = z.object({
  attempt: z.number(),
  started_at: z.string(),
  ended_at: z.string(),
  /** Null of one that was killed. */
  exit_code: z.number().nullable(),
  error_code: text,
  error: text,
  /** The end of what its process logged; null where no server listened. */
  log: text,
})

/** Attempts of so many runs are kept. */
const KEPT_RUNS = 1000

/** Records how an attempt ended. */
function recordAttempt(
  stateDb: StateDb,
  {job_run_id, attempt, started_at}: JobRun,
  {exitCode, errorCode, error}: AttemptEnd,
  now: number,
): void {
  const ended_at = new Date(now).toISOString()
  stateDb.insert('job_attempt', {
    job_run_id,
    attempt,
    started_at: started_at ?? ended_at,
    ended_at,
    exit_code: exitCode,
    error_code: errorCode,
    error,
  })
}

/** Keeps the end of what the process of an attempt logged; the oldest attempts are let go. */
export function storeAttemptLog(stateDb: StateDb, {job_run_id, attempt}: JobRun, log: string): void {
  inStateTransaction(stateDb, () => {
    stateDb.run('update job_attempt set log = ? where job_run_id = ? and attempt = ?', [
      log,
      job_run_id,
      attempt,
    ])
    stateDb.run('delete from job_attempt where job_run_id <= ?', [job_run_id - KEPT_RUNS])
  })
}

/** The attempts of a run that have ended and are kept, oldest first. */
export function listAttempts(stateDb: StateDb, jobRunId: number): JobAttempt[] {
  return stateDb.all(attemptRow, 'select * from job_attempt where job_run_id = ? order by attempt', [
    jobRunId,
  ])
}

/** One due instant of a job and what became of it; `slot` is null for a run somebody asked for. */
export type JobRun = z.output<typeof jobRunRow>
const jobRunRow = z.object({
  job_run_id: z.number(),
  job: z.string(),
  /** ISO 8601, UTC. */
  slot: text,
  /** `queued` waits for its turn or its next attempt; the last three are final. */
  state: z.enum(['queued', 'running', 'done', 'failed', 'skipped']),
  /** Why it was skipped, or waits. */
  reason: text,
  /** Times it was started. */
  attempt: z.number(),
  /** ms since the epoch, real clock. */
  not_before: z.number(),
  started_at: text,
  ended_at: text,
  /** Of the last attempt; null as long as none has ended, and for one that was killed. */
  exit_code: z.number().nullable(),
  error_code: text,
  error: text,
  /** What `run --json` prints, as JSON text. */
  summary: text,
})

const isoOf = (now: number) => new Date(now).toISOString()

/** Records an instant a job was due at, once, however often and by however many processes it is found. */
export function recordSlot(
  stateDb: StateDb,
  slot: {job: string; instant: number; state: 'queued' | 'skipped'; reason: string | null},
  now: number,
): void {
  const {job, instant, state, reason} = slot
  const ended_at = state === 'skipped' ? isoOf(now) : null
  const row = {job, slot: isoOf(instant), state, reason, attempt: 0, not_before: instant, ended_at}
  stateDb.insert('job_run', row, 'or ignore')
}

/** Gives a queued run up: one that was never started is skipped, one that was has failed. */
export function dropRun(stateDb: StateDb, run: JobRun, reason: string, now: number): void {
  stateDb.run(
    `update job_run set state = case attempt when 0 then 'skipped' else 'failed' end, reason = ?, ended_at = ?
     where job_run_id = ? and state = 'queued'`,
    [reason, isoOf(now), run.job_run_id],
  )
}

/** Runs of these states, oldest slot first. */
export function listJobRuns(stateDb: StateDb, state: 'queued' | 'running'): JobRun[] {
  return stateDb.all(jobRunRow, 'select * from job_run where state = ? order by slot, job_run_id', [state])
}

/**
 * Queued runs that may start at `now`, in the order of their turn: the job that was started longest ago first, so that one
 * that is due all the time does not keep others from theirs.
 */
export function listTurns(stateDb: StateDb, now: number): JobRun[] {
  return stateDb.all(
    jobRunRow,
    `select * from job_run as waiting
     where state = 'queued' and not_before <= ?
     order by (select max(started_at) from job_run where job = waiting.job) nulls first, slot, job_run_id`,
    [now],
  )
}

/** Whether a run of this job waits or goes on. */
export function isUnderWay(stateDb: StateDb, job: string): boolean {
  const sql = `select count(*) as runs from job_run where job = ? and state in ('queued', 'running')`
  return stateDb.one(z.object({runs: z.number()}), sql, [job]).runs > 0
}

/** A run by its number. */
export function findJobRun(stateDb: StateDb, jobRunId: number): JobRun | undefined {
  return stateDb.first(jobRunRow, 'select * from job_run where job_run_id = ?', [jobRunId])
}

/** The run of a job that was due, or asked for, at an instant (ISO 8601). */
export function findRunOfSlot(stateDb: StateDb, job: string, slot: string): JobRun | undefined {
  return stateDb.first(jobRunRow, 'select * from job_run where job = ? and slot = ?', [job, slot])
}

/** The latest runs that were started or skipped, newest first. */
export function listLatestJobRuns(stateDb: StateDb, limit: number): JobRun[] {
  return stateDb.all(
    jobRunRow,
    'select * from job_run order by coalesce(ended_at, started_at, slot) desc, job_run_id desc limit ?',
    [limit],
  )
}

/**
 * Takes the first of `candidates` that may start now, unless a run is under way: one at a time in a data folder, however
 * many processes there are.
 *
 * @param candidates queued runs in the order of their turn
 */
export function claimRun(stateDb: StateDb, candidates: readonly JobRun[], now: number): JobRun | undefined {
  if (candidates.length === 0) return undefined
  return inStateTransaction(stateDb, () => {
    const slotsUnderWay = listJobRuns(stateDb, 'running').filter(({slot}) => slot !== null)
    if (slotsUnderWay.length > 0) return undefined
    const {pid, host, process_started, heartbeat_at} = markHolder(now)
    for (const {job_run_id} of candidates) {
      const claimed = stateDb.first(
        jobRunRow,
        `update job_run set state = 'running', attempt = attempt + 1, pid = ?, host = ?, process_started = ?,
           heartbeat_at = ?, started_at = ?
         where job_run_id = ? and state = 'queued' and not_before <= ?
         returning *`,
        [pid, host, process_started, heartbeat_at, isoOf(now), job_run_id, now],
      )
      if (claimed) return claimed
    }
    return undefined
  })
}

/** Records a run that somebody asked for, begun by this process. */
export function beginRun(stateDb: StateDb, job: string, now: number): JobRun {
  const {lastInsertRowid} = stateDb.insert('job_run', {
    job,
    state: 'running',
    attempt: 1,
    not_before: now,
    ...markHolder(now),
    started_at: isoOf(now),
  })
  return stateDb.one(jobRunRow, 'select * from job_run where job_run_id = ?', [lastInsertRowid])
}

/**
 * Makes a process the one that carries out a claimed run.
 *
 * @param asked the run, and the process unless it is this one
 * @returns undefined when that attempt was meanwhile given to another
 */
export function adoptRun(
  stateDb: StateDb,
  asked: {jobRunId: number; attempt: number; pid?: number},
  now: number,
): JobRun | undefined {
  const {pid, host, process_started, heartbeat_at} = markHolder(now, asked.pid)
  return stateDb.first(
    jobRunRow,
    `update job_run set pid = ?, host = ?, process_started = ?, heartbeat_at = ?
     where job_run_id = ? and attempt = ? and state = 'running'
     returning *`,
    [pid, host, process_started, heartbeat_at, asked.jobRunId, asked.attempt],
  )
}

/** Shows processes on other machines that a run goes on. */
export function beatRun(stateDb: StateDb, run: JobRun, now: number): void {
  stateDb.run(
    `update job_run set heartbeat_at = ? where job_run_id = ? and attempt = ? and state = 'running'`,
    [now, run.job_run_id, run.attempt],
  )
}

/** How an attempt ended; `retryAt`, ms since the epoch, queues it once more. */
export interface AttemptEnd {
  exitCode: number | null
  errorCode: string | null
  error: string | null
  summary: string | null
  retryAt: number | null
}

/** Records how an attempt ended, unless that was recorded before. */
export function endRun(stateDb: StateDb, run: JobRun, end: AttemptEnd, now: number): void {
  const final = end.exitCode === 0 ? 'done' : 'failed'
  inStateTransaction(stateDb, () => {
    const {changes} = stateDb.run(
      `update job_run set state = ?, reason = ?, not_before = ?, ended_at = ?, exit_code = ?, error_code = ?,
         error = ?, summary = ?
       where job_run_id = ? and attempt = ? and state = 'running'`,
      [
        end.retryAt === null ? final : 'queued',
        end.retryAt === null ? null : 'tried again',
        end.retryAt ?? run.not_before,
        isoOf(now),
        end.exitCode,
        end.errorCode,
        end.error,
        end.summary,
        run.job_run_id,
        run.attempt,
      ],
    )
    if (changes > 0) recordAttempt(stateDb, run, end, now)
  })
}

const runningRow = z.unknown().transform((row) => ({run: jobRunRow.parse(row), holder: holderRow.parse(row)}))

/** Runs under way, and the process that carries each out. */
export function listRunning(stateDb: StateDb): {run: JobRun; holder: Holder}[] {
  return stateDb.all(runningRow, `select * from job_run where state = 'running'`)
}

/** Runs that a living process carries out. */
export function listUnderWay(stateDb: StateDb, now: number): JobRun[] {
  return listRunning(stateDb)
    .filter(({holder}) => isHolderAlive(holder, now))
    .map(({run}) => run)
}

/** Runs whose process is gone without a word: a killed process, a machine that went down. */
export function listOrphanedRuns(stateDb: StateDb, now: number): JobRun[] {
  datePresent(stateDb, 'job_run', now)
  return listRunning(stateDb)
    .filter(({holder}) => !isHolderAlive(holder, now))
    .map(({run}) => run)
}

/**
 * The last attempt of each job that says something about it: neither one that waited for another run, nor one that was
 * stopped, nor one that found that it was not its day.
 */
export function listLastAttempts(stateDb: StateDb): JobRun[] {
  return stateDb.all(
    jobRunRow,
    `select job_run.* from (select distinct job from job_run) as known
     join job_run on job_run_id = (
       select job_run_id from job_run as attempt
       where attempt.job = known.job and attempt > 0 and state in ('done', 'failed', 'queued')
         and ended_at is not null and (exit_code is not null or error_code is not null)
         and exit_code is not 4 and error_code is not 'INTERRUPTED'
         and summary ->> '$.outcome' is not 'not_due'
       order by ended_at desc, job_run_id desc
       limit 1
     )
     order by job_run.job`,
  )
}

/** Runs are kept this long; no slot older than the last look is ever looked for again. */
export const KEPT_DAYS = 90

/** Forgets what became of a job's slots long ago, attempts included. */
export function pruneRuns(stateDb: StateDb, job: string, now: number): void {
  stateDb.run(`delete from job_run where job = ? and slot < ? and state in ('done', 'failed', 'skipped')`, [
    job,
    isoOf(now - KEPT_DAYS * 86_400_000),
  ])
  stateDb.run('delete from job_attempt where job_run_id not in (select job_run_id from job_run)')
}
