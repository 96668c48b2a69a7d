import {z} from 'zod'
import {type Database, inTransaction} from './database.ts'

/**
 * A single fact about this warehouse: the source it belongs to, the envelope that source answers in, the fingerprint of
 * the key of its hashes.
 */
export type SettingName = 'source_base_url' | 'envelope' | 'hash_key'

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
export async function writeSetting(db: Database, name: SettingName, value: string): Promise<void> {
  await inTransaction(db, async () => {
    await db.run('delete from warehouse.raw.setting where name = $1', [name])
    await db.run('insert into warehouse.raw.setting values ($1, $2)', [name, value])
  })
}
