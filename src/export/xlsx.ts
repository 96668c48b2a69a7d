import {createWriteStream, statSync} from 'node:fs'
import {join} from 'node:path'
import {finished} from 'node:stream/promises'
import type {WorkbookWriter} from '@cj-tech-master/excelts'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {groupThousands, INTEREST} from '../core/money.ts'
import {type Database, quoteName} from '../store/database.ts'
import {type ReleaseManifest, readReleaseModels} from '../store/release.ts'
import {countRows, readColumns} from '../store/sql.ts'
import {type ControlTotals, inOrder, readControlTotals, type WriteRequest, type Written} from './batch.ts'

/** Most rows of a worksheet (Excel specifications and limits). */
const SHEET_ROWS = 1_048_576

/** A larger archive is a ZIP64, and so is one with a larger sheet. */
const MOST_BYTES = 0xffff_fffe

/** Most characters of a worksheet's name. */
const NAME_CHARACTERS = 31

/** What a table holds, its totals, and the names of its sheets. */
type SheetNote = ControlTotals & {table: string; about: string; names: string[]}

/**
 * A summary and a sheet per table; more rows than a sheet takes go on in `core.deal (2)`. The same release gives the same bytes.
 */
export async function writeXlsx(
  {db, source, tables, dir}: Pick<WriteRequest, 'db' | 'source' | 'tables' | 'dir'>,
  sheetRows: number = SHEET_ROWS,
): Promise<Written> {
  const {manifest} = source
  const models = readReleaseModels(source.dir)
  const taken = new Set<string>()
  const notes = await Array.fromAsync(tables, async (table): Promise<SheetNote> => {
    const [about = ''] = models.find(({name}) => name === table)?.description.split(/[.:;](?:\s|$)/) ?? []
    const totals = await readControlTotals(db, table)
    const sheets = Math.max(1, Math.ceil(totals.rows / (sheetRows - 1)))
    const names = Array.from({length: sheets}, () => takeName(taken, table))
    return {table, about, names, ...totals}
  })
  const name = `loantape-${manifest.as_of}.xlsx`
  const path = join(dir, name)
  await writeBook(path, manifest, async (book) => {
    writeSummarySheet(book, manifest, notes)
    for (const {table, names} of notes) {
      const sheets = {table, from: `release.${table}`, rows: inOrder(source, table), names}
      await writeSheets(book, db, sheets, sheetRows)
    }
  })
  const rows = notes.reduce((sum, note) => sum + note.rows, 0)
  const sheets = notes.map(({about: _about, names: _names, ...note}) => note)
  return {files: [{name, rows, columns: [], sum_amount: null, sum_debit: null, sum_credit: null, sheets}]}
}

/** @throws Error if there are too many rows; CheckError `EXPORT_CELL` */
export async function writeQueryBook(
  db: Database,
  {path, title, from}: {path: string; title: string; from: string},
  manifest: ReleaseManifest,
  sheetRows: number = SHEET_ROWS,
): Promise<void> {
  // Computed once, because the rows are read twice: for column widths and for cells.
  await db.run(`create temp table sheet_row as from ${from} limit ${sheetRows}`)
  try {
    if ((await countRows(db, 'sheet_row')) === sheetRows)
      throw new Error(
        `more than ${groupThousands(sheetRows - 1)} rows, the most a worksheet holds: ask for fewer, or for CSV or Parquet.`,
      )
    const names = [title.slice(0, NAME_CHARACTERS)]
    await writeBook(path, manifest, (book) =>
      writeSheets(book, db, {table: title, from: 'sheet_row', rows: 'sheet_row', names}, sheetRows),
    )
  } finally {
    await db.run('drop table sheet_row')
  }
}

async function writeBook(
  path: string,
  {known_at, generator}: ReleaseManifest,
  fill: (book: WorkbookWriter) => Promise<void>,
): Promise<void> {
  // Loaded late: it takes a third of a second.
  const {WorkbookWriter} = await import('@cj-tech-master/excelts')
  const made = new Date(known_at)
  const stream = createWriteStream(path)
  // Without an await between here and the race below, a failure is never an unhandled rejection.
  const isDone = finished(stream)
  const book = new WorkbookWriter({
    stream,
    useStyles: true,
    trueStreaming: true,
    created: made,
    modified: made,
  })
  // Each entry is of 1980-01-01, the earliest time of a ZIP: the same content gives the same bytes (APPNOTE.TXT 4.4.6).
  const {zip} = book
  const add = zip.add.bind(zip)
  const entries: Parameters<typeof add>[0][] = []
  zip.add = (entry) => {
    entries.push(entry)
    add(Object.assign(entry, {dosTime: 0, dosDate: 0x21}))
  }
  book.creator = generator
  book.lastModifiedBy = generator
  const work = async () => {
    await fill(book)
    await book.commit()
    await isDone
  }
  // Without the race, a stream failure would leave the library waiting forever.
  await Promise.race([work(), isDone.then(() => new Promise<never>(() => undefined))])
  if (
    statSync(path).size > MOST_BYTES ||
    entries.some((entry) => entry.getCentralDirectoryEntryInfo()?.zip64)
  )
    throw newError('EXPORT_XLSX_TOO_LARGE', `Workbook '${path}', or a sheet of it, has more than 4 GB.`)
}

