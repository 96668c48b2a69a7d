import {hostname} from 'node:os'
import {codeOf} from '../errors.ts'
import {isHolderAlive} from '../state/holder.ts'
import {type AttemptEnd, endRun, type JobRun, listRunning} from '../state/job-runs.ts'
import type {StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {findJob, type Job} from './job.ts'

/** Shorter than the grace of the nightly job: a run that hangs never costs a night. */
const DEFAULT_MINUTES = 240
/** From SIGTERM to SIGKILL. */
const PATIENCE_MS = 10_000

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
export function createTimeLimit(
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
    } else if (now - askedAt >= PATIENCE_MS) {
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
