import {readFileSync} from 'node:fs'
import {parseEnv} from 'node:util'
import {codeOf, newError} from '../errors.ts'

/**
 * The settings of a `.env` file; none when there is no such file.
 *
 * @throws ConfigError `ENV_FILE` when it is there and cannot be read
 */
export function readEnvFile(path: string): Record<string, string | undefined> {
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
