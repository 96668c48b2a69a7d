import {codeOf, messageOf} from '../errors.ts'
import {beatRun, claimRun, endRun, type JobRun, listTurns} from '../ledger/job-runs.ts'
import type {Ledger} from '../ledger/ledger.ts'
import type {World} from '../types.ts'
import {findJob, type Job} from './job.ts'
import {planEvents} from './plan-events.ts'
import {describeCrash, planSlots, recoverRuns} from './plan-slots.ts'
import {decideRetry} from './retry.ts'
import {createTimeLimit, describeTimeout, isOverdue} from './time-limit.ts'

/** How the process that carried out a run ended; it records the outcome itself when it comes to it. */
export interface ProcessEnd {
  code: number | null
  signal: string | null
}

/** Finds due slots and has them run, one at a time. */
export type Scheduler = ReturnType<typeof createScheduler>

/**
 * Creates a scheduler. Its state is in the ledger alone: several of them, or one that is killed, share the slots.
 *
 * @param tools `startRun` carries out a claimed run and resolves when its process has ended
 */
export function createScheduler(
  tools: {ledger: Ledger; jobs: readonly Job[]; startRun: (run: JobRun) => Promise<ProcessEnd>},
  world: World,
) {
  const {ledger, jobs, startRun} = tools
  let current: JobRun | undefined
  let underWay: Promise<void> = Promise.resolve()
  /** Records how the run under way ended; there until the ledger has taken it. */
  let recordEnd: (() => void) | undefined
  const enforceLimit = createTimeLimit({ledger, jobs}, world)

  async function carryOut(run: JobRun): Promise<void> {
    world.log.info({job: run.job, slot: run.slot, attempt: run.attempt}, 'run begins')
    let words: string
    try {
      const {code, signal} = await startRun(run)
      words =
        signal === null
          ? `Its process ended with ${code} and no word.`
          : `Its process was killed by ${signal}.`
    } catch (error) {
      words = `Its process did not start: ${messageOf(error)} (${codeOf(error)}).`
    }
    recordEnd = () => {
      endUnlessRecorded(run, words)
      current = undefined
      recordEnd = undefined
    }
    try {
      recordEnd()
    } catch (error) {
      // A full disk, or a ledger that is busy for long: the run stays ours until a later tick can record it.
      world.log.error({job: run.job, code: codeOf(error), reason: messageOf(error)}, 'a run has no end yet')
    }
  }

  /** Without effect where the process has recorded its end itself. */
  function endUnlessRecorded(run: JobRun, words: string): void {
    const now = world.realClock.now()
    const job = findJob(jobs, run.job)
    const end = world.signal.aborted ? {exitCode: 6, errorCode: 'INTERRUPTED'} : null
    if (job && isOverdue(job, run, now)) endRun(ledger, run, describeTimeout(job), now)
    else endRun(ledger, run, describeCrash(words, decideRetry(job, run, end, now)), now)
  }

  return {
    /** The run under way, if it is this process's. */
    current: () => current,
    /** Resolves when the run under way has ended. */
    idle: () => underWay,
    /** Looks once what is due, and starts the next run when none is under way. */
    tick(): void {
      recordEnd?.()
      const now = world.realClock.now()
      planSlots(ledger, jobs, now, world)
      planEvents(ledger, now)
      recoverRuns(ledger, jobs, {now, ownRunId: current?.job_run_id})
      enforceLimit(now)
      if (current) {
        beatRun(ledger, current, now)
        return
      }
      current = claimRun(ledger, listTurns(ledger, now), now)
      if (current) underWay = carryOut(current)
    },
  }
}