/** Names of sheets are unique. Spreadsheets ignore case, but names of tables are lower case. */
function takeName(taken: Set<string>, table: string, number = 1): string {
  const tail = number === 1 ? '' : ` (${number})`
  const name = `${table.slice(0, NAME_CHARACTERS - tail.length)}${tail}`
  if (taken.has(name)) return takeName(taken, table, number + 1)
  taken.add(name)
  return name
}

async function writeSheets(
  book: WorkbookWriter,
  db: Database,
  {table, from, rows, names}: {table: string; from: string; rows: string; names: readonly string[]},
  sheetRows: number,
): Promise<void> {
  const columns = await readSheetColumns(db, table, from)
  const unused = names.values()
  const next = () => openSheet(book, unused.next().value ?? table, columns)
  let sheet = next()
  let row = 1
  const cells = columns.map(({name, isPlain}) => `${quoteName(name)}${isPlain ? '' : '::varchar'}`)
  for await (const chunk of db.stream(`select ${cells.join(', ')} from ${rows}`)) {
    for (const values of chunk) {
      if (row === sheetRows) {
        closeSheet(sheet, columns, row)
        sheet = next()
        row = 1
      }
      // Only doubles and numbers of few digits arrive as numbers.
      const read = columns.map((column, index) => {
        const value = values[index] ?? null
        return value === null || typeof value === 'number' ? value : column.read(String(value))
      })
      sheet.addRow(read).commit()
      row += 1
    }
    // Lets the stream write to the file.
    await new Promise((resolve) => setImmediate(resolve))
  }
  closeSheet(sheet, columns, row)
}

/** Most characters side by side on a printed page; wider sheets take several pages. */
const PAGE_CHARACTERS = 210

type Worksheet = ReturnType<WorkbookWriter['addWorksheet']>

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
  sheet.autoFilter = {from: {row: 1, col: 1}, to: {row: rows, col: columns.length}}
  sheet.commit()
}

/** Texts are never taken for formulas. */
type CellValue = string | number | boolean | Date | {richText: {text: string}[]} | null

/** Most characters of a cell (Excel specifications and limits). */
const CELL_CHARACTERS = 32_767

/** Most digits that a spreadsheet keeps; numbers with more stay text. */
const EXACT_DIGITS = 15

/** `width` is left out if it depends on the content. */
interface Look {
  /** Excel's number format; null for text. */
  format: string | null
  width?: number
  read: (text: string) => CellValue
}

/** `width` is in characters. If a column is not plain, its values are read as text. */
type SheetColumn = Look & {name: string; width: number; isPlain: boolean}

/** Types of numbers and booleans. Dates and timestamps have a look of their own; all other types are shown as text. */
const PLAIN = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|BOOLEAN)$/

const MONEY = {format: '#,##0.00', read: readNumber}
const COUNT = {format: '#,##0', read: readNumber}
const NUMBER = {format: '#,##0.00####', width: 14, read: readNumber}

/** By column name, a space and type: the first match is the look of a column; without one it is {@link NUMBER}. */
const LOOKS: [column: RegExp, look: Look][] = [
  [/ DATE$/, {format: 'yyyy-mm-dd', width: 11, read: (text) => readInstant(text, `${text}T00:00:00Z`)}],
  [
    / TIMESTAMP$/,
    {
      format: 'yyyy-mm-dd hh:mm:ss',
      width: 20,
      // Spreadsheets round the parts of a second that the format leaves out, up to the next day.
      read: (text) => readInstant(text, `${text.replace(' ', 'T').slice(0, 19)}Z`),
    },
  ],
  // LibreOffice shows words for booleans only with this format.
  [/ BOOLEAN$/, {format: '"TRUE";"TRUE";"FALSE"', width: 7, read: (text) => text === 'true'}],
  [/ VARCHAR$/, {format: null, read: readText}],
  [INTEREST, {format: '0.0##"%"', width: 8, read: readNumber}],
  [/_pct \S+$/, {format: '0.0"%"', width: 8, read: readNumber}],
  [/(^|_)ltv \S+$/, {format: '0.0%', width: 8, read: readNumber}],
  [/(^|_)(version|rank|order|no) \S+$/, {format: '0', read: readNumber}],
  [/(INT(EGER)?|,0\))$/, COUNT],
  [/ DECIMAL\(\d+,2\)$/, MONEY],
]

