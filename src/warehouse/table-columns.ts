import {z} from 'zod'
import type {Database, Queries} from './database.ts'

/** A column of a table; `type` as DuckDB names it. */
export type TableColumn = z.output<typeof columnRow>
const columnRow = z.object({name: z.string(), type: z.string()})

/** The columns of a table, in order. */
export function readColumns(db: Database, table: string): Promise<TableColumn[]> {
  return db.all(columnRow, `select column_name as name, column_type as type from (describe ${table})`)
}

/**
 * What a table of the database attached as `release` says of itself; empty where it says nothing.
 *
 * @param table `core.deal`
 */
export async function readTableComment(db: Database, table: string): Promise<string> {
  const {comment} = await db.one(
    z.object({comment: z.string().nullable()}),
    `select comment from duckdb_tables()
     where database_name = 'release' and concat(schema_name, '.', table_name) = $1`,
    [table],
  )
  return comment ?? ''
}

const tableRow = z.object({table: z.string(), columns: z.array(z.string())})

/** The names of all columns of each table of the database attached as `release`: `core.deal` → `deal_id`, … . */
export async function readTables(db: Queries): Promise<Map<string, string[]>> {
  const tables = await db.all(
    tableRow,
    `select concat(schema_name, '.', table_name) as "table", list(column_name order by column_index) as columns
     from duckdb_columns() where database_name = 'release' and not internal group by all order by all`,
  )
  return new Map(tables.map(({table, columns}) => [table, columns]))
}
