import {readFileSync} from 'node:fs'
import {parseEnv} from 'node:util'
import {ConfigError, codeOf} from '../errors.ts'

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
    throw new ConfigError({
      code: 'ENV_FILE',
      problem: `Settings '${path}' in the working folder cannot be read (${codeOf(error)}): expected a text file.`,
      kept: 'Nothing was started.',
      next: 'Mend or remove it; a container makes a folder of a file that is mounted and not there.',
      cause: error,
    })
  }
}
