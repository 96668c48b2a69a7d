import {z} from 'zod'
import type {Database} from '../warehouse/database.ts'

const countRow = z.object({records: z.coerce.number()})

/** Which records have served before an instant `$1`: they were replayed, or their walk was refused or given up. */
const SERVED = `record is not null and (
  replayed_at < cast($1 as timestamp)
  or (
    replayed_at is null
    and observed_at < cast($1 as timestamp)
    and walk_id in (select walk_id from CATALOG.raw.walk where state in ('refused', 'abandoned'))
  )
)`

/** How many quarantined records have served before an instant (`YYYY-MM-DD HH:MM:SS`, UTC). */
export async function countServed(
  db: Database,
  catalog: 'warehouse' | 'history',
  before: string,
): Promise<number> {
  const where = SERVED.replace('CATALOG', catalog)
  const sql = `select count(*) as records from ${catalog}.raw.quarantine where ${where}`
  return (await db.one(countRow, sql, [before])).records
}

/**
 * Empties the texts of quarantined records that have served before an instant; one that can still be replayed into an
 * applied walk keeps its text, and no row is ever removed: releases of past dates read them.
 */
export async function pruneTexts(db: Database, before: string): Promise<number> {
  const records = await countServed(db, 'warehouse', before)
  const where = SERVED.replace('CATALOG', 'warehouse')
  await db.run(`update warehouse.raw.quarantine set record = null where ${where}`, [before])
  return records
}
