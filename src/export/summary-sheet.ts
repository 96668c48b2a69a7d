import type {WorkbookWriter} from '@cj-tech-master/excelts'
import type {ReleaseManifest} from '../types.ts'
import type {ControlTotals} from './profile.ts'
import {type CellValue, readNumber} from './sheet-column.ts'

/** What one table's sheets come to. */
export type SheetNote = ControlTotals & {table: string}

const MONEY = '#,##0.00'
const COUNT = '#,##0'

/** Writes the first sheet: what the workbook is of, how the source ties out to it, and what each sheet comes to. */
export function writeSummarySheet(
  book: WorkbookWriter,
  manifest: ReleaseManifest,
  notes: readonly SheetNote[],
  names: ReadonlyMap<string, readonly string[]>,
): void {
  const sheet = book.addWorksheet('Summary', {
    views: [{showGridLines: false}],
    pageSetup: {orientation: 'portrait', fitToPage: true, fitToWidth: 1, fitToHeight: 0},
  })
  sheet.columns = [{width: 54}, {width: 26}, {width: 22}]
  const add = (values: CellValue[], look: {isBold?: boolean; isRule?: boolean; size?: number} = {}) => {
    const row = sheet.addRow(values)
    values.forEach((value, index) => {
      const cell = row.getCell(index + 1)
      const isCount = index === 1 && typeof value === 'number'
      cell.style = {
        font: {bold: look.isBold ?? false, size: look.size ?? 11},
        alignment: {horizontal: index > 0 && (look.isRule || typeof value === 'number') ? 'right' : 'left'},
        ...(typeof value === 'number' && {numFmt: isCount ? COUNT : MONEY}),
        ...(value instanceof Date && {numFmt: 'yyyy-mm-dd'}),
        ...(look.isRule && {border: {bottom: {style: 'thin'}}}),
      }
    })
    row.commit()
  }
  const head = (...titles: string[]) => add(titles, {isBold: true, isRule: true})
  const amount = (text: string | null) => (text === null ? null : readNumber(text))
  const {source, checks} = manifest

  add([`Loan portfolio as of ${manifest.as_of}`], {isBold: true, size: 16})
  add([])
  add(['As of', dayOf(manifest.as_of)])
  add(['Observed until', dayOf(manifest.observed_until)])
  add(['Known at (UTC)', manifest.known_at.replace('T', ' ').replace(/\.\d+Z$|Z$/, '')])
  add(['Release', manifest.release_id])
  add(['Time zone of business dates', manifest.time_zone])
  add(['Currency', manifest.currency])
  add(['Checks', `${checks.passed} passed, ${checks.warned} warned`])
  add(['Made by', manifest.generator])
  add([])
  head('From the source to the portfolio', 'Deals', 'Amount')
  add([
    `Walk ${source.walk_id}, ${source.complete ? 'complete' : 'incomplete'}`,
    source.distinct,
    amount(source.amount_total),
  ])
  add([
    'plus kept, their record is in quarantine',
    source.kept_quarantined.deals,
    amount(source.kept_quarantined.amount),
  ])
  add(['plus kept, missing from the walk', source.kept_missing.deals, amount(source.kept_missing.amount)])
  add(['plus observed outside the walk', source.adjusted.deals, amount(source.adjusted.amount)])
  add(['Present deals', source.present.deals, amount(source.present.amount)], {isBold: true})
  add([])
  head('Sheet', 'Rows', 'Control total')
  for (const {table, rows, sum_amount, sum_debit} of notes) {
    add([(names.get(table) ?? [table]).join(', '), rows, amount(sum_amount ?? sum_debit)])
  }
  add([])
  add([
    'The control total is the sum of the column loan_amount or amount, of a journal of its debits. Instants in the sheets are UTC.',
  ])
  sheet.commit()
}

function dayOf(date: string): Date {
  return new Date(`${date}T00:00:00Z`)
}
