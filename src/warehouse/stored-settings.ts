import {z} from 'zod'
import {type Database, inTransaction} from './database.ts'

/**
 * A single fact about this warehouse: the source it belongs to, the envelope that source answers in, the fingerprint of
 * the key of its hashes, the data folder it belongs to, and the last unit of the tapes that it contains.
 */
export type SettingName = 'source_base_url' | 'envelope' | 'hash_key' | 'folder_id' | 'tape_head'

const valueRow = z.object({value: z.string()})

/** The stored value, if there is one. */
export async function readSetting(
  db: Database,
  name: SettingName,
  catalog: 'warehouse' | 'history' = 'warehouse',
): Promise<string | undefined> {
  return (await db.first(valueRow, `select value from ${catalog}.raw.setting where name = $1`, [name]))?.value
}

/** Stores a value, replacing the one before. */
export function writeSetting(db: Database, name: SettingName, value: string): Promise<void> {
  return inTransaction(db, () => replaceSetting(db, name, value))
}

/** The same within a transaction. */
export async function replaceSetting(db: Database, name: SettingName, value: string): Promise<void> {
  await db.run('delete from warehouse.raw.setting where name = $1', [name])
  await db.run('insert into warehouse.raw.setting values ($1, $2)', [name, value])
}
