import {z} from 'zod'
import type {Database} from '../warehouse/database.ts'

const countRow = z.object({records: z.coerce.number()})

/** Which records have served before an instant `$1`: they were replayed, or their walk was refused or given up. */
const SERVED = `place is not null and (
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

/** Forgets where records stand on tapes that are not kept any more. */
export async function forgetPlaces(db: Database, walkIds: readonly string[]): Promise<void> {
  await db.run(
    `update warehouse.raw.quarantine set place = null
     where walk_id in (select unnest(from_json($1, '["varchar"]'))) and place is not null`,
    [JSON.stringify(walkIds)],
  )
}

/**
 * Forgets what quarantined records held that have served before an instant; one that can still be replayed into an
 * applied walk is kept, and no row is ever removed: releases of past dates read them.
 */
export async function pruneRecords(db: Database, before: string): Promise<number> {
  const records = await countServed(db, 'warehouse', before)
  const where = SERVED.replace('CATALOG', 'warehouse')
  await db.run(`update warehouse.raw.quarantine set place = null where ${where}`, [before])
  return records
}
