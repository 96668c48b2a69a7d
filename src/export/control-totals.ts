import {z} from 'zod'
import {type Database, quoteName} from '../warehouse/database.ts'
import {readColumns} from '../warehouse/table-columns.ts'

/** What rows come to, for importers to compare. */
export type ControlTotals = z.output<typeof totalsRow> & {columns: string[]}
const totalsRow = z.object({
  rows: z.coerce.number(),
  /** Sum of the column `loan_amount` or `amount`, null where there is neither. */
  sum_amount: z.string().nullable(),
  /** Sums of the columns `debit` and `credit`, null where there are none. */
  sum_debit: z.string().nullable(),
  sum_credit: z.string().nullable(),
})

/** What a table, or the part of it that `where` selects, comes to. */
export async function readControlTotals(db: Database, table: string, where = 'true'): Promise<ControlTotals> {
  const columns = (await readColumns(db, `release.${table}`)).map(({name}) => name)
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