/** Characters that XML cannot hold or reads as another, or that the library drops. */
const UNSAFE = /[[\p{Cc}\ufffe\uffff]--[\t\n\x80-\x9f]]/gv

/**
 * Makes a cell value of a text. Unsafe characters are written as `_x0001_` (ST_Xstring of ECMA-376), so a literal `_x0041_`,
 * which would be read as `A`, must be escaped: the library does that in rich text, the only form that LibreOffice decodes, and the
 * only one of which it keeps blanks at either end.
 */
function readText(text: string): CellValue {
  // The library drops `\0`, but only after it has escaped `_x0041_`.
  const hexOf = (unit: string) => unit.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')
  const safe = text.replace(UNSAFE, (unit) => `_\0x${hexOf(unit)}_\0`)
  return safe !== text || /_x[0-9a-f]{4}_|^\s|\s$/i.test(text) ? {richText: [{text: safe}]} : text
}

/** Text if it has too many digits for a spreadsheet or is `NaN` or `Infinity`. */
function readNumber(text: string): CellValue {
  const digits = text
    .replace(/(\.\d*?)0+$/, '$1')
    .replace(/[^\d]/g, '')
    .replace(/^0+/, '')
  return digits.length <= EXACT_DIGITS && Number.isFinite(Number(text)) ? Number(text) : readText(text)
}

/** Text before 1900-03-01, where spreadsheets disagree, and after their last date. */
function readInstant(text: string, iso: string): CellValue {
  const at = new Date(iso)
  return text < '1900-03-01' || text > '9999-12-31 23:59:59' || Number.isNaN(at.getTime()) ? text : at
}

/** Columns of a table, or of the SQL `from`. @throws CheckError `EXPORT_CELL` */
async function readSheetColumns(db: Database, table: string, from: string): Promise<SheetColumn[]> {
  const columns = await readColumns(db, from)
  const lengths = columns.map(({name}) => {
    const quoted = quoteName(name)
    const text = `cast(${quoted} as varchar)`
    // Excel counts UTF-16 units: two for a character beyond the first 65,536.
    const units = `length(${text}) + length(regexp_replace(${text}, '[^\\x{10000}-\\x{10ffff}]', '', 'g'))`
    return `coalesce(max(case when strlen(${text}) > ${CELL_CHARACTERS} then ${units} else length(${text}) end), 0) as ${quoted}`
  })
  const longest = await db.one(
    z.record(z.string(), z.coerce.number()),
    `select ${lengths.join(', ')} from ${from}`,
  )
  return columns.map((column) => {
    const {name} = column
    const isPlain = PLAIN.test(column.type)
    const type = isPlain || /^(DATE|TIMESTAMP)$/.test(column.type) ? column.type : 'VARCHAR'
    const look: Look = LOOKS.find(([fits]) => fits.test(`${name} ${type}`))?.[1] ?? NUMBER
    const length = longest[name] ?? 0
    if (length > CELL_CHARACTERS)
      throw newError(
        'EXPORT_CELL',
        `Column '${name}' of table '${table}' holds a text of ${length} characters: a cell takes ${CELL_CHARACTERS}.`,
        {next: 'Export the other tables with --table, or this one as csv or parquet.'},
      )
    // The filter button is about three characters wide.
    const width = Math.max(name.length + 3, look.width ?? Math.ceil(length * (look.format ? 1.35 : 1)) + 2)
    return {...look, name, isPlain, width: Math.min(width, 60)}
  })
}

/** Set in every style, since LibreOffice would choose a serif font. */
const FONT = {name: 'Calibri', family: 2, size: 11} as const

/** The index of the column "What it holds". */
const ABOUT = 5

function writeSummarySheet(
  book: WorkbookWriter,
  manifest: ReleaseManifest,
  notes: readonly SheetNote[],
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
        ...(typeof value === 'number' && {numFmt: (isCount ? COUNT : MONEY).format}),
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
  add(['As of', new Date(`${manifest.as_of}T00:00:00Z`)])
  add(['Observed until', new Date(`${manifest.observed_until}T00:00:00Z`)])
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
  for (const {names, rows, sum_amount, sum_debit, sum_credit, about} of notes) {
    const link = {text: names.join(', '), hyperlink: `#'${names[0]}'!A1`}
    add([link, rows, amount(sum_amount), amount(sum_debit), amount(sum_credit), about])
  }
  add([])
  add([
    'Amount is the sum of the column loan_amount or amount. Instants in the sheets are UTC, to the second.',
  ])
  sheet.commit()
}
