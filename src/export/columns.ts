import {z} from 'zod'
import {type Database, quoteName} from '../warehouse/database.ts'
import type {ControlTotals} from './profile.ts'

/** A column of a published table; `type` as DuckDB names it. */
export type ExportColumn = z.output<typeof columnRow>
const columnRow = z.object({name: z.string(), type: z.string()})

/** The columns of a table of the database attached as `release`, in order. */
export function readColumns(db: Database, table: string): Promise<ExportColumn[]> {
  return db.all(columnRow, `select column_name as name, column_type as type from (describe release.${table})`)
}

const totalsRow = z.object({
  rows: z.coerce.number(),
  sum_amount: z.string().nullable(),
  sum_debit: z.string().nullable(),
  sum_credit: z.string().nullable(),
})

/** What a table, or the part of it that `where` selects, comes to. */
export async function readControlTotals(db: Database, table: string, where = 'true'): Promise<ControlTotals> {
  const columns = (await readColumns(db, table)).map(({name}) => name)
  const sumOf = (...names: string[]) => {
    const name = names.find((known) => columns.includes(known))
    return name === undefined ? 'null::varchar' : `cast(sum(${quoteName(name)}) as varchar)`
  }
  const totals = await db.one(
    totalsRow,
    `select count(*) as rows, ${sumOf('loan_amount', 'amount')} as sum_amount, ${sumOf('debit')} as sum_debit,
       ${sumOf('credit')} as sum_credit
     from release.${table} where ${where}`,
  )
  return {...totals, columns}
}

/** What a published table says of itself; empty where it says nothing. */
export async function readTableComment(db: Database, table: string): Promise<string> {
  const [schema = '', name = ''] = table.split('.')
  const {comment} = await db.one(
    z.object({comment: z.string().nullable()}),
    `select comment from duckdb_tables()
     where database_name = 'release' and schema_name = $1 and table_name = $2`,
    [schema, name],
  )
  return comment ?? ''
}
