import {createHmac, randomBytes} from 'node:crypto'
import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {newError} from '../errors.ts'
import {moveIntoPlace} from './atomic-file.ts'
import type {DataFolder} from './data-folder.ts'
import type {Database} from './database.ts'
import {readSetting, writeSetting} from './stored-settings.ts'

/**
 * The key of the hashes in this warehouse: the data folder's own, made when it is first needed.
 * The warehouse remembers its fingerprint: under another key the same person would be two.
 *
 * @throws ConfigError `HASH_KEY_CHANGED`
 */
export async function requireHashKey(db: Database, folder: DataFolder): Promise<string> {
  const pinned = await readSetting(db, 'hash_key')
  const key = readOwnKey(folder) ?? (pinned === undefined ? createOwnKey(folder) : '')
  const fingerprint = createHmac('sha256', key).update('loantape').digest('hex').slice(0, 16)
  if (pinned === undefined) await writeSetting(db, 'hash_key', fingerprint)
  if (pinned === undefined || pinned === fingerprint) return key
  throw newError(
    'HASH_KEY_CHANGED',
    `Key of hashed e-mail addresses in '${folder.hashKey}': it is not the one under which those of this data folder were hashed.`,
  )
}

function readOwnKey(folder: DataFolder): string | undefined {
  if (!existsSync(folder.hashKey)) return undefined
  return readFileSync(folder.hashKey, 'utf8').trim()
}

function createOwnKey(folder: DataFolder): string {
  const key = randomBytes(32).toString('hex')
  const temporary = `${folder.hashKey}.tmp-${process.pid}`
  writeFileSync(temporary, `${key}\n`, {mode: 0o600})
  moveIntoPlace(temporary, folder.hashKey)
  return key
}
