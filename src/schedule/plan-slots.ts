import {DAY_MS} from '../clock.ts'
import {
  dropRun,
  endRun,
  KEPT_DAYS,
  listJobRuns,
  listOrphanedRuns,
  pruneRuns,
  recordSlot,
} from '../state/job-runs.ts'
import {findWatch, type JobWatch, JUMP_MS, storeWatch, takeBackLooks} from '../state/job-watch.ts'
import {inStateTransaction, type StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {listSlots} from './cron.ts'
import {findJob, type Job} from './job.ts'
import {decideRetry, lastStartOf} from './next-attempt.ts'

/** A slot found later than this was missed: the scheduler was down, or slept. */
const ON_TIME_MS = 60_000
/** A look that finds nothing due is noted this often only: each note is a write to the disk. */
const NOTED_MS = 60_000

/**
 * Records every slot that has become due since a job's slots were last looked for, queued or skipped. A job that is new,
 * or whose schedule has changed, has slots from now on. What was looked for under a clock that was ahead is taken back.
 */
export function planSlots(
  stateDb: StateDb,
  jobs: readonly Job[],
  now: number,
  {log}: Pick<World, 'log'>,
): void {
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
export function recoverRuns(
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
export function describeCrash(error: string, retryAt: number | null): Parameters<typeof endRun>[2] {
  return {exitCode: null, errorCode: 'JOB_CRASHED', error, summary: null, retryAt}
}
