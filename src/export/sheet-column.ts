import type {Json} from '@duckdb/node-api'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {type Database, quoteName} from '../warehouse/database.ts'
import {readColumns, type TableColumn} from '../warehouse/table-columns.ts'

/** What a cell holds; a text is never read as a formula. */
export type CellValue = string | number | boolean | Date | {richText: {text: string}[]} | null

/** A column of a worksheet. */
export interface SheetColumn {
  name: string
  /** In characters. */
  width: number
  /** Excel's number format; null for text. */
  format: string | null
  readCell: (value: Json) => CellValue
}

/** What one cell can hold (Excel specifications and limits). */
const CELL_CHARACTERS = 32_767

/** More digits than a spreadsheet keeps: such a number stays text, which is exact. */
const EXACT_DIGITS = 15

/** How a kind of column looks: its format, and its width where that does not depend on the content. */
interface Look {
  format: string | null
  width?: number
  read: (text: string) => CellValue
}

const LOOKS = {
  money: {format: '#,##0.00', read: readNumber},
  count: {format: '#,##0', read: readNumber},
  ordinal: {format: '0', read: readNumber},
  ratio: {format: '0.0%', width: 8, read: readNumber},
  percentage: {format: '0.0"%"', width: 8, read: readNumber},
  number: {format: '#,##0.00####', width: 14, read: readNumber},
  date: {format: 'yyyy-mm-dd', width: 11, read: (text) => readInstant(text, `${text}T00:00:00Z`)},
  timestamp: {
    format: 'yyyy-mm-dd hh:mm:ss',
    width: 20,
    read: (text) => readInstant(text, `${text.replace(' ', 'T').slice(0, 23)}Z`),
  },
  // A spreadsheet shows a truth by its own words, LibreOffice only where the format says so.
  truth: {format: '"TRUE";"TRUE";"FALSE"', width: 7, read: (text) => text === 'true'},
  text: {format: null, read: readText},
} satisfies Record<string, Look>

function lookOf(column: TableColumn): Look {
  const look = lookOfName(column)
  return ['DOUBLE', 'FLOAT'].includes(column.type) ? {...look, read: readDouble} : look
}

function lookOfName({name, type}: TableColumn): Look {
  if (type === 'DATE') return LOOKS.date
  if (type === 'TIMESTAMP') return LOOKS.timestamp
  if (type === 'BOOLEAN') return LOOKS.truth
  if (type === 'VARCHAR') return LOOKS.text
  if (/_pct$/.test(name)) return LOOKS.percentage
  if (/(^|_)ltv$/.test(name)) return LOOKS.ratio
  if (/(^|_)(version|rank|order|no)$/.test(name)) return LOOKS.ordinal
  if (/INT$/.test(type)) return LOOKS.count
  return /^DECIMAL\(\d+,2\)$/.test(type) ? LOOKS.money : LOOKS.number
}

/**
 * A text as a cell holds it: `_x0041_` would be read as `A` (ST_Xstring of ECMA-376). The library escapes it in a cell of
 * rich text, which is also the only one that LibreOffice decodes.
 */
export function readText(text: string): CellValue {
  return /_x[0-9a-f]{4}_/i.test(text) ? {richText: [{text}]} : text
}

/** A number as a cell holds it without losing a digit. */
export function readNumber(text: string): CellValue {
  const digits = text.replace(/[^\d]/g, '').replace(/^0+/, '')
  return digits.length <= EXACT_DIGITS ? Number(text) : text
}

/** A cell holds a double as it is, but neither `NaN` nor `Infinity`. */
function readDouble(text: string): CellValue {
  const value = Number(text)
  return Number.isFinite(value) ? value : text
}

/** A spreadsheet knows no day before 1900-03-01 for certain: an earlier one stays text. */
function readInstant(text: string, iso: string): CellValue {
  return text < '1900-03-01' || text > '9999-12-31 23:59:59' ? text : new Date(iso)
}

const lengthsRow = z.record(z.string(), z.coerce.number())

/**
 * The columns of a table as a worksheet shows them.
 *
 * @param from what SQL reads it from
 * @throws CheckError `EXPORT_CELL`
 */
export async function readSheetColumns(db: Database, table: string, from: string): Promise<SheetColumn[]> {
  const columns = await readColumns(db, from)
  const lengths = columns.map(({name}) => {
    const quoted = quoteName(name)
    return `coalesce(max(length(cast(${quoted} as varchar))), 0) as ${quoted}`
  })
  const longest = await db.one(lengthsRow, `select ${lengths.join(', ')} from ${from}`)
  return columns.map((column) => {
    const {name, type} = column
    const look = lookOf(column)
    const length = longest[name] ?? 0
    if (type === 'VARCHAR' && length > CELL_CHARACTERS)
      throw newError(
        'EXPORT_CELL',
        `Column '${name}' of table '${table}' holds a text of ${length} characters: a cell takes ${CELL_CHARACTERS}.`,
        {next: 'Export the other tables with --table, or this one as csv or parquet.'},
      )
    // The filter's button takes about three characters beside the name.
    const width = Math.max(name.length + 3, look.width ?? Math.ceil(length * (look.format ? 1.35 : 1)) + 2)
    return {
      name,
      width: Math.min(width, 60),
      format: look.format,
      readCell: (value) => (value === null ? null : look.read(String(value))),
    }
  })
}
