import {createHash, createHmac, hkdfSync, randomBytes} from 'node:crypto'
import {existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync} from 'node:fs'
import {dirname} from 'node:path'
import {codeOf, type LoantapeError, newError} from '../errors.ts'
import {syncToDisk} from '../warehouse/atomic-file.ts'
import {isInside} from '../warehouse/data-folder.ts'

/** The key that tapes are sealed with. */
export interface TapeKey {
  /** 32 of them. */
  bytes: Buffer
  /** Names the key without giving it away: 16 hex digits. */
  fingerprint: string
}

const KEY_TEXT = /^[0-9a-f]{64}$/

/** The key of 32 bytes. */
export function createTapeKey(bytes: Buffer): TapeKey {
  const digest = createHash('sha256').update('loantape tape key').update(bytes).digest('hex')
  return {bytes, fingerprint: digest.slice(0, 16)}
}

/** The MAC of a text under a key of its own that is derived for this purpose: 64 hex digits. */
export function computeMac({bytes}: TapeKey, purpose: string, text: string): string {
  const derived = Buffer.from(hkdfSync('sha256', bytes, '', purpose, 32))
  return createHmac('sha256', derived).update(text).digest('hex')
}

/**
 * Reads a key; undefined where its file is not there.
 *
 * @throws ConfigError `TAPE_KEY_FILE` for a file inside the data folder, where whoever copies the folder would have both,
 * `TAPE_KEY_FILE`
 */
export function readTapeKey(file: string, root: string): TapeKey | undefined {
  requireOutside(file, root)
  if (!existsSync(file)) return undefined
  let text: string
  try {
    text = readFileSync(file, 'utf8').trim()
  } catch (cause) {
    throw createUnreadable(file, `cannot be read (${codeOf(cause)})`, cause)
  }
  if (!KEY_TEXT.test(text)) throw createUnreadable(file, 'expected 64 hex digits')
  return createTapeKey(Buffer.from(text, 'hex'))
}

/**
 * Makes a new key, readable by its owner alone. Where another process, such as the first walk of another lender, has just made one,
 * that is the key: replaced, it would leave tapes that nobody can read.
 *
 * @throws ConfigError `TAPE_KEY_FILE`
 */
export function makeTapeKey(file: string, root: string): TapeKey {
  requireOutside(file, root)
  const bytes = randomBytes(32)
  const temporary = `${file}.tmp-${process.pid}`
  try {
    mkdirSync(dirname(file), {recursive: true, mode: 0o700})
    writeFileSync(temporary, `${bytes.toString('hex')}\n`, {mode: 0o600})
    syncToDisk(temporary)
    putInPlace(temporary, file)
    syncToDisk(dirname(file))
  } catch (cause) {
    const other = codeOf(cause) === 'EEXIST' ? readTapeKey(file, root) : undefined
    if (other) return other
    throw newError('TAPE_KEY_FILE', `Key of tapes '${file}' cannot be written (${codeOf(cause)}).`, {
      cause,
    })
  }
  return createTapeKey(bytes)
}

/** What file systems without hard links say to one. */
const NO_LINKS = ['EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS']

/** Gives the file its name unless there is one of that name; a file system without hard links takes the last one. */
function putInPlace(temporary: string, file: string): void {
  try {
    linkSync(temporary, file)
  } catch (error) {
    if (!NO_LINKS.includes(codeOf(error))) throw error
    renameSync(temporary, file)
  } finally {
    rmSync(temporary, {force: true})
  }
}

function requireOutside(file: string, root: string): void {
  if (!isInside(file, root)) return
  throw newError(
    'TAPE_KEY_FILE',
    `Key of tapes '${file}' in LOANTAPE_TAPE_KEY_FILE: expected a file outside the data folder, whose copies it would open.`,
  )
}

function createUnreadable(file: string, problem: string, cause?: unknown): LoantapeError {
  return newError('TAPE_KEY_FILE', `Key of tapes '${file}' in LOANTAPE_TAPE_KEY_FILE: ${problem}.`, {
    cause,
  })
}
