import {createWriteStream} from 'node:fs'
import {join} from 'node:path'
import {finished} from 'node:stream/promises'
import type {WorkbookWriter} from '@cj-tech-master/excelts'
import {z} from 'zod'
import {groupThousands} from '../money.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {Database} from '../warehouse/database.ts'
import {readTableComment} from '../warehouse/table-columns.ts'
import {readControlTotals} from './control-totals.ts'
import {inOrder, type ProfileWriter} from './profile.ts'
import {readSheetColumns, readText, type SheetColumn} from './sheet-column.ts'
import {FONT, type SheetNote, writeSummarySheet} from './summary-sheet.ts'
import {pinZipDates} from './zip-dates.ts'

/** Rows one worksheet holds (Excel specifications and limits). */
const SHEET_ROWS = 1_048_576

/** Characters that fit on one printed page and can still be read: wider sheets take several, side by side. */
const PAGE_CHARACTERS = 210

/** Characters a worksheet's name may have. */
const NAME_CHARACTERS = 31

/** A sheet's worksheet as the library has it. */
type Worksheet = ReturnType<WorkbookWriter['addWorksheet']>

/**
 * Creates the writer of one workbook with a summary and a sheet per table: typed cells, formats, filters, frozen headers.
 * A table of more rows than a sheet holds goes on in the next, `core.deal (2)`. The same release is the same bytes.
 */
export function createXlsxWriter(sheetRows: number = SHEET_ROWS): ProfileWriter {
  return async (db, source, {tables}, dir) => {
    const notes: SheetNote[] = []
    for (const table of tables) {
      const [about = ''] = (await readTableComment(db, table)).split(/[.:;](?:\s|$)/)
      notes.push({table, about, ...(await readControlTotals(db, table))})
    }
    const name = `loantape-${source.manifest.as_of}.xlsx`
    const names = nameSheets(notes, sheetRows)
    await writeBook(join(dir, name), source.manifest, async (book) => {
      writeSummarySheet(book, source.manifest, notes, names)
      for (const table of tables) {
        const sheets = {
          table,
          from: `release.${table}`,
          rows: inOrder(source, table),
          names: names.get(table) ?? [],
        }
        await writeSheets(book, db, sheets, sheetRows)
      }
    })
    pinZipDates(join(dir, name))
    const rows = notes.reduce((sum, note) => sum + note.rows, 0)
    const sheets = notes.map(({about: _about, ...note}) => note)
    return {files: [{name, rows, columns: [], sum_amount: null, sum_debit: null, sum_credit: null, sheets}]}
  }
}

/**
 * Writes rows as a workbook of one sheet, whose bytes are final as they are written.
 *
 * @param title of the sheet
 * @param from a table, a view or a subquery
 * @throws Error where a sheet does not hold them; CheckError `EXPORT_CELL`
 */
export async function writeQueryBook(
  db: Database,
  {path, title, from}: {path: string; title: string; from: string},
  manifest: ReleaseManifest,
  sheetRows: number = SHEET_ROWS,
): Promise<void> {
  // Computed once: the rows are read for the widths of columns, and then written.
  await db.run(`create temp table sheet_row as from ${from} limit ${sheetRows}`)
  try {
    const {rows} = await db.one(z.object({rows: z.coerce.number()}), 'select count(*) as rows from sheet_row')
    if (rows === sheetRows)
      throw new Error(
        `more than ${groupThousands(sheetRows - 1)} rows, which is what a worksheet holds: ask for fewer, or for CSV or Parquet.`,
      )
    const names = [title.slice(0, NAME_CHARACTERS)]
    await writeBook(path, manifest, (book) =>
      writeSheets(book, db, {table: title, from: 'sheet_row', rows: 'sheet_row', names}, sheetRows),
    )
  } finally {
    await db.run('drop table sheet_row')
  }
}

