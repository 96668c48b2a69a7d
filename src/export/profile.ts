import {z} from 'zod'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {type Database, quoteName} from '../store/database.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {readColumns} from '../store/sql.ts'

/** The profiles that write tables. */
export const TABLE_PROFILE_NAMES = ['csv', 'parquet', 'xlsx'] as const
export type TableProfileName = (typeof TABLE_PROFILE_NAMES)[number]

/** All profiles. */
export const PROFILE_NAMES: readonly string[] = [...TABLE_PROFILE_NAMES, ...JOURNAL_NAMES]

/** The release an export reads; its tables are attached as `release`. */
export interface ExportSource {
  dir: string
  database: string
  manifest: ReleaseManifest
}

/** SQL of a table's rows in the order of its Parquet file; the database stores changed rows at the end. */
export function inOrder({manifest}: Pick<ExportSource, 'manifest'>, table: string): string {
  const order = manifest.tables.find(({name}) => name === table)?.order ?? []
  const by = order.length === 0 ? '' : ` order by ${order.map(quoteName).join(', ')}`
  return `(from release.${table}${by})`
}

/** How a profile writes its files. */
export interface ExportOptions {
  /** CSV: `lf` by default. */
  lineEnding?: 'lf' | 'crlf' | undefined
  /** CSV: put `'` before texts that a spreadsheet would take for formulas. */
  isSpreadsheetSafe?: boolean | undefined
  /** Parquet: one file for each month of a table's date. */
  partition?: 'month' | undefined
}

/** A file in a batch's folder, and its control totals. */
export interface WrittenFile extends ControlTotals {
  /** Relative to the batch's folder. */
  name: string
  /** The totals of each table in a workbook, whose own `columns` and sums are empty. */
  sheets?: (ControlTotals & {table: string})[]
}

/** A text that got a leading `'`. */
export interface NeutralisedCell {
  file: string
  /** From 1, the header not counted. */
  row: number
  column: string
}

/** Writes tables into a folder. */
export type ProfileWriter = (
  db: Database,
  source: ExportSource,
  request: {tables: readonly string[]; options: ExportOptions},
  dir: string,
) => Promise<{files: WrittenFile[]; neutralised?: NeutralisedCell[]}>

/** Totals that importers compare. */
export type ControlTotals = z.output<typeof totalsRow> & {columns: string[]}
const totalsRow = z.object({
  rows: z.coerce.number(),
  /** The sum of the column `loan_amount` or `amount`; null without one. */
  sum_amount: z.string().nullable(),
  /** The sums of the columns `debit` and `credit`; null without them. */
  sum_debit: z.string().nullable(),
  sum_credit: z.string().nullable(),
})

/** The totals of a table, or of the rows that `where` selects. */
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
