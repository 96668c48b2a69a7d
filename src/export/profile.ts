import {existsSync, readFileSync, writeFileSync} from 'node:fs'
import {basename, dirname, join} from 'node:path'
import {z} from 'zod'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {newError} from '../core/errors.ts'
import {WRITER_MARK, WRITING} from '../core/process.ts'
import {type Database, quoteName} from '../store/database.ts'
import {moveIntoPlace} from '../store/files.ts'
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

/** The columns of each table that importers rely on: `name TYPE`, in order. */
type ColumnContract = z.output<typeof contractSchema>
const contractSchema = z.record(z.string(), z.array(z.string()))

/** The present columns of tables in the database attached as `release`. */
export async function readColumnContract(db: Database, tables: readonly string[]): Promise<ColumnContract> {
  const entries = await Array.fromAsync(tables, async (table) => {
    const columns = await readColumns(db, `release.${table}`)
    return [table, columns.map(({name, type}) => `${name} ${type}`)] as const
  })
  return Object.fromEntries(entries)
}

/** The contract is beside the profile's folder, which holds only batches. */
function contractAt(dir: string): string {
  return join(dirname(dir), `.${basename(dir)}-columns.json`)
}

/** The columns that the batches of a profile have had so far; empty before the first. */
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

/** Stores the columns of a batch; published tables not in it keep theirs. */
export function storeContract(dir: string, columns: ColumnContract, published: readonly string[]): void {
  const contract = Object.entries({...readContract(dir), ...columns})
  const sorted = Object.fromEntries(
    contract.filter(([table]) => published.includes(table)).sort(([a], [b]) => (a < b ? -1 : 1)),
  )
  const text = `${JSON.stringify(sorted, null, 2)}\n`
  const path = contractAt(dir)
  if (existsSync(path) && readFileSync(path, 'utf8') === text) return
  // Named like an unfinished batch, so that the next batch removes it after a crash.
  const temporary = join(dir, `${WRITING}columns${WRITER_MARK}`)
  writeFileSync(temporary, text)
  moveIntoPlace(temporary, path)
}

/**
 * Refuses a batch in which importers would not find the columns they know: one was added, removed, moved or changed its type, or a
 * table of the previous batch is no longer in `published`.
 *
 * @throws GuardError `EXPORT_COLUMNS` naming table and columns
 */
export function requireContract(dir: string, columns: ColumnContract, published: readonly string[]): void {
  const contract = readContract(dir)
  const changes = Object.entries(contract).flatMap(([table, before]) => {
    const now = columns[table]
    if (now) return describeChange(table, before, now)
    return published.includes(table) ? [] : [`'${table}' is no longer published`]
  })
  if (changes.length === 0) return
  throw newError(
    'EXPORT_COLUMNS',
    `Columns in '${dir}' would change: ${changes.join('; ')}: expected those of the previous batch.`,
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
