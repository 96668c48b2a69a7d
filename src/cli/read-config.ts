import {existsSync, readFileSync, realpathSync} from 'node:fs'
import {dirname, isAbsolute, join, resolve} from 'node:path'
import {parseEnv} from 'node:util'
import {type Config, parseConfig} from '../config.ts'
import {parseChildStreams} from '../contract/streams.ts'
import {codeOf, newError} from '../errors.ts'
import {isInside} from '../warehouse/data-folder.ts'
import type {Cli, CommonOptions} from './context.ts'
import {ENV_FILE, findSource, type SourceFolder} from './source-folder.ts'

/** The effective settings: `--data` goes over the environment. */
export function readConfig(surroundings: Pick<Cli, 'env' | 'envFile'>, options: CommonOptions): Config {
  const {env: own, envFile} = surroundings
  const dir = envFile === undefined ? undefined : dirname(resolve(envFile))
  const source = dir === undefined ? undefined : findSource(dir)
  const env = {
    ...(source && readCommonEnv(source)),
    ...(envFile !== undefined && readEnvFile(envFile)),
    ...own,
  }
  const given = options.data === undefined ? env : {...env, LOANTAPE_DATA_DIR: options.data}
  const config = parseConfig(given, {
    readFile(path) {
      if (source) requireOwnPlace(source, path)
      return readFileSync(dir === undefined ? path : resolve(dir, path), 'utf8')
    },
  })
  parseChildStreams(config.streams)
  if (!source) return config
  const {dataDir, sqlDir, jobsDir, accountingFile, targetsFile, ratesFile, tapeKeyFile} = config
  const named = [sqlDir, jobsDir, accountingFile, targetsFile, ratesFile, tapeKeyFile]
  for (const path of [...named, options.data === undefined ? dataDir : undefined])
    if (path !== undefined) requireOwnPlace(source, path)
  if (config.clickhouseSource !== source.name)
    throw newError(
      'FLEET_DATA_SHARED',
      `Name '${config.clickhouseSource}' in LOANTAPE_CLICKHOUSE_SOURCE of source '${source.name}': expected its own.`,
      {next: 'Leave the setting out.'},
    )
  return {...config, source: source.name}
}

/**
 * Nothing that a source names lies in the folder of another, nor is it what the fleet alone may read.
 *
 * @throws ConfigError `FLEET_DATA_SHARED`
 */
function requireOwnPlace({name, dir, fleetDir}: SourceFolder, path: string): void {
  const place = resolve(dir, path)
  const named = isAbsolute(path) ? path : `${dir}/${path}`
  // Where the system gets to, which follows a link before the `..` behind it.
  const reached = existsSync(named) ? realpathSync.native(named) : place
  const isForeign = (one: string) =>
    !isInside(one, dir) && (isInside(one, dirname(dir)) || isInside(one, join(fleetDir, ENV_FILE)))
  if (!isForeign(place) && !isForeign(reached)) return
  throw newError('FLEET_DATA_SHARED', `Path '${place}' of source '${name}' lies in another's.`)
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
 * @throws ConfigError `ENV_FILE` when it is there and cannot be read
 */
function readEnvFile(path: string): Record<string, string | undefined> {
  try {
    // The mark that Windows editors begin a file with would make the first name another one.
    return parseEnv(readFileSync(path, 'utf8').replace(/^\uFEFF/, ''))
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return {}
    throw newError(
      'ENV_FILE',
      `Settings '${path}' cannot be read (${codeOf(error)}): expected a text file.`,
      {cause: error},
    )
  }
}
