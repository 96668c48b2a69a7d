import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {countRows, readColumns, type TableColumn} from '../store/sql.ts'
import {
  inOrder,
  type NeutralisedCell,
  type ProfileWriter,
  readControlTotals,
  type WrittenFile,
} from './profile.ts'

/**
 * Writes each table as CSV by RFC 4180: UTF-8, LF or CRLF, a header line. A null is empty, an empty text is `""`. Timestamps are
 * ISO 8601 in UTC with microseconds; decimals keep all their places.
 */
export const writeCsv: ProfileWriter = async (db, source, {tables, options}, dir) => {
  const {lineEnding, isSpreadsheetSafe} = options
  const files: WrittenFile[] = []
  const neutralised: NeutralisedCell[] = []
  for (const table of tables) {
    const name = `${table}.csv`
    const columns = await readColumns(db, `release.${table}`)
    const rows = inOrder(source, table)
    if (isSpreadsheetSafe) {
      await requireSafeColumns(db, table, columns)
      for (const cell of await listFormulas(db, rows, columns)) neutralised.push({file: name, ...cell})
    }
    const cells = columns.map((column) => {
      const quoted = quoteName(column.name)
      if (column.type === 'TIMESTAMP') return `strftime(${quoted}, '%Y-%m-%dT%H:%M:%S.%fZ') as ${quoted}`
      return isSpreadsheetSafe && isFreeText(column) ? `${neutralise(quoted)} as ${quoted}` : quoted
    })
    await db.run(
      `copy (select ${cells.join(', ')} from ${rows}) to ${quoteLiteral(join(dir, name))}
       (format csv, header true, new_line '${lineEnding === 'crlf' ? '\\r\\n' : '\\n'}')`,
    )
    files.push({name, ...(await readControlTotals(db, table))})
  }
  return {files, ...(isSpreadsheetSafe && {neutralised})}
}

/**
 * Matches a text that a spreadsheet takes for a formula: it starts with TAB, CR or LF, or with `= + - @`, also full-width and after
 * spaces and invisible characters of any kind (OWASP, CSV injection).
 */
const FORMULA = quoteLiteral('^[\\p{Z}\\p{C}]*[=+@＝＋＠－-]|^[\\t\\r\\n]')

/** SQL that is true for a text that a spreadsheet takes for a formula. */
const isFormula = (text: string) => `coalesce(regexp_matches(${text}, ${FORMULA}), false)`

/** SQL of a text, with a leading `'` if a spreadsheet would take it for a formula. */
const neutralise = (text: string) => `case when ${isFormula(text)} then '''' || ${text} else ${text} end`

const isId = (name: string) => /(^|_)id$/.test(name)

/** Whether a column holds text written by people. Nothing may be put in front of an id. */
const isFreeText = ({name, type}: TableColumn) => type === 'VARCHAR' && !isId(name)

/** Types whose values are never formulas. */
const NO_TEXT = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL|FLOAT|DOUBLE|BOOLEAN|DATE|TIME|UUID|INTERVAL)\b/

/** SQL of rows made safe for a spreadsheet, including ids and every other type: for people, not for importers. */
export function buildSafeRows(columns: readonly TableColumn[], from: string): string {
  const cells = columns.map(({name, type}) => {
    const quoted = quoteName(name)
    return NO_TEXT.test(type) ? quoted : `${neutralise(`${quoted}::varchar`)} as ${quoted}`
  })
  return `select ${cells.join(', ')} from ${from}`
}

/**
 * Lists the cells that {@link neutralise} changes, in the order of the file.
 *
 * @param rows SQL of the table's rows in that order
 */
async function listFormulas(
  db: Database,
  rows: string,
  columns: readonly TableColumn[],
): Promise<Omit<NeutralisedCell, 'file'>[]> {
  const texts = columns.filter(isFreeText)
  if (texts.length === 0) return []
  const hits = texts.map(({name}, index) => {
    const cell = `${index} as column_no, ${quoteLiteral(name)} as "column"`
    return `select row, ${cell} from numbered where ${isFormula(quoteName(name))}`
  })
  return await db.all(
    z.object({row: z.coerce.number(), column: z.string()}),
    `with numbered as (select *, row_number() over () as row from ${rows})
     select row, "column" from (${hits.join(' union all ')}) order by row, column_no`,
  )
}

/**
 * Refuses ids that would need a leading `'`, because importers would no longer find them, and numbers that are not finite.
 *
 * @throws CheckError `EXPORT_CELL`
 */
async function requireSafeColumns(
  db: Database,
  table: string,
  columns: readonly TableColumn[],
): Promise<void> {
  for (const {name, type} of columns) {
    const isText = type === 'VARCHAR' && isId(name)
    if (!isText && type !== 'DOUBLE') continue
    const quoted = quoteName(name)
    const isWrong = isText ? isFormula(quoted) : `${quoted} is not null and not isfinite(${quoted})`
    const cells = await countRows(db, `release.${table} where ${isWrong}`)
    if (cells === 0) continue
    throw newError(
      'EXPORT_CELL',
      `Column '${name}' of table '${table}' holds ${cells} values ${isText ? 'that a spreadsheet would take for formulas: expected ids that begin with a letter or digit' : 'that are not finite numbers'}.`,
      {
        next: isText
          ? 'Export without --spreadsheet-safe, or as xlsx, where a text never becomes a formula.'
          : 'Correct the model of this table.',
      },
    )
  }
}
