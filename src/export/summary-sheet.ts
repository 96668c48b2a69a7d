import type {WorkbookWriter} from '@cj-tech-master/excelts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {ControlTotals} from './control-totals.ts'
import {type CellValue, readNumber, readText} from './sheet-column.ts'

/** What one table's sheets come to, and what they hold. */
export type SheetNote = ControlTotals & {table: string; about: string}

const MONEY = '#,##0.00'
const COUNT = '#,##0'

/** Named in every style of ours: without it LibreOffice takes a serif. */
export const FONT = {name: 'Calibri', family: 2, size: 11} as const

/** The place of the column that says what a sheet holds. */
const ABOUT = 5

/** Writes the first sheet: what the workbook is of, how the source ties out to it, and what each sheet comes to. */
export function writeSummarySheet(
  book: WorkbookWriter,
  manifest: ReleaseManifest,
  notes: readonly SheetNote[],
  names: ReadonlyMap<string, readonly string[]>,
): void {
  const sheet = book.addWorksheet('Summary', {
    views: [{showGridLines: false}],
    pageSetup: {orientation: 'landscape', fitToPage: true, fitToWidth: 1, fitToHeight: 0},
  })
  sheet.columns = [{width: 42}, {width: 12}, ...Array(3).fill({width: 20}), {width: 90}]
  const add = (
    values: (CellValue | {text: string; hyperlink: string})[],
    look: {isBold?: boolean; isRule?: boolean; size?: number} = {},
  ) => {
    const row = sheet.addRow(values.map((value) => (typeof value === 'string' ? readText(value) : value)))
    values.forEach((value, index) => {
      const cell = row.getCell(index + 1)
      const isCount = index === 1 && typeof value === 'number'
      const isFigure = (look.isRule && index > 0 && index < ABOUT) || typeof value === 'number'
      const isLink = value !== null && typeof value === 'object' && 'hyperlink' in value
      cell.style = {
        font: {
          ...FONT,
          bold: look.isBold ?? false,
          ...(look.size && {size: look.size}),
          ...(isLink && {underline: true, color: {argb: 'FF0563C1'}}),
        },
        alignment: {horizontal: isFigure ? 'right' : 'left', indent: index === ABOUT ? 1 : 0},
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
  add(['Walk', `${source.walk_id}, ${source.complete ? 'complete' : 'incomplete'}`])
  add(['Checks', `${checks.passed} passed, ${checks.warned} warned`])
  add(['Made by', manifest.generator])
  add([])
  head('From the source to the portfolio', 'Deals', 'Amount')
  add(['Deals of the walk', source.distinct, amount(source.amount_total)])
  add([
    'plus kept, their record is in quarantine',
    source.kept_quarantined.deals,
    amount(source.kept_quarantined.amount),
  ])
  add(['plus kept, missing from the walk', source.kept_missing.deals, amount(source.kept_missing.amount)])
  add(['plus observed outside the walk', source.adjusted.deals, amount(source.adjusted.amount)])
  add(['Present deals', source.present.deals, amount(source.present.amount)], {isBold: true})
  add([])
  head('Sheet', 'Rows', 'Amount', 'Debit', 'Credit', 'What it holds')
  for (const {table, rows, sum_amount, sum_debit, sum_credit, about} of notes) {
    const sheets = names.get(table) ?? [table]
    const link = {text: sheets.join(', '), hyperlink: `#'${sheets[0]}'!A1`}
    add([link, rows, amount(sum_amount), amount(sum_debit), amount(sum_credit), about])
  }
  add([])
  add(['Amount is the sum of the column loan_amount or amount. Instants in the sheets are UTC.'])
  sheet.commit()
}

function dayOf(date: string): Date {
  return new Date(`${date}T00:00:00Z`)
}
