import {isUtf8} from 'node:buffer'
import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {codeOf, type LoantapeError, newError} from '../errors.ts'

/**
 * Reads a model, check or seed, which people write with any editor: without a byte order mark, lines ending in LF.
 *
 * @throws CheckError `SQL_FILE` when it cannot be read or is no UTF-8
 */
export function readSqlFile(path: string): string {
  let bytes: Buffer
  try {
    bytes = readFileSync(path)
  } catch (error) {
    throw newError('SQL_FILE', `File '${path}' cannot be read (${codeOf(error)}): expected a text file.`, {
      cause: error,
    })
  }
  const text = bytes.toString()
  if (!isUtf8(bytes)) throw explainByte(path, bytes, text)
  return text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n')
}

/** Names the first byte that is no UTF-8: decoded, it is the first character that the bytes do not have. */
function explainByte(path: string, bytes: Buffer, text: string): LoantapeError {
  const isOther = (index: number) => {
    const at = Buffer.byteLength(text.slice(0, index))
    return bytes.subarray(at, at + 3).toString('hex') !== 'efbfbd'
  }
  const before = text.slice(0, text.matchAll(/\uFFFD/g).find(({index}) => isOther(index))?.index)
  const byte = bytes[Buffer.byteLength(before)]?.toString(16).toUpperCase()
  const lines = before.split('\n')
  return newError(
    'SQL_FILE',
    `Byte 0x${byte} in ${path}:${lines.length}:${(lines.at(-1)?.length ?? 0) + 1}: expected UTF-8, which editors and spreadsheets offer when a file is saved.`,
  )
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
