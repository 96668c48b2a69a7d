import {existsSync, readFileSync} from 'node:fs'
import {dirname, join, resolve} from 'node:path'
import {parseEnv} from 'node:util'
import {type Config, parseConfig} from '../config.ts'
import {parseChildStreams} from '../contract/streams.ts'
import {codeOf, newError} from '../errors.ts'
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
    readFile: (path) => readFileSync(dir === undefined ? path : resolve(dir, path), 'utf8'),
  })
  parseChildStreams(config.streams)
  return source ? {...config, source: source.name} : config
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
