import {join, resolve} from 'node:path'
import pLimit from 'p-limit'
import {type Config, requireSource} from '../config.ts'
import type {Place} from '../process.ts'
import {type Job, readJobs} from '../schedule/job.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'
import type {Cli} from './context.ts'
import {readConfig} from './read-config.ts'
import {ENV_FILE, requireSourceFolder} from './source-folder.ts'

/** While the state database of one source is waited for, no other is looked at. */
export const PATIENCE_MS = 500

/** Job files have to be read within a time: hundreds of sources at once would take it from each other. */
const inTurn = pLimit(8)

/** One lender of a fleet as it is set up. */
export interface Source {
  config: Config
  folder: DataFolder
  jobs: readonly Job[]
  /** Where its processes live: in its folder, from which they read its settings themselves. */
  place: Place
}

/** What a process of a source has of our environment: where programs and files are, and nothing that anybody set for us. */
const INHERITED = [
  'PATH',
  'HOME',
  'USER',
  'LANG',
  'LC_ALL',
  'TZ',
  'TMPDIR',
  'XDG_CONFIG_HOME',
  'NODE_COMPILE_CACHE',
  'NODE_EXTRA_CA_CERTS',
  'SSL_CERT_DIR',
  'SSL_CERT_FILE',
]

/**
 * Reads a source as its own processes would.
 *
 * @throws ConfigError whatever is wrong with its folder, its settings or its jobs; `FLEET_DATA_SHARED` when it names another's data
 */
export async function readSource(cli: Pick<Cli, 'env'>, fleetDir: string, name: string): Promise<Source> {
  const {dir} = requireSourceFolder(fleetDir, name)
  const env = Object.fromEntries(INHERITED.map((variable) => [variable, cli.env[variable]]))
  const {dataDir, jobsDir, ...settings} = requireSource(readConfig({env, envFile: join(dir, ENV_FILE)}, {}))
  const config = {
    ...settings,
    dataDir: resolve(dir, dataDir),
    ...(jobsDir !== undefined && {jobsDir: resolve(dir, jobsDir)}),
  }
  return {
    config,
    folder: dataFolderAt(config.dataDir),
    jobs: await inTurn(() => readJobs(config)),
    place: {env, cwd: dir},
  }
}
