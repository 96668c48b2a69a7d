import {hash} from 'node:crypto'
import {existsSync} from 'node:fs'
import type {Config} from '../core/config.ts'
import {codeOf, findMachineFault, type LoantapeError, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, isInside} from './data-folder.ts'
import {readWrittenText, writeNewKey} from './files.ts'
import {findTapeKey} from './recorded.ts'
import type {StateDb} from './state-db.ts'

export interface TapeKey {
  /** 32 bytes. */
  bytes: Buffer
  /** Identifies the key without revealing it. */
  fingerprint: string
}

export function createTapeKey(bytes: Buffer): TapeKey {
  const digest = hash('sha256', Buffer.concat([Buffer.from('loantape tape key'), bytes]))
  return {bytes, fingerprint: digest.slice(0, 16)}
}

export type KeyConfig = Pick<Config, 'tapeKeyFile' | 'defaultKeyFile'>

/** A demo's key is beside its folder. */
export function keyFileOf({tapeKeyFile, defaultKeyFile}: KeyConfig, {root, demoMark}: DataFolder): string {
  return existsSync(demoMark) ? `${root}.tape.key` : (tapeKeyFile ?? defaultKeyFile)
}

/**
 * If another process, such as the first walk of another lender, has just made a key, returns that one: replacing it would leave
 * tapes that nobody can read.
 * @throws ConfigError `TAPE_KEY_FILE`
 */
export function makeTapeKey(config: KeyConfig, folder: DataFolder): TapeKey {
  const file = keyFileOf(config, folder)
  try {
    return createTapeKey(writeNewKey(file))
  } catch (cause) {
    const other = codeOf(cause) === 'EEXIST' ? findReadKey(config, folder) : undefined
    if (other) return other
    const fault = findMachineFault(cause)
    if (fault) throw fault
    throw createKeyError(file, `cannot be written (${codeOf(cause)})`, cause)
  }
}

function createKeyError(file: string, problem: string, cause?: unknown): LoantapeError {
  return newError('TAPE_KEY_FILE', `Key of tapes '${file}' in LOANTAPE_TAPE_KEY_FILE: ${problem}.`, {cause})
}

/**
 * Undefined if its file is missing.
 * @throws ConfigError `TAPE_KEY_FILE` if it cannot be read, or lies inside the data folder, which people copy
 */
export function findReadKey(config: KeyConfig, folder: DataFolder): TapeKey | undefined {
  const file = keyFileOf(config, folder)
  if (isInside(file, folder.root))
    throw createKeyError(
      file,
      'expected a file outside the data folder, so that a copy of the folder does not include it',
    )
  if (!existsSync(file)) return undefined
  const text = readWrittenText(file, (problem, cause) => createKeyError(file, problem, cause)).trim()
  if (!/^[0-9a-f]{64}$/.test(text)) throw createKeyError(file, 'expected 64 hex digits')
  return createTapeKey(Buffer.from(text, 'hex'))
}

/** @throws ConfigError `TAPE_KEY_LOST`, and those of {@link findReadKey} */
export function requireReadKey(config: KeyConfig, folder: DataFolder): TapeKey {
  const key = findReadKey(config, folder)
  if (key) return key
  throw newError('TAPE_KEY_LOST', `Key of tapes '${keyFileOf(config, folder)}': it does not exist.`)
}

/** Made at first use. @throws ConfigError `TAPE_KEY_LOST`, `TAPE_KEY_FILE` */
export function requireTapeKey(
  config: KeyConfig,
  folder: DataFolder,
  stateDb: StateDb,
  {realClock}: Pick<World, 'realClock'>,
): TapeKey {
  const pinned = findTapeKey(stateDb)
  const found = findReadKey(config, folder)
  if (pinned !== undefined && found?.fingerprint !== pinned)
    throw newError(
      'TAPE_KEY_LOST',
      `Key of tapes '${keyFileOf(config, folder)}': ${found ? `it is ${found.fingerprint}` : 'it does not exist'}, but the tapes of this data folder are sealed with ${pinned}.`,
    )
  const key = found ?? makeTapeKey(config, folder)
  const since = new Date(realClock.now()).toISOString()
  if (pinned === undefined) stateDb.insert('tape_key', {fingerprint: key.fingerprint, since})
  return key
}
