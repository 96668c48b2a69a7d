import {spawnSync} from 'node:child_process'
import {existsSync, readdirSync, readFileSync, realpathSync, statSync} from 'node:fs'
import {basename, dirname, join, resolve} from 'node:path'
import {parseEnv} from 'node:util'
import {parseChildStreams} from '../contract/streams.ts'
import {type Config, listPaths, parseConfig} from '../core/config.ts'
import {codeOf, newError, tolerate} from '../core/errors.ts'
import {ENV_FILE, type Fixed, SOURCE_NAME} from '../core/settings.ts'
import {requireOwnPlace} from '../store/data-folder.ts'
import {isFile, readWrittenText} from '../store/files.ts'
import type {Cli, CommonOptions} from './context.ts'

const SOURCES = 'sources'

type Around = Pick<Cli, 'env' | 'envFile'>

/** All that sets something; the later ones win. */
export function listSettings({env: own, envFile}: Around, {data}: CommonOptions) {
  const dir = envFile === undefined ? undefined : dirname(resolve(envFile))
  const source = dir === undefined ? undefined : findSource(dir)
  const layers: [from: string, env: Cli['env']][] = [
    ['fleet', source ? readCommonEnv(source, own) : {}],
    ['.env', envFile === undefined ? {} : readEnvFile(envFile, own)],
    ['environment', own],
    ['--data', data === undefined ? {} : {LOANTAPE_DATA_DIR: data}],
  ]
  return {dir, source, layers, env: Object.assign({}, ...layers.map(([, env]) => env)) as Cli['env']}
}

export function readConfig(
  {fixed, ...around}: Around & {fixed?: Partial<Fixed> | undefined},
  options: CommonOptions,
): Config {
  if (options.data === '')
    throw newError(
      'USAGE',
      "Folder '' in --data: expected a path; without the option, LOANTAPE_DATA_DIR says.",
    )
  const {dir, source, env} = listSettings(around, options)
  const parsed = parseConfig(env, {
    readFile(path) {
      if (source) requireOwnPlace({sourceDir: source.dir}, path)
      return readFileSync(dir === undefined ? path : resolve(dir, path), 'utf8')
    },
    ...(!source && {run: runForSecret}),
  })
  const config = {...parsed, ...fixed}
  if (tolerate(['EACCES', 'ENOTDIR'], () => isFile(resolve(dir ?? '.', config.dataDir))))
    throw newError('NOT_WRITABLE', `Data folder '${config.dataDir}' cannot be written: it is a file.`)
  parseChildStreams(config.streams)
  if (!source) return config
  const {dataDir, sqlDir, jobsDir} = config
  // The caller may name another data folder with `--data`.
  const named = listPaths(config).filter((path) => options.data === undefined || path !== dataDir)
  // Before links are listed, so that nobody else's folder is read.
  for (const path of named) requireOwnPlace({sourceDir: source.dir}, path)
  const links = [
    ...listLinks(source.dir),
    ...listLinks(resolve(source.dir, dataDir)),
    ...[sqlDir, jobsDir].flatMap((own) => (own ? listLinks(resolve(source.dir, own), true) : [])),
  ]
  for (const path of links) requireOwnPlace({sourceDir: source.dir}, path)
  if (config.clickhouseSource !== source.name)
    throw newError(
      'FLEET_DATA_SHARED',
      `Name '${config.clickhouseSource}' in LOANTAPE_CLICKHOUSE_SOURCE of source '${source.name}': expected its own.`,
      {next: 'Remove the setting.'},
    )
  return {...config, source: source.name, sourceDir: source.dir}
}

const COMMAND_MS = 30_000

