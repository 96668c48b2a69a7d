import {pingDeadMan, queueDigest, tellPeople} from '../alarm/tell.ts'
import type {Config} from '../config.ts'
import {explainError, messageOf, newError} from '../errors.ts'
import {scrubSecrets} from '../log.ts'
import {findCurrentRelease, type Release} from '../release/manifest.ts'
import {adoptRun, beginRun, endRun} from '../state/job-runs.ts'
import {openStateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import type {Job} from './job.ts'
import {decideRetry} from './next-attempt.ts'
import {type JobResult, runJob} from './run-job.ts'
import {describeTimeout, isOverdue} from './time-limit.ts'

/** A run the scheduler has claimed for this process. */
export interface Claim {
  jobRunId: number
  attempt: number
}

/**
 * Carries out one run of a job and records in the state database how it ended, and whether it is made again.
 *
 * @param work is given the instant the job was due at, ms since the epoch; undefined when somebody asked for it
 * @throws ConfigError `RUN_TAKEN` when the claim was given to another process meanwhile; whatever `work` throws
 */
export async function executeRun<T>(
  config: Config,
  {job, claim}: {job: Job; claim?: Claim | undefined},
  world: World,
  work: (slot: number | undefined) => Promise<T>,
): Promise<T> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  using stateDb = openStateDb(folder.stateDb)
  const begunAt = world.realClock.now()
  const run = claim ? adoptRun(stateDb, claim, begunAt) : beginRun(stateDb, job.name, begunAt)
  if (!run) {
    throw newError(
      'RUN_TAKEN',
      `Run '${claim?.jobRunId}', attempt ${claim?.attempt}: it is no longer this process's to carry out.`,
    )
  }
  try {
    const result = await work(run.slot === null ? undefined : Date.parse(run.slot))
    const summary = JSON.stringify(result)
    const end = {exitCode: 0, errorCode: null, error: null, summary, retryAt: null}
    endRun(stateDb, run, end, world.realClock.now())
    return result
  } catch (error) {
    const now = world.realClock.now()
    const wasEnded = world.signal.aborted && isOverdue(job, run, now)
    const {code: errorCode, exitCode, message} = explainError(error)
    const retryAt = decideRetry(job, run, {exitCode, errorCode}, now)
    const end = {exitCode, errorCode, error: scrubSecrets(message), summary: null, retryAt}
    endRun(stateDb, run, wasEnded ? describeTimeout(job) : end, now)
    throw error
  }
}

/**
 * Runs a job, records how it ended, and tells whoever waits for word of it.
 *
 * @param describe a release, for people
 */
export async function performJob(
  config: Config,
  request: {job: Job; claim?: Claim | undefined},
  world: World,
  describe?: (release: Release) => Promise<{title: string; words: string; file: string}>,
): Promise<JobResult> {
  const {job} = request
  const notify = job.steps.find((step) => step.do === 'notify')
  const folder = dataFolderAt(config.dataDir)
  try {
    const result = await executeRun(config, request, world, (slot) => runJob(config, {job, slot}, world))
    if (job.steps.some((step) => step.do === 'sync')) await pingDeadMan(config, world)
    const release = findCurrentRelease(folder)
    if (notify?.digest && describe && release && result.outcome === 'done') {
      try {
        using stateDb = openStateDb(folder.stateDb)
        const digest = {day: release.manifest.as_of, ...(await describe(release))}
        queueDigest(stateDb, config, digest, world.realClock.now())
      } catch (error) {
        // What the job is for is done.
        world.log.warn({reason: scrubSecrets(messageOf(error))}, 'the figures of the day could not be told')
      }
    }
    return result
  } finally {
    if (notify) {
      using stateDb = openStateDb(folder.stateDb)
      await tellPeople(stateDb, config, world, findCurrentRelease(folder)?.manifest)
    }
  }
}
