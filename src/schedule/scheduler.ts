import {codeOf, messageOf} from '../errors.ts'
import {storeAttemptLog} from '../state/job-attempts.ts'
import {beatRun, claimRun, endRun, type JobRun, listTurns} from '../state/job-runs.ts'
import type {StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {findJob, type Job} from './job.ts'
import {decideRetry} from './next-attempt.ts'
import {planEvents} from './plan-events.ts'
import {describeCrash, planSlots, recoverRuns} from './plan-slots.ts'
import {createTimeLimit, describeTimeout, isOverdue} from './time-limit.ts'

/** How the process that carried out a run ended; it records the outcome itself when it comes to it. */
export interface ProcessEnd {
  code: number | null
  signal: string | null
  /** The end of what it logged. */
  log?: string
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
    let log: string | undefined
    try {
      const {code, signal, ...said} = await startRun(run)
      log = said.log
      words =
        signal === null
          ? `Its process ended with ${code} and no word.`
          : `Its process was killed by ${signal}.`
    } catch (error) {
      words = `Its process did not start: ${messageOf(error)} (${codeOf(error)}).`
    }
    recordEnd = () => {
      endUnlessRecorded(run, words)
      if (log !== undefined) storeAttemptLog(stateDb, run, log)
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
