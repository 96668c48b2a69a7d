import {sleepUntilStopped} from '../clock.ts'
import type {Config} from '../config.ts'
import {isEnabled, readJobs} from '../schedule/job.ts'
import {openStateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt, isDemoFolder, requireWritable} from '../warehouse/data-folder.ts'
import type {Call, CliCommand} from './command.ts'
import {logLookFailure, watchFolder} from './watch-folder.ts'

const TICK_MS = 1000

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
      const watch = watchFolder({config, folder, stateDb, jobs}, world)
      // Loaded here: no other command needs a web server.
      const {startWeb} = await import('../web/web-server.ts')
      await using web = options.web ? await startWeb(config, {stateDb, folder, jobs}, world) : undefined
      if (web) world.log.info({url: web.url}, 'web side listens')
      world.log.info({count: jobs.length, job: jobs.map(({name}) => name).join(', ')}, 'scheduler begins')
      while (!world.signal.aborted) {
        try {
          watch.look()
        } catch (error) {
          // A full disk or a state database that is busy for long must not end the server: the next tick looks again.
          logLookFailure(error, world)
        }
        await sleepUntilStopped(world.realClock, TICK_MS, world.signal)
      }
      await watch.settled()
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