/** Neither the command nor its output is told to anybody. @throws DeferredError `SECRET_COMMAND` */
function runForSecret(name: string, command: string): string {
  const {stdout, status, signal, error} = spawnSync(command, {
    shell: true,
    encoding: 'utf8',
    timeout: COMMAND_MS,
    killSignal: 'SIGKILL',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  if (!error && status === 0 && stdout.trim() !== '') return stdout
  const what = error
    ? `failed (${codeOf(error)})`
    : status === 0
      ? 'printed nothing'
      : `ended with ${signal ?? status}`
  throw newError('SECRET_COMMAND', `The command of ${name} ${what}: expected a secret.`)
}

/** A lender's people may put links into folders that we read. */
function listLinks(folder: string, recursive = false): string[] {
  if (!statSync(folder, {throwIfNoEntry: false})?.isDirectory()) return []
  return readdirSync(folder, {withFileTypes: true, recursive})
    .filter((entry) => entry.isSymbolicLink())
    .map(({parentPath, name}) => join(parentPath, name))
}

/** Settings of the fleet's own process, and settings that sources must not share. */
const NOT_COMMON = /^LOANTAPE_(WEB_|FLEET_|DATA_DIR$|POSTGRES_URL)/

/** The settings of a source's fleet, its name, and its folder of jobs. */
function readCommonEnv({name, dir, fleetDir}: NonNullable<ReturnType<typeof findSource>>, own: Cli['env']) {
  const common = Object.entries(readEnvFile(join(fleetDir, ENV_FILE), own))
  return {
    ...Object.fromEntries(common.filter(([setting]) => !NOT_COMMON.test(setting))),
    LOANTAPE_CLICKHOUSE_SOURCE: name,
    ...(existsSync(join(dir, 'jobs')) && {LOANTAPE_JOBS_DIR: 'jobs'}),
  }
}

const QUOTED = `"[^"]*"|'[^']*'|\`[^\`]*\``

/**
 * Matches what Node reads as one setting (a quoted value may have several lines), as a comment, or as an empty line; nothing if
 * Node would cut the value short, at a `#` within it or behind its quotes.
 */
const ENTRY = new RegExp(
  String.raw`[^\S\n]*(?:(?:export )?[^\S\n]*\w+[^\S\n]*=[^\S\n]*(?:${QUOTED}|(?![^\S\n]*(?:${QUOTED}))[^\n#]*)[^\S\n]*(?:(?<=\s)#[^\n]*)?|#[^\n]*)?(?:\n|$)`,
  'gy',
)

/** A missing file has no settings. @throws ConfigError `CONFIG_INVALID` if it cannot be read */
function readEnvFile(path: string, own: Cli['env']): Record<string, string | undefined> {
  const refuse = (problem: string, cause?: unknown) =>
    newError('CONFIG_INVALID', `Settings '${path}' ${problem}.`, {
      next: 'Correct or remove it; a container creates a folder for a mounted file that does not exist.',
      cause,
    })
  try {
    // After a setting with only blanks as its value, Node would read the next line as the value.
    const text = readWrittenText(path, refuse).replace(/=[^\S\n]+$/gm, '=')
    const read = text.match(ENTRY)?.join('') ?? ''
    if (read !== text)
      throw refuse(
        `line ${read.split('\n').length}: expected NAME=value, in quotes if it has a #, a comment or nothing`,
      )
    const settings = parseEnv(text)
    const command = Object.keys(settings).find((name) => name.endsWith('_COMMAND'))
    if (command === undefined || isOurs(path, own)) return settings
    throw refuse(
      `names a command (${command}), and others could have written it: expected a file that is yours alone (chmod 600)`,
    )
  } catch (error) {
    if (error instanceof Error && codeOf(error.cause) === 'ENOENT') return {}
    throw error
  }
}

/** Its commands are run only if it belongs to this user, to root or to the caller of `sudo`, and only that user may write it. */
function isOurs(path: string, {SUDO_UID}: Cli['env']): boolean {
  const {uid, mode} = statSync(path)
  const us = [0, process.getuid?.() ?? uid, Number(SUDO_UID)]
  return us.includes(uid) && (mode & 0o022) === 0
}

/** A working folder is `<fleet>/sources/<name>`, and the folder of a fleet has an `.env`. */
function findSource(dir: string) {
  const [sources, name] = [dirname(dir), basename(dir)]
  const fleetDir = dirname(sources)
  if (basename(sources) !== SOURCES || !SOURCE_NAME.test(name)) return undefined
  return existsSync(join(fleetDir, ENV_FILE)) ? {name, dir, fleetDir} : undefined
}

/** Includes invalid names, but none that begins with a dot. @throws ConfigError `FLEET_NONE` */
export function listSources(fleetDir: string): string[] {
  if (!existsSync(join(fleetDir, ENV_FILE)))
    throw newError('FLEET_NONE', `No fleet in '${fleetDir}': expected a file '${ENV_FILE}' there.`)
  const sources = join(fleetDir, SOURCES)
  try {
    const entries = readdirSync(sources, {withFileTypes: true})
    // Includes links, so that they are refused by name instead of ignored.
    const folders = entries.filter((entry) => entry.isDirectory() || entry.isSymbolicLink())
    return folders
      .map(({name}) => name)
      .filter((name) => !name.startsWith('.'))
      .sort()
  } catch (cause) {
    const problem = `No fleet in '${fleetDir}': folder '${sources}' cannot be read (${codeOf(cause)}).`
    throw newError('FLEET_NONE', problem, {cause})
  }
}

/** @throws ConfigError `FLEET_SOURCE` */
export function requireSourceFolder(fleetDir: string, name: string): string {
  const dir = join(fleetDir, SOURCES, name)
  if (!SOURCE_NAME.test(name)) {
    throw newError(
      'FLEET_SOURCE',
      `Folder '${dir}': expected a name of lower-case letters, digits and _, a letter first, 40 at most.`,
      {next: 'Give the folder another name, or move it out of sources.'},
    )
  }
  try {
    // A process started in a linked folder would not find its fleet, and so lack its settings.
    const isReal = realpathSync(dir) === join(realpathSync(fleetDir), SOURCES, name)
    if (isReal && statSync(dir).isDirectory()) return dir
  } catch (cause) {
    throw newError('FLEET_SOURCE', `Folder '${dir}' cannot be read (${codeOf(cause)}).`, {cause})
  }
  throw newError('FLEET_SOURCE', `'${dir}': expected a folder, not a link to one.`)
}
