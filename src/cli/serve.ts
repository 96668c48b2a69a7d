import {tellPeople} from '../alarm/tell.ts'
import {sleepUntilStopped} from '../clock.ts'
import type {Config} from '../config.ts'
import {explainError} from '../errors.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {isEnabled, readJobs, WEBHOOK_JOB} from '../schedule/job.ts'
import {startJobProcess} from '../schedule/job-process.ts'
import {createScheduler, type Scheduler} from '../schedule/scheduler.ts'
import {adoptRun} from '../state/job-runs.ts'
import {openStateDb, type StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt, isDemoFolder, requireWritable} from '../warehouse/data-folder.ts'
import type {Call, CliCommand} from './command.ts'

const TICK_MS = 1000
/** How often it is looked whether people are to be told anything. */
const TELL_EVERY_MS = 5000

/** `loantape serve`. */
export default function addServe(command: CliCommand): void {
  command
    .description('run every job when it is due, and the web side, until stopped')
    .example('serve')
    .option('--no-web', 'the scheduler alone')
    .does(async ({config, options, world}: Call<{web: boolean}>) => {
      const folder = dataFolderAt(config.dataDir)
      if (isDemoFolder(folder)) return await showDemo(config, folder, world)
      const jobs = (await readJobs(config)).filter(isEnabled)
      requireWritable(folder)
      using stateDb = openStateDb(folder.stateDb)
      const scheduler = createScheduler(
        {
          stateDb,
          jobs,
          startRun: (run) => {
            const command = run.job === WEBHOOK_JOB ? ['events', 'apply'] : ['run', run.job]
            const onStarted = (pid: number) => {
              adoptRun(stateDb, {jobRunId: run.job_run_id, attempt: run.attempt, pid}, world.realClock.now())
            }
            return startJobProcess(run, {args: [...command, '--data', folder.root], onStarted}, world)
          },
        },
        world,
      )
      // Loaded here: no other command needs a web server.
      const {startWeb} = await import('../web/web-server.ts')
      await using web = options.web ? await startWeb(config, {stateDb, folder, jobs}, world) : undefined
      if (web) world.log.info({url: web.url}, 'web side listens')
      world.log.info({count: jobs.length, job: jobs.map(({name}) => name).join(', ')}, 'scheduler begins')
      await tickUntilStopped({scheduler, stateDb, config}, world)
      await scheduler.idle()
      world.log.info('stopped')
    })
}

/** What a demo made is there to be looked at: nothing is due, and nothing comes in. */
async function showDemo(config: Config, folder: DataFolder, world: World): Promise<void> {
  using stateDb = openStateDb(folder.stateDb)
  const {startWeb} = await import('../web/web-server.ts')
  const deaf = {...config, webhookSecret: undefined, webhookSecretPrevious: undefined}
  await using web = await startWeb(deaf, {stateDb, folder, jobs: []}, world)
  world.log.info({url: web.url}, 'web side listens')
  while (!world.signal.aborted) await sleepUntilStopped(world.realClock, TICK_MS, world.signal)
}

async function tickUntilStopped(
  {scheduler, stateDb, config}: {scheduler: Scheduler; stateDb: StateDb; config: Config},
  world: World,
): Promise<void> {
  let telling: Promise<void> | undefined
  let toldAt = 0
  while (!world.signal.aborted) {
    try {
      scheduler.tick()
      const now = world.realClock.now()
      if (!telling && now - toldAt >= TELL_EVERY_MS) {
        toldAt = now
        telling = tellPeople(
          stateDb,
          config,
          world,
          findCurrentRelease(dataFolderAt(config.dataDir))?.manifest,
        )
          .catch((error: unknown) => logFailure(error, world))
          .finally(() => {
            telling = undefined
          })
      }
    } catch (error) {
      // A full disk or a state database that is busy for long must not end the server: the next tick looks again.
      logFailure(error, world)
    }
    await sleepUntilStopped(world.realClock, TICK_MS, world.signal)
  }
  await telling
}

function logFailure(error: unknown, {log}: World): void {
  const {code, message} = explainError(error)
  log.error({code, reason: message}, 'the schedule could not be looked at; it is looked at again')
}
