import {z} from 'zod'
import {type Database, quoteName} from '../warehouse/database.ts'

/** A column of a published table; `type` as DuckDB names it. */
export interface ExportColumn {
  name: string
  type: string
}

const columnRow: z.ZodType<ExportColumn> = z.object({name: z.string(), type: z.string()})

/** The columns of a table of the database attached as `release`, in order. */
export function readColumns(db: Database, table: string): Promise<ExportColumn[]> {
  return db.all(columnRow, `select column_name as name, column_type as type from (describe release.${table})`)
}

/** The column whose sum is a table's control total, if it has one. */
function findAmountColumn(columns: readonly ExportColumn[]): string | undefined {
  return ['loan_amount', 'amount'].find((name) => columns.some((column) => column.name === name))
}

const totalsRow = z.object({rows: z.coerce.number(), sum_amount: z.string().nullable()})

/** What a table, or the part of it that `where` selects, comes to. */
export async function readControlTotals(
  db: Database,
  table: string,
  where = 'true',
): Promise<{rows: number; columns: string[]; sum_amount: string | null}> {
  const columns = await readColumns(db, table)
  const amount = findAmountColumn(columns)
  const sum = amount === undefined ? 'null' : `sum(${quoteName(amount)})`
  const totals = await db.one(
    totalsRow,
    `select count(*) as rows, cast(${sum} as varchar) as sum_amount from release.${table} where ${where}`,
  )
  return {...totals, columns: columns.map(({name}) => name)}
}
