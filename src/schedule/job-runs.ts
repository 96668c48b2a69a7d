import {z} from 'zod'
import {CATALOGUE, type EndCode} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {holderRow, isHolderAlive, markHolder} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import type {Job} from './job.ts'

const text = z.string().nullable()

/** `slot` is null if somebody started the run by hand, or the slot was due only by a clock that was ahead. */
export type JobRun = z.output<typeof jobRunRow>
export const jobRunRow = z.object({
  job_run_id: z.number(),
  job: z.string(),
  /** ISO 8601, UTC. */
  slot: text,
  /** `queued` waits for its turn or its next attempt; `done`, `failed` and `skipped` are final. */
  state: z.enum(['queued', 'running', 'done', 'failed', 'skipped']),
  /** Why it was skipped, is queued again, or lost its slot. */
  reason: text,
  attempt: z.number(),
  /** ms since the epoch, real clock. */
  not_before: z.number(),
  /** While it runs, moved forward by times without a heartbeat, when the machine slept or the clock was stepped. */
  started_at: text,
  ended_at: text,
  /** Of the last attempt that ended; null if it was killed. */
  exit_code: z.number().nullable(),
  error_code: text,
  error: text,
  /** The output of `run --json`, as JSON text. */
  summary: text,
})

export type Claim = Pick<JobRun, 'job_run_id' | 'attempt'>

export const isoOf = (now: number): string => new Date(now).toISOString()

/** Records the slot once, even if several processes find it. */
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

export function listQueuedRuns(stateDb: StateDb): JobRun[] {
  return stateDb.all(jobRunRow, `select * from job_run where state = 'queued' order by slot, job_run_id`)
}

export function hasPendingRun(stateDb: StateDb, job: string): boolean {
  const sql = `select 1 from job_run where job = ? and state in ('queued', 'running')`
  return stateDb.first(z.unknown(), sql, [job]) !== undefined
}

/** Somebody started it by hand, in this process. */
export function beginRun(stateDb: StateDb, job: string, now: number): JobRun {
  const begun = {state: 'running', attempt: 1, not_before: now, started_at: isoOf(now)}
  const {lastInsertRowid} = stateDb.insert('job_run', {job, ...begun, ...markHolder(now)})
  return readRun(stateDb, lastInsertRowid)
}

export const readRun = (stateDb: StateDb, id: number | bigint): JobRun =>
  stateDb.one(jobRunRow, 'select * from job_run where job_run_id = ?', [id])

/** The process, this one by default, carries the run out. Returns undefined if another has taken that attempt. */
export function adoptRun(stateDb: StateDb, {job_run_id, attempt}: Claim, now: number, pid?: number) {
  const running = {job_run_id, attempt, state: 'running'}
  const {changes} = stateDb.update('job_run', running, markHolder(now, pid))
  return changes === 0 ? undefined : readRun(stateDb, job_run_id)
}

/**
 * Claims a run of a job that this server is `able` to run; none while a slot is running, whichever process runs it. The job that
 * started longest ago goes first, so that a busy job does not starve the others.
 */
export function claimRun(stateDb: StateDb, now: number, able: readonly string[]): JobRun | undefined {
  const {pid, host, process_started, heartbeat_at} = markHolder(now)
  return stateDb.first(
    jobRunRow,
    `update job_run set state = 'running', attempt = attempt + 1, pid = ?, host = ?, process_started = ?,
       heartbeat_at = ?, started_at = ?
     where job_run_id = (
         select job_run_id from job_run as waiting
         where state = 'queued' and not_before <= ? and job in (select value from json_each(?))
         order by (select max(started_at) from job_run where job = waiting.job) nulls first, slot, job_run_id
         limit 1
       )
       and not exists (select 1 from job_run where state = 'running' and slot is not null)
     returning *`,
    [pid, host, process_started, heartbeat_at, isoOf(now), now, JSON.stringify(able)],
  )
}

export type AttemptEnd = Pick<JobRun, 'exit_code'> &
  Partial<Pick<JobRun, 'error_code' | 'error' | 'summary'>> & {not_before?: number | null}

