import {z} from 'zod'
import {newError} from '../errors.ts'
import type {Database} from '../warehouse/database.ts'
import type {TapeUnit} from './tape-units.ts'

/** A table of the warehouse that is not the same. */
export interface TableDifference {
  table: string
  /** Rows of the warehouse there is that the new one lacks, and the other way round. */
  only_now: number
  only_rebuilt: number
}

/**
 * Makes sure that nothing was settled which no tape tells of; what a tape tells of otherwise now is a difference.
 *
 * @throws UnexpectedError `REBUILD_LOSES`
 */
export async function requireEverySettle(db: Database, units: readonly TapeUnit[]): Promise<void> {
  const told = units.flatMap(({outcome: {recorded_at}}) => recorded_at ?? [])
  const lost = await db.all(
    z.object({kind: z.string(), recorded_at: z.string()}),
    `select kind, recorded_at from present.raw.settle
     where recorded_at not in (select recorded_at from warehouse.raw.settle)
       and recorded_at not in (select unnest(from_json($1, '["timestamp"]')))
     order by recorded_at`,
    [JSON.stringify(told)],
  )
  if (lost.length === 0) return
  const named = lost.slice(0, 3).map(({kind, recorded_at}) => `${kind} of ${recorded_at}`)
  throw newError(
    'REBUILD_LOSES',
    `The tapes lack what was settled ${lost.length} times: ${named.join(', ')}${lost.length > 3 ? ', …' : ''}.`,
  )
}

const countsRow = z.object({only_now: z.coerce.number(), only_rebuilt: z.coerce.number()})

/** The tables that are not the same, with how many of their rows are not. */
export async function compareTables(db: Database): Promise<TableDifference[]> {
  const tables = await db.all(
    z.object({name: z.string()}),
    `select table_name as name from duckdb_tables()
     where database_name = 'warehouse' and schema_name = 'raw' order by name`,
  )
  const differences: TableDifference[] = []
  for (const {name: table} of tables) {
    const [now, rebuilt] = [
      `(${selectCompared('present', table)})`,
      `(${selectCompared('warehouse', table)})`,
    ]
    const counts = await db.one(
      countsRow,
      `select
         (select count(*) from (from ${now} except all from ${rebuilt})) as only_now,
         (select count(*) from (from ${rebuilt} except all from ${now})) as only_rebuilt`,
    )
    if (counts.only_now + counts.only_rebuilt > 0) differences.push({table, ...counts})
  }
  return differences
}

/** What was pruned comes back with its tape; when a record's own page was asked for last is known of versions alone. */
function selectCompared(catalog: 'present' | 'warehouse', table: string): string {
  const rows = `from ${catalog}.raw.${table}`
  if (table.endsWith('_head')) return `select * exclude (detail_at, list_hash) ${rows}`
  if (table !== 'quarantine') return rows
  const kept = 'quarantine_id in (select quarantine_id from present.raw.quarantine where place is not null)'
  return `select * replace (case when ${kept} then place end as place) ${rows}`
}
