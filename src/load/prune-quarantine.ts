import {z} from 'zod'
import type {Database} from '../warehouse/database.ts'

const countRow = z.object({records: z.coerce.number()})

/** So many days back; a clock that is ahead of what was stored last makes nothing older. */
export interface Age {
  /** `YYYY-MM-DD HH:MM:SS`, UTC. */
  now: string
  days: number
}

/** Which records had served at an {@link Age}: they were replayed, or their walk was refused or given up. */
const SINCE = 'least($1::timestamp, (select max(recorded_at) from CATALOG.raw.settle)) - to_days($2::integer)'
const SERVED = `place is not null and (
  replayed_at < ${SINCE}
  or (
    replayed_at is null
    and observed_at < ${SINCE}
    and walk_id in (select walk_id from CATALOG.raw.walk where state in ('refused', 'abandoned'))
  )
)`

/** How many quarantined records had served at an age. */
export async function countServed(
  db: Database,
  catalog: 'warehouse' | 'history',
  {now, days}: Age,
): Promise<number> {
  const where = SERVED.replaceAll('CATALOG', catalog)
  const sql = `select count(*) as records from ${catalog}.raw.quarantine where ${where}`
  return (await db.one(countRow, sql, [now, days])).records
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
 * Forgets what quarantined records held that had served at an age; one that can still be replayed into an
 * applied walk is kept, and no row is ever removed: releases of past dates read them.
 */
export async function pruneRecords(db: Database, age: Age): Promise<number> {
  const records = await countServed(db, 'warehouse', age)
  const where = SERVED.replaceAll('CATALOG', 'warehouse')
  await db.run(`update warehouse.raw.quarantine set place = null where ${where}`, [age.now, age.days])
  return records
}
