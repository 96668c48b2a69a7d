import {z} from 'zod'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {fillIn} from '../store/sql.ts'
import rows from './case-rows.json' with {type: 'json'}

type Value = string | number | boolean | null | undefined

export type Row = Record<string, Value>

const USUAL: Readonly<Record<string, Row>> = rows

/** A row as the walk of a business day stores it: the usual one of `case-rows.json`, with the given columns replaced. */
export function aRow(table: string, {day = '2026-03-02', ...row}: Row & {day?: string} = {}): Row {
  const usual = USUAL[table]
  if (!usual) throw new Error(`src/build/case-rows.json has no usual row of raw.${table}`)
  const values = {day, ...usual, ...row}
  const filled = Object.entries(usual).map(([column, value]) => [
    column,
    typeof value === 'string' ? fillIn(value, values) : value,
  ])
  return {...Object.fromEntries(filled), ...row}
}

/** Rows by table, in the order they were stored. */
export type History = Record<string, Row[]>

export async function insertHistory(db: Database, history: History): Promise<void> {
  for (const [table, rows] of Object.entries(history)) await insertRows(db, table, rows)
}

/**
 * A column that a row leaves out becomes null if it may be null, else 0, false or an empty text; counts and flags of a walk
 * always have a value. `seq` becomes the row's position, and `x_present` says whether the row has the column `x`.
 */
export async function insertRows(db: Database, table: string, rows: readonly Row[]): Promise<void> {
  const needed = await db.all(
    z.object({name: z.string(), type: z.string()}),
    `select column_name as name, data_type as type from duckdb_columns()
     where database_name = 'history' and schema_name = 'raw' and table_name = $1
       and (
         not is_nullable
         or ends_with(column_name, '_present')
         or (table_name = 'walk' and data_type not in ('VARCHAR', 'TIMESTAMP'))
       )`,
    [table],
  )
  const fill = (row: Row, place: number) =>
    needed.map(({name, type}) => {
      if (name === 'seq') return [name, place]
      if (name.endsWith('_present')) return [name, name.replace(/_present$/, '') in row]
      return [name, type === 'VARCHAR' ? '' : type !== 'BOOLEAN' && 0]
    })
  const filled = rows.map((row, index): Row => ({...Object.fromEntries(fill(row, index + 1)), ...row}))
  const columns = [...new Set(filled.flatMap((row) => Object.keys(row)))]
  const values = filled.map((row) => `(${columns.map((column) => literal(row[column])).join(', ')})`)
  await db.run(
    `insert into history.raw.${table} (${columns.map(quoteName).join(', ')}) values ${values.join(', ')}`,
  )
}

function literal(value: Value = null): string {
  return typeof value === 'string' ? quoteLiteral(value) : String(value)
}
