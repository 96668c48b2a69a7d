import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
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

/** The files of a folder with this ending, in the order of their names; none where there is no such folder. */
export function listFiles(folder: string, ending: string): string[] {
  if (!existsSync(folder)) return []
  const names = readdirSync(folder).filter((name) => name.endsWith(ending))
  return names.sort().map((name) => join(folder, name))
}

/** The comment lines at the top of a model or check, and the whole of it without the semicolon at its end. */
export function splitHeader(text: string): {header: string[]; sql: string} {
  const lines = text.split('\n')
  const end = lines.findIndex((line) => !line.startsWith('--'))
  return {header: end === -1 ? lines : lines.slice(0, end), sql: text.replace(/;\s*$/, '\n')}
}
