import {readFileSync} from 'node:fs'
import {parseEnv} from 'node:util'
import {type Config, parseConfig} from '../config.ts'
import {parseChildStreams} from '../contract/streams.ts'
import {codeOf, newError} from '../errors.ts'
import type {Cli, CommonOptions} from './context.ts'

/** The effective settings: `--data` goes over the environment. */
export function readConfig(surroundings: Pick<Cli, 'env' | 'envFile'>, options: CommonOptions): Config {
  const {env: own, envFile} = surroundings
  const env = {...(envFile !== undefined && readEnvFile(envFile)), ...own}
  const given = options.data === undefined ? env : {...env, LOANTAPE_DATA_DIR: options.data}
  const config = parseConfig(given, {readFile: (path) => readFileSync(path, 'utf8')})
  parseChildStreams(config.streams)
  return config
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
      `Settings '${path}' in the working folder cannot be read (${codeOf(error)}): expected a text file.`,
      {cause: error},
    )
  }
}
