import {existsSync} from 'node:fs'
import type {Config} from '../config.ts'
import {type LoantapeError, newError} from '../errors.ts'
import {openStateDb, type StateDb} from '../state/state-db.ts'
import {findTapeKey, noteTapeKey} from '../state/tape-rows.ts'
import {makeTapeKey, readTapeKey, type TapeKey} from '../tape/key.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import {setAside} from '../warehouse/warehouse.ts'

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

/**
 * Goes on with another key, where the former is lost: with the one at hand, or a new one in the place of the former, which
 * is set aside.
 *
 * @throws ConfigError `TAPE_KEY_FILE`
 */
export function replaceTapeKey(
  config: KeyConfig & Pick<Config, 'dataDir'>,
  why: string,
  {realClock}: Pick<World, 'realClock'>,
): {file: string; fingerprint: string; set_aside: string | null} {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const file = keyFileOf(config, folder)
  using stateDb = openStateDb(folder.stateDb)
  const found = findReadKey(config, folder)
  const isFormer = found?.fingerprint === findTapeKey(stateDb)
  const former = found && isFormer ? setAside(file, realClock.now()) : null
  const {fingerprint} = found && !isFormer ? found : makeTapeKey(file, folder.root)
  noteTapeKey(stateDb, {fingerprint, since: new Date(realClock.now()).toISOString(), why})
  return {file, fingerprint, set_aside: former}
}

function createOtherKey(file: string, pinned: string, found: TapeKey | undefined): LoantapeError {
  return newError(
    'TAPE_KEY_LOST',
    `Key of tapes '${file}': ${found ? `it is ${found.fingerprint}` : 'it is not there'}, and the tapes of this data folder are sealed with ${pinned}.`,
  )
}
