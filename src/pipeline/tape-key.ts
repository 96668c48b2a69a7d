import {existsSync} from 'node:fs'
import type {Config} from '../config.ts'
import {type LoantapeError, newError} from '../errors.ts'
import type {StateDb} from '../state/state-db.ts'
import {findTapeKey, noteTapeKey} from '../state/tape-rows.ts'
import {makeTapeKey, readTapeKey, type TapeKey} from '../tape/key.ts'
import type {World} from '../types.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

/** Where the key of tapes lies: the demo keeps its own, beside its folder. */
export function keyFileOf({tapeKeyFile, defaultKeyFile}: KeyConfig, {root, demoMark}: DataFolder): string {
  return existsSync(demoMark) ? `${root}.tape.key` : (tapeKeyFile ?? defaultKeyFile)
}

/**
 * The key that tapes can be read with; undefined where its file is not there.
 *
 * @throws ConfigError `TAPE_KEY_FILE`
 */
export function findReadKey(config: KeyConfig, folder: DataFolder): TapeKey | undefined {
  return readTapeKey(keyFileOf(config, folder), folder.root)
}

/**
 * The key to read tapes with.
 *
 * @throws ConfigError `TAPE_KEY_LOST`, and those of {@link findReadKey}
 */
export function requireReadKey(config: KeyConfig, folder: DataFolder): TapeKey {
  const key = findReadKey(config, folder)
  if (key) return key
  throw newError('TAPE_KEY_LOST', `Key of tapes '${keyFileOf(config, folder)}': it is not there.`)
}

/** The settings that say where the key is. */
export type KeyConfig = Pick<Config, 'tapeKeyFile' | 'defaultKeyFile'>

/**
 * The key that tapes are sealed with, made where there has been none.
 *
 * @throws ConfigError `TAPE_KEY_LOST`, `TAPE_KEY_FILE`
 */
export function requireTapeKey(
  config: KeyConfig,
  folder: DataFolder,
  stateDb: StateDb,
  {realClock}: Pick<World, 'realClock'>,
): TapeKey {
  const file = keyFileOf(config, folder)
  const pinned = findTapeKey(stateDb)
  const found = findReadKey(config, folder)
  if (pinned !== undefined && found?.fingerprint !== pinned) throw createOtherKey(file, pinned, found)
  const key = found ?? makeTapeKey(file, folder.root)
  if (pinned === undefined) {
    const since = new Date(realClock.now()).toISOString()
    noteTapeKey(stateDb, {fingerprint: key.fingerprint, since, why: null})
  }
  return key
}

function createOtherKey(file: string, pinned: string, found: TapeKey | undefined): LoantapeError {
  return newError(
    'TAPE_KEY_LOST',
    `Key of tapes '${file}': ${found ? `it is ${found.fingerprint}` : 'it is not there'}, and the tapes of this data folder are sealed with ${pinned}.`,
  )
}
