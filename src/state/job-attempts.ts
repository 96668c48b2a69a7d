import {z} from 'zod'
import type {AttemptEnd, JobRun} from './job-runs.ts'
import {inStateTransaction, type StateDb} from './state-db.ts'

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
export function recordAttempt(
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
