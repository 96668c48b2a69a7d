import {existsSync, readdirSync, readFileSync, realpathSync, statSync} from 'node:fs'
import {basename, dirname, join, resolve} from 'node:path'
import {parseEnv} from 'node:util'
import {parseChildStreams} from '../contract/streams.ts'
import {type Config, parseConfig} from '../core/config.ts'
import {codeOf, newError} from '../core/errors.ts'
import {ENV_FILE, type Fixed, SOURCE_NAME} from '../core/settings.ts'
import {requireOwnPlace} from '../store/data-folder.ts'
import type {Cli, CommonOptions} from './context.ts'

/** The effective settings: `--data` goes over the environment. */
export function readConfig(
  {env: own, envFile, fixed}: Pick<Cli, 'env' | 'envFile'> & {fixed?: Partial<Fixed> | undefined},
  options: CommonOptions,
): Config {
  const dir = envFile === undefined ? undefined : dirname(resolve(envFile))
  const source = dir === undefined ? undefined : findSource(dir)
  const env = {
    ...(source && readCommonEnv(source)),
    ...(envFile !== undefined && readEnvFile(envFile)),
    ...own,
  }
  const given = options.data === undefined ? env : {...env, LOANTAPE_DATA_DIR: options.data}
  const parsed = parseConfig(given, {
    readFile(path) {
      if (source) requireOwnPlace({sourceDir: source.dir}, path)
      return readFileSync(dir === undefined ? path : resolve(dir, path), 'utf8')
    },
  })
  const config = {...parsed, ...fixed}
  parseChildStreams(config.streams)
  if (!source) return config
  const {dataDir, sqlDir, jobsDir, accountingFile, targetsFile, ratesFile, tapeKeyFile} = config
  const named = [sqlDir, jobsDir, accountingFile, targetsFile, ratesFile, tapeKeyFile]
  for (const path of [...named, options.data === undefined ? dataDir : undefined])
    if (path !== undefined) requireOwnPlace({sourceDir: source.dir}, path)
  const links = [
    ...listLinks(source.dir),
    ...listLinks(resolve(source.dir, dataDir)),
    ...[sqlDir, jobsDir].flatMap((own) =>
      own === undefined ? [] : listLinks(resolve(source.dir, own), {recursive: true}),
    ),
  ]
  for (const link of links) requireOwnPlace({sourceDir: source.dir}, link)
  if (config.clickhouseSource !== source.name)
    throw newError(
      'FLEET_DATA_SHARED',
      `Name '${config.clickhouseSource}' in LOANTAPE_CLICKHOUSE_SOURCE of source '${source.name}': expected its own.`,
      {next: 'Leave the setting out.'},
    )
  return {...config, source: source.name, sourceDir: source.dir}
}

/** The links in a folder: a lender's people may put them where we read. */
function listLinks(folder: string, {recursive = false}: {recursive?: boolean} = {}): string[] {
  if (!statSync(folder, {throwIfNoEntry: false})?.isDirectory()) return []
  return readdirSync(folder, {withFileTypes: true, recursive})
    .filter((entry) => entry.isSymbolicLink())
    .map(({parentPath, name}) => join(parentPath, name))
}

/** What the fleet's own process needs, and what no two sources may share. */
const NOT_COMMON = /^LOANTAPE_(WEB_|FLEET_|DATA_DIR$|POSTGRES_URL)/

/** What a source has unless its own settings say otherwise: the settings of its fleet, its name, and its folder of jobs. */
function readCommonEnv({name, dir, fleetDir}: SourceFolder): Record<string, string | undefined> {
  const common = Object.entries(readEnvFile(join(fleetDir, ENV_FILE)))
  return {
    ...Object.fromEntries(common.filter(([setting]) => !NOT_COMMON.test(setting))),
    LOANTAPE_CLICKHOUSE_SOURCE: name,
    ...(existsSync(join(dir, 'jobs')) && {LOANTAPE_JOBS_DIR: 'jobs'}),
  }
}

/**
 * The settings of a `.env` file; none when there is no such file.
 *
 * @throws ConfigError `CONFIG_INVALID` when it is there and cannot be read
 */
function readEnvFile(path: string): Record<string, string | undefined> {
  try {
    // The mark that Windows editors begin a file with would make the first name another one.
    return parseEnv(readFileSync(path, 'utf8').replace(/^\uFEFF/, ''))
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return {}
    throw newError(
      'CONFIG_INVALID',
      `Settings '${path}' cannot be read (${codeOf(error)}): expected a text file.`,
      {
        next: 'Correct or remove it; a container makes a folder of a file that is mounted and not there.',
        cause: error,
      },
    )
  }
}

const SOURCES = 'sources'

/** A working folder of one lender beside others: `<fleet>/sources/<name>`. */
interface SourceFolder {
  name: string
  dir: string
  fleetDir: string
}

/** The source whose working folder this is; undefined where it is no fleet's, which has a file of settings, be it empty. */
function findSource(dir: string): SourceFolder | undefined {
  const [sources, name] = [dirname(dir), basename(dir)]
  const fleetDir = dirname(sources)
  if (basename(sources) !== SOURCES || !SOURCE_NAME.test(name)) return undefined
  return existsSync(join(fleetDir, ENV_FILE)) ? {name, dir, fleetDir} : undefined
}

/**
 * The names of a fleet's sources, sorted, those that are no name of a source among them; what begins with a dot is none.
 *
 * @throws ConfigError `FLEET_NONE`
 */
export function listSources(fleetDir: string): string[] {
  if (!existsSync(join(fleetDir, ENV_FILE))) {
    throw newError('FLEET_NONE', `No fleet in '${fleetDir}': expected a file '${ENV_FILE}' there.`)
  }
  const sources = join(fleetDir, SOURCES)
  try {
    const entries = readdirSync(sources, {withFileTypes: true})
    // A link is refused by its name, not left out without a word.
    const folders = entries.filter((entry) => entry.isDirectory() || entry.isSymbolicLink())
    return folders
      .map(({name}) => name)
      .filter((name) => !name.startsWith('.'))
      .sort()
  } catch (cause) {
    throw newError(
      'FLEET_NONE',
      `No fleet in '${fleetDir}': folder '${sources}' cannot be read (${codeOf(cause)}).`,
      {
        cause,
      },
    )
  }
}

/**
 * The folder of one source of a fleet.
 *
 * @throws ConfigError `FLEET_SOURCE`
 */
export function requireSourceFolder(fleetDir: string, name: string): SourceFolder {
  const dir = join(fleetDir, SOURCES, name)
  if (!SOURCE_NAME.test(name)) {
    throw newError(
      'FLEET_SOURCE',
      `Folder '${dir}': expected a name of lower-case letters, digits and _, a letter first, 40 at most.`,
      {next: 'Give the folder another name, or move it out of sources.'},
    )
  }
  try {
    // A process in a folder that is reached by a link would not know that it is a source, and go without its settings.
    const real = findSource(realpathSync(dir))
    const isReal = real?.name === name && real.fleetDir === realpathSync(fleetDir)
    if (isReal && statSync(dir).isDirectory()) return {name, dir, fleetDir}
  } catch (cause) {
    throw newError('FLEET_SOURCE', `Folder '${dir}' cannot be read (${codeOf(cause)}).`, {cause})
  }
  throw newError('FLEET_SOURCE', `'${dir}': expected a folder, and no link to one.`)
}
