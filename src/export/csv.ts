import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {readColumns, type TableColumn} from '../store/sql.ts'
import {
  type ExportOptions,
  inOrder,
  type NeutralisedCell,
  type ProfileWriter,
  readControlTotals,
  type WrittenFile,
} from './profile.ts'

/**
 * A text that a spreadsheet takes for a formula: `= + - @`, also full-width and after spaces and invisible characters of
 * any kind, or TAB, CR, LF at its start (OWASP, CSV injection).
 */
const FORMULA = quoteLiteral('^[\\p{Z}\\p{C}]*[=+@＝＋＠－-]|^[\\t\\r\\n]')

/** SQL that is true where a text would be taken for a formula. */
const buildFormulaTest = (column: string) => buildTest(quoteName(column))

const buildTest = (text: string) => `coalesce(regexp_matches(${text}, ${FORMULA}), false)`

/** Types of which no value is a formula. */
const NO_TEXT = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL|FLOAT|DOUBLE|BOOLEAN|DATE|TIME|UUID|INTERVAL)\b/

/**
 * SQL of rows whose texts are safe as {@link buildSafeValue} makes them, whatever their type, and ids among them: for people, who
 * give them to no importer.
 */
export function buildSafeRows(columns: readonly TableColumn[], from: string): string {
  const values = columns.map((column) => {
    const name = quoteName(column.name)
    if (NO_TEXT.test(column.type)) return name
    const text = `${name}::varchar`
    return `case when ${buildTest(text)} then '''' || ${text} else ${text} end as ${name}`
  })
  return `select ${values.join(', ')} from ${from}`
}

/** Whether people write what stands in a column; an id is text, too, but nothing may be put in front of it. */
function isFreeText({name, type}: TableColumn): boolean {
  return type === 'VARCHAR' && !isId(name)
}

function isId(name: string): boolean {
  return /(^|_)id$/.test(name)
}

/** SQL of a column's value, with `'` in front where it would be taken for a formula. */
function buildSafeValue(column: TableColumn): string {
  const name = quoteName(column.name)
  if (!isFreeText(column)) return name
  return `case when ${buildFormulaTest(column.name)} then '''' || ${name} else ${name} end`
}

/**
 * The cells that {@link buildSafeValue} changes, in the order of the file.
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
  const hits = texts.map(({name}, place) => {
    const cell = `${place} as place, ${quoteLiteral(name)} as "column"`
    return `select row, ${cell} from numbered where ${buildFormulaTest(name)}`
  })
  return await db.all(
    z.object({row: z.coerce.number(), column: z.string()}),
    `with numbered as (select *, row_number() over () as row from ${rows})
     select row, "column" from (${hits.join(' union all ')}) order by row, place`,
  )
}

/**
 * Makes sure that nothing would have to be put in front of an id, where an importer could no longer find it, and that
 * every number is one.
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
    const test = isText
      ? buildFormulaTest(name)
      : `${quoteName(name)} is not null and not isfinite(${quoteName(name)})`
    const {cells} = await db.one(
      z.object({cells: z.coerce.number()}),
      `select count(*) as cells from release.${table} where ${test}`,
    )
    if (cells === 0) continue
    throw newError(
      'EXPORT_CELL',
      `Column '${name}' of table '${table}' holds ${cells} values ${isText ? 'that a spreadsheet would take for formulas: expected ids that begin with a letter or digit' : 'that are no finite number'}.`,
      {
        next: isText
          ? 'Export without --spreadsheet-safe, or as xlsx, where a text never becomes a formula.'
          : 'Correct the model of this table.',
      },
    )
  }
}

/**
 * Writes each table as CSV by RFC 4180: UTF-8, LF or CRLF, a header line; a null is empty and an empty text is `""`.
 * Timestamps are ISO 8601 in UTC with microseconds; decimals have all their places.
 */
export const writeCsv: ProfileWriter = async (db, source, {tables, options}, dir) => {
  const files: WrittenFile[] = []
  const neutralised: NeutralisedCell[] = []
  for (const table of tables) {
    const name = `${table}.csv`
    const columns = await readColumns(db, `release.${table}`)
    if (options.isSpreadsheetSafe) {
      await requireSafeColumns(db, table, columns)
      for (const cell of await listFormulas(db, inOrder(source, table), columns))
        neutralised.push({file: name, ...cell})
    }
    await copyRows(db, inOrder(source, table), columns, options, join(dir, name))
    files.push({name, ...(await readControlTotals(db, table))})
  }
  return {files, ...(options.isSpreadsheetSafe && {neutralised})}
}

async function copyRows(
  db: Database,
  rows: string,
  columns: readonly TableColumn[],
  {lineEnding, isSpreadsheetSafe}: ExportOptions,
  path: string,
): Promise<void> {
  const values = columns.map((column) => {
    const name = quoteName(column.name)
    if (column.type === 'TIMESTAMP') return `strftime(${name}, '%Y-%m-%dT%H:%M:%S.%fZ') as ${name}`
    return isSpreadsheetSafe ? `${buildSafeValue(column)} as ${name}` : name
  })
  const newLine = lineEnding === 'crlf' ? '\\r\\n' : '\\n'
  await db.run(
    `copy (select ${values.join(', ')} from ${rows}) to ${quoteLiteral(path)}
     (format csv, header true, new_line '${newLine}')`,
  )
}