/** Writes a workbook by what `fill` puts into it, a part at a time. */
async function writeBook(
  path: string,
  {known_at, generator}: ReleaseManifest,
  fill: (book: WorkbookWriter) => Promise<void>,
): Promise<void> {
  // Loaded here: little else needs it, and it takes a third of a second.
  const {WorkbookWriter} = await import('@cj-tech-master/excelts')
  const made = new Date(known_at)
  const stream = createWriteStream(path)
  // Nothing is awaited between this and the race below: a failure always finds somebody who waits for it.
  const isDone = finished(stream)
  const book = new WorkbookWriter({
    stream,
    useStyles: true,
    trueStreaming: true,
    created: made,
    modified: made,
  })
  book.creator = generator
  book.lastModifiedBy = generator
  const work = async () => {
    await fill(book)
    await book.commit()
    await isDone
  }
  // The stream may fail first: the library would then wait for it for ever.
  await Promise.race([work(), isDone.then(() => new Promise<never>(() => undefined))])
}

/** The names of each table's sheets, no two alike to a spreadsheet, which knows no difference of case. */
function nameSheets(notes: readonly SheetNote[], sheetRows: number): Map<string, string[]> {
  const taken = new Set(['summary'])
  return new Map(
    notes.map(({table, rows}) => {
      const count = Math.max(1, Math.ceil(rows / (sheetRows - 1)))
      const names = Array.from({length: count}, (_, index) => {
        for (let number = index + 1; ; number++) {
          const tail = number === 1 ? '' : ` (${number})`
          const name = `${table.slice(0, NAME_CHARACTERS - tail.length)}${tail}`
          if (taken.has(name.toLowerCase())) continue
          taken.add(name.toLowerCase())
          return name
        }
      })
      return [table, names]
    }),
  )
}

async function writeSheets(
  book: WorkbookWriter,
  db: Database,
  {table, from, rows, names}: {table: string; from: string; rows: string; names: readonly string[]},
  sheetRows: number,
): Promise<void> {
  const columns = await readSheetColumns(db, table, from)
  const waiting = names.values()
  const next = () => openSheet(book, waiting.next().value ?? table, columns)
  let sheet = next()
  let row = 1
  for await (const chunk of db.stream(`select * from ${rows}`)) {
    for (const values of chunk) {
      if (row === sheetRows) {
        closeSheet(sheet, columns, row)
        sheet = next()
        row = 1
      }
      sheet.addRow(columns.map(({readCell}, index) => readCell(values[index] ?? null))).commit()
      row += 1
    }
    // Gives the file the time to take what was written.
    await new Promise((resolve) => setImmediate(resolve))
  }
  closeSheet(sheet, columns, row)
}

function openSheet(book: WorkbookWriter, name: string, columns: readonly SheetColumn[]): Worksheet {
  const sheet = book.addWorksheet(name, {
    views: [{state: 'frozen', ySplit: 1}],
    pageSetup: {
      orientation: 'landscape',
      fitToPage: true,
      fitToWidth: Math.ceil(columns.reduce((sum, {width}) => sum + width, 0) / PAGE_CHARACTERS),
      fitToHeight: 0,
      printTitlesRow: '1:1',
      printTitlesColumn: 'A:A',
    },
    headerFooter: {oddFooter: '&L&A&RPage &P of &N'},
  })
  sheet.columns = columns.map(({width, format}) => ({
    width,
    style: format === null ? {alignment: {horizontal: 'left', indent: 1}} : {numFmt: format},
  }))
  const header = sheet.addRow(columns.map(({name}) => readText(name)))
  columns.forEach(({format}, index) => {
    header.getCell(index + 1).style = {
      font: {...FONT, bold: true},
      fill: {type: 'pattern', pattern: 'solid', fgColor: {argb: 'FFE8EEF4'}},
      border: {bottom: {style: 'thin'}},
      alignment: format === null ? {horizontal: 'left', indent: 1} : {horizontal: 'right'},
    }
  })
  header.commit()
  return sheet
}

function closeSheet(sheet: Worksheet, columns: readonly SheetColumn[], rows: number): void {
  if (columns.length > 0) {
    sheet.autoFilter = {from: {row: 1, col: 1}, to: {row: rows, col: columns.length}}
  }
  sheet.commit()
}
