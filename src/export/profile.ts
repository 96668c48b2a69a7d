import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {basename, dirname, join} from 'node:path'
import {z} from 'zod'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {newError} from '../core/errors.ts'
import {WRITER_MARK} from '../core/process.ts'
import {type Database, quoteName} from '../store/database.ts'
import {moveIntoPlace} from '../store/files.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {readColumns} from '../store/sql.ts'

/** The names of the kinds of export that write tables. */
export const TABLE_PROFILE_NAMES = ['csv', 'parquet', 'xlsx'] as const
export type TableProfileName = (typeof TABLE_PROFILE_NAMES)[number]

/** The names of all kinds of export. */
export const PROFILE_NAMES: readonly string[] = [...TABLE_PROFILE_NAMES, ...JOURNAL_NAMES]

/** The release an export reads, its tables attached as `release`. */
export interface ExportSource {
  dir: string
  database: string
  manifest: ReleaseManifest
}

/** The rows of a table in the order of its Parquet file: in the database, what changed last stands at the end. */
export function inOrder({manifest}: Pick<ExportSource, 'manifest'>, table: string): string {
  const order = manifest.tables.find(({name}) => name === table)?.order ?? []
  const by = order.length === 0 ? '' : ` order by ${order.map(quoteName).join(', ')}`
  return `(from release.${table}${by})`
}

/** How files are written, beside their content. */
export interface ExportOptions {
  /** CSV: how lines end; `lf` by default. */
  lineEnding?: 'lf' | 'crlf' | undefined
  /** CSV: whether texts that a spreadsheet would take for a formula get a `'` in front. */
  isSpreadsheetSafe?: boolean | undefined
  /** Parquet: a file for each month of a table's date. */
  partition?: 'month' | undefined
}

/** A file that was written into a batch's folder, and the control totals of what it holds. */
export interface WrittenFile extends ControlTotals {
  /** Relative to the batch's folder. */
  name: string
  /** What each table in a workbook comes to; its own `columns` and sums are then empty. */
  sheets?: (ControlTotals & {table: string})[]
}

/** A text that got a `'` in front. */
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

/** The columns of each table as importers know them: `name TYPE`, in order. */
type ColumnContract = z.output<typeof contractSchema>
const contractSchema = z.record(z.string(), z.array(z.string()))

/** The columns that tables of the database attached as `release` have now. */
export async function readColumnContract(db: Database, tables: readonly string[]): Promise<ColumnContract> {
  const entries = await Array.fromAsync(tables, async (table) => {
    const columns = await readColumns(db, `release.${table}`)
    return [table, columns.map(({name, type}) => `${name} ${type}`)] as const
  })
  return Object.fromEntries(entries)
}

/** Beside the profile's folder: what lies in that is a batch. */
function contractAt(dir: string): string {
  return join(dirname(dir), `.${basename(dir)}-columns.json`)
}

/** What the batches of a profile have promised so far; empty before the first. */
function readContract(dir: string): ColumnContract {
  const path = contractAt(dir)
  if (!existsSync(path)) return {}
  try {
    return contractSchema.parse(JSON.parse(readFileSync(path, 'utf8')))
  } catch (error) {
    throw newError(
      'EXPORT_CONTRACT',
      `Column contract '${path}' cannot be read: expected JSON of tables and their columns.`,
      {cause: error},
    )
  }
}

/** Keeps what a batch promises; published tables it does not hold keep what they had. */
export function storeContract(dir: string, columns: ColumnContract, published: readonly string[]): void {
  const contract = Object.entries({...readContract(dir), ...columns})
  const sorted = Object.fromEntries(
    contract.filter(([table]) => published.includes(table)).sort(([a], [b]) => (a < b ? -1 : 1)),
  )
  const text = `${JSON.stringify(sorted, null, 2)}\n`
  const path = contractAt(dir)
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return
  // Among what batches leave when they die, so that the next one removes it.
  const temporary = join(dir, `.writing-columns${WRITER_MARK}`)
  writeFileSync(temporary, text)
  moveIntoPlace(temporary, path)
}

/**
 * Makes sure that importers find the columns they know: a column that comes, goes, moves or changes its type is
 * refused, and so is a table of the batch before that is gone from `published`.
 *
 * @throws GuardError `EXPORT_COLUMNS` naming table and columns
 */
export function requireContract(dir: string, columns: ColumnContract, published: readonly string[]): void {
  const contract = readContract(dir)
  const changes = Object.entries(contract).flatMap(([table, before]) => {
    const now = columns[table]
    if (now) return describeChange(table, before, now)
    return published.includes(table) ? [] : [`'${table}' is no longer there`]
  })
  if (changes.length === 0) return
  throw newError(
    'EXPORT_COLUMNS',
    `Columns in '${dir}' would change: ${changes.join('; ')}: expected those of the batch before.`,
  )
}

function describeChange(table: string, before: readonly string[], now: readonly string[]): string[] {
  if (before.join() === now.join()) return []
  const gone = before.filter((column) => !now.includes(column))
  const come = now.filter((column) => !before.includes(column))
  const words = [
    gone.length > 0 && `without ${gone.join(', ')}`,
    come.length > 0 && `with ${come.join(', ')}`,
    gone.length + come.length === 0 && 'in another order',
  ]
  return [`'${table}' ${words.filter(Boolean).join(', ')}`]
}

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
