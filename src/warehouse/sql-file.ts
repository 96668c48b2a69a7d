import {readFileSync} from 'node:fs'
import {codeOf, newError} from '../errors.ts'

/**
 * Reads a model, check or seed, which people write with any editor: without a byte order mark, lines ending in LF.
 *
 * @throws CheckError `SQL_FILE` when it cannot be read
 */
export function readSqlFile(path: string): string {
  try {
    return readFileSync(path, 'utf8')
      .replace(/^\uFEFF/, '')
      .replaceAll('\r\n', '\n')
  } catch (error) {
    throw newError('SQL_FILE', `File '${path}' cannot be read (${codeOf(error)}): expected a text file.`, {
      cause: error,
    })
  }
}
