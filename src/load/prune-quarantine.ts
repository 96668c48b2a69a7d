import {z} from 'zod'
import type {Database} from '../warehouse/database.ts'

const countRow = z.object({records: z.coerce.number()})

/** How many quarantined records were replayed before an instant (`YYYY-MM-DD HH:MM:SS`, UTC). */
export async function countReplayed(
  db: Database,
  catalog: 'warehouse' | 'history',
  before: string,
): Promise<number> {
  const sql = `select count(*) as records from ${catalog}.raw.quarantine where replayed_at < cast($1 as timestamp)`
  return (await db.one(countRow, sql, [before])).records
}

/** Removes quarantined records that were replayed before an instant; one that still waits is never removed. */
export async function pruneReplayed(db: Database, before: string): Promise<number> {
  const records = await countReplayed(db, 'warehouse', before)
  await db.run('delete from warehouse.raw.quarantine where replayed_at < cast($1 as timestamp)', [before])
  return records
}
