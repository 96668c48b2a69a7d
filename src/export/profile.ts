import type {ReleaseManifest} from '../release-manifest.ts'
import {type Database, quoteName} from '../warehouse/database.ts'
import type {ControlTotals} from './control-totals.ts'

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