/** A second end of the same attempt changes nothing. */
export function endRun(stateDb: StateDb, run: JobRun, end: AttemptEnd, now: number): void {
  const {exit_code, error_code = null, error = null, summary = null, not_before = null} = end
  const {job_run_id, attempt} = run
  // Read again: the scheduler moves it when the clock is set. Not there, if another database has taken the place of its own.
  const [started] = stateDb.column(text, 'select started_at from job_run where job_run_id = ?', [job_run_id])
  const started_at = started ?? isoOf(now)
  // While the clock is behind, the attempt would end before earlier ones, and nobody would be told of it.
  const ended_at = isoOf(Math.max(Date.parse(started_at), now))
  const [state, reason] =
    not_before === null ? [exit_code === 0 ? 'done' : 'failed', null] : ['queued', 'tried again']
  const outcome = {exit_code, error_code, error}
  const row = {state, reason, not_before: not_before ?? run.not_before, ended_at, ...outcome, summary}
  stateDb.transaction(() => {
    const {changes} = stateDb.update('job_run', {job_run_id, attempt, state: 'running'}, row)
    if (changes === 0) return
    stateDb.insert('job_attempt', {job_run_id, attempt, started_at, ended_at, ...outcome})
  })
}

/** Instants are ISO 8601, real clock. */
const attemptRow = z.object({
  attempt: z.number(),
  started_at: z.string(),
  ended_at: z.string(),
  exit_code: z.number().nullable(),
  error_code: text,
  error: text,
  /** The last lines that its process logged; null if no server captured them. */
  log: text,
})

export const listAttempts = (stateDb: StateDb, id: number) =>
  stateDb.all(attemptRow, 'select * from job_attempt where job_run_id = ? order by attempt', [id])

const runningRow = jobRunRow.extend(holderRow.shape)

export const listRunning = (stateDb: StateDb, now: number) =>
  stateDb
    .all(runningRow, `select * from job_run where state = 'running'`)
    .map((run) => ({...run, isAlive: isHolderAlive(run, now)}))

const ATTEMPT = 'attempt, started_at, ended_at, exit_code, error_code, error'
/** SQL: whether an attempt shows how a job is doing: it was not stopped, too early, or locked out when its slot could still wait. */
const SHOWS = `ended_at is not null and (exit_code is not null or error_code is not null)
  and (exit_code is not 4 or (state = 'failed' and slot is not null and reason is null))
  and error_code is not 'INTERRUPTED'
  and (exit_code is not 0 or summary ->> '$.outcome' is not 'not_due')`

/** For each job the last attempt that shows how it is doing, even if its run has been queued again since. */
export function listLastAttempts(stateDb: StateDb): JobRun[] {
  return stateDb.all(
    jobRunRow,
    `with tried as (
       select job_run_id, ${ATTEMPT} from job_attempt
       union all
       -- The attempts of an old run are not kept.
       select job_run_id, ${ATTEMPT} from (select distinct job from job_run) as known join job_run on job_run_id = (
         select job_run_id from job_run as ended
         where ended.job = known.job and attempt > 0 and state <> 'running' and ${SHOWS}
         order by ended_at desc, job_run_id desc limit 1
       )
     ),
     ranked as (
       select *, row_number() over (partition by job order by ended_at desc, job_run_id desc, attempt desc) as place
       from tried join (select job_run_id, job, slot, state, reason, not_before, summary from job_run) using (job_run_id)
       where ${SHOWS}
     )
     select * from ranked where place = 1 order by job`,
  )
}

/** A run started by hand has no timeout. */
export const isOverdue = ({timeoutMinutes}: Job, {slot, started_at}: JobRun, now: number): boolean =>
  slot !== null && started_at !== null && now - Date.parse(started_at) >= timeoutMinutes * 60_000

/** The end of a process that could not say itself how it ended. */
export function endAs(error_code: EndCode, problem: string): AttemptEnd {
  const {kept, next} = CATALOGUE[error_code]
  return {exit_code: null, error_code, error: `${problem} ${kept} ${next}`}
}

/** No retry, since the run would probably hang again. */
export function describeTimeout({timeoutMinutes}: Job): AttemptEnd {
  const timeout = quantity(timeoutMinutes, 'minute')
  return endAs('JOB_TIMEOUT', `It took longer than its timeout of ${timeout} and was stopped.`)
}
