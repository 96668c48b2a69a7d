import {tellPeople} from '../alarm/tell.ts'
import type {Config} from '../config.ts'
import {explainError} from '../errors.ts'
import type {Place} from '../process.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {type Job, WEBHOOK_JOB} from '../schedule/job.ts'
import {startJobProcess} from '../schedule/job-process.ts'
import {createScheduler} from '../schedule/scheduler.ts'
import {adoptRun} from '../state/job-runs.ts'
import type {StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

/** How often it is looked whether people are to be told anything. */
const TELL_EVERY_MS = 5000

/** Runs the jobs of one data folder when they are due, and tells people; what a server does for each it has. */
export type FolderWatch = ReturnType<typeof watchFolder>

/**
 * Creates the watch over one data folder.
 *
 * @param tools `place` is where runs live; by default where this process does
 */
export function watchFolder(
  tools: {config: Config; folder: DataFolder; stateDb: StateDb; jobs: readonly Job[]; place?: Place},
  world: World,
) {
  const {config, folder, stateDb, jobs, place} = tools
  const scheduler = createScheduler(
    {
      stateDb,
      jobs,
      startRun: (run) => {
        const command = run.job === WEBHOOK_JOB ? ['events', 'apply'] : ['run', run.job]
        const onStarted = (pid: number) => {
          adoptRun(stateDb, {jobRunId: run.job_run_id, attempt: run.attempt, pid}, world.realClock.now())
        }
        return startJobProcess(run, {args: [...command, '--data', folder.root], onStarted, place}, world)
      },
    },
    world,
  )
  let telling: Promise<void> | undefined
  let toldAt = 0

  async function tell(): Promise<void> {
    try {
      await tellPeople(stateDb, config, world, findCurrentRelease(folder)?.manifest)
    } catch (error) {
      logLookFailure(error, world)
    }
  }

  return {
    /** Whether a run of this process is under way. */
    isBusy: () => scheduler.current() !== undefined,
    /**
     * Looks once what is due and whom to tell.
     *
     * @param mayStart whether a run may start now
     */
    look(mayStart = true): void {
      scheduler.tick({mayStart})
      const now = world.realClock.now()
      if (telling || now - toldAt < TELL_EVERY_MS) return
      toldAt = now
      telling = tell().finally(() => {
        telling = undefined
      })
    },
    /** Resolves when the run under way has ended and who is being told has been. */
    async settled(): Promise<void> {
      await telling
      await scheduler.idle()
    },
  }
}

/** Logs that a look came to nothing; the next one looks again. */
export function logLookFailure(error: unknown, {log}: World): void {
  const {code, message} = explainError(error)
  log.error({code, reason: message}, 'the schedule could not be looked at; it is looked at again')
}
