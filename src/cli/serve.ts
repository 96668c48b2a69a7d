import {isEnabled, readJobs} from '../schedule/job.ts'
import {createSupervisor} from '../schedule/supervisor.ts'
import {openStateDb} from '../state/state-db.ts'
import {dataFolderAt, isDemoFolder, requireWritable} from '../warehouse/data-folder.ts'
import type {Call, CliCommand} from './command.ts'

/** `loantape serve`: a fleet of one, with its workbench. */
export default function addServe(command: CliCommand): void {
  command
    .description('run every job when it is due, and the web side, until stopped')
    .example('serve')
    .option('--no-web', 'the scheduler alone')
    .does(async ({config: given, options, world}: Call<{web: boolean}>) => {
      const folder = dataFolderAt(given.dataDir)
      // What a demo made is there to be looked at: nothing is due, and nothing comes in.
      const isDemo = isDemoFolder(folder)
      const config = isDemo ? {...given, webhookSecret: undefined} : given
      const jobs = isDemo ? [] : await readJobs(config)
      if (!isDemo) requireWritable(folder)
      using stateDb = openStateDb(folder.stateDb)
      const source = {config, folder, jobs}
      // Loaded here: without pages no web server is needed.
      const {startWeb} = await import('../web/web-server.ts')
      const tools = {stateDb, folder, jobs: jobs.filter(isEnabled)}
      await using web = options.web ? await startWeb(config, tools, world) : undefined
      if (web) world.log.info({url: web.url}, 'web side listens')
      const list = () => (isDemo ? [] : [''])
      const supervisor = createSupervisor({list, read: async () => source, runs: 1}, world)
      await supervisor.begin()
      await supervisor.run()
    })
}
