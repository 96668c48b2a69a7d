import {createReadStream, createWriteStream, renameSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {pipeline} from 'node:stream/promises'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {readColumns, type TableColumn} from '../store/sql.ts'
import {inOrder, type NeutralisedCell, readControlTotals, type WriteRequest, type Written} from './batch.ts'
import type {Dialect} from './dialect.ts'

/**
 * A null is an empty field and an empty text `""`; in a table of one column, a null is `""` too. Timestamps are ISO 8601 in UTC
 * with microseconds; decimals keep all their places.
 * @throws CheckError `EXPORT_CELL` naming a cell that the dialect cannot hold
 */
export async function writeCsv({db, source, tables, dialect, dir}: WriteRequest): Promise<Written> {
  const {lineEnding, bom, encoding, quoteTexts, spreadsheetSafe, replaceCharacters} = dialect
  const neutralised: NeutralisedCell[] = []
  const written: Written = {files: [], dialect, ...(spreadsheetSafe && {neutralised})}
  for (const table of tables) {
    const name = `${table}.csv`
    const path = join(dir, name)
    const columns = await readColumns(db, `release.${table}`)
    const rows = inOrder(source, table)
    const refuse = async (what: string, wanted: Wanted) => {
      const [cell] = await listCells(db, rows, columns, wanted, 'limit 1')
      if (!cell) return
      const where = `Column '${cell.column}' of table '${table}', row ${cell.row}`
      throw newError('EXPORT_CELL', `${where}, holds ${what}.`)
    }
    if (spreadsheetSafe) {
      // With a `'` before it, importers would no longer find an id.
      await refuse('an id that a spreadsheet takes for a formula', [isId, isFormula])
      await refuse('what is not finite', [isEndless, (value) => `not isfinite(${value})`])
      for (const cell of await listCells(db, rows, columns, [isFreeText, isFormula]))
        neutralised.push({file: name, ...cell})
    }
    // Names of columns are ASCII.
    if (encoding !== 'utf-8')
      await refuse('a character that windows-1252 lacks', [replaceCharacters ? isId : isText, isLacked])
    const cells = columns.map((column) => `${writeCell(column, dialect)} as ${quoteName(column.name)}`)
    const quoted = columns.filter((column) => quoteTexts && isText(column)).map(({name}) => quoteName(name))
    await db.run(
      `copy (${buildLines(columns, `(select ${cells.join(', ')} from ${rows})`)}) to ${quoteLiteral(path)}
       (format csv, header true, new_line '${lineEnding === 'crlf' ? '\\r\\n' : '\\n'}',
        delimiter ${quoteLiteral(dialect.delimiter)} ${quoted.length > 0 ? `, force_quote (${quoted})` : ''})`,
    )
    if (bom || encoding !== 'utf-8') await encodeFile(path, dialect)
    written.files.push({name, ...(await readControlTotals(db, table))})
  }
  return written
}

/** A null in a table of one column becomes an empty text, which is quoted: many readers skip empty lines. */
export function buildLines([only, ...others]: readonly TableColumn[], from: string): string {
  if (!only || others.length > 0) return `from ${from}`
  const quoted = quoteName(only.name)
  return `select coalesce(${quoted}::varchar, '') as ${quoted} from ${from}`
}

function writeCell(column: TableColumn, {decimal, spreadsheetSafe, replaceCharacters}: Dialect): string {
  const quoted = quoteName(column.name)
  if (column.type === 'TIMESTAMP') return `strftime(${quoted}, '%Y-%m-%dT%H:%M:%S.%fZ')`
  if (decimal === ',' && /^(DECIMAL|DOUBLE)/.test(column.type)) return `replace(${quoted}::varchar, '.', ',')`
  const safe = spreadsheetSafe && isFreeText(column) ? neutralise(quoted) : quoted
  return replaceCharacters && isFreeText(column) ? `regexp_replace(${safe}, ${LACKED}, '?', 'g')` : safe
}

/** A test for columns, and SQL that is true for a matching cell. */
type Wanted = [isOf: (column: TableColumn) => boolean, isHit: (quoted: string) => string]

/** Lists cells in file order, which is that of `rows`. */
async function listCells(
  db: Database,
  rows: string,
  columns: readonly TableColumn[],
  [isOf, isHit]: Wanted,
  limit = '',
): Promise<Omit<NeutralisedCell, 'file'>[]> {
  const hits = columns.filter(isOf).map(({name}, index) => {
    const cell = `${index} as column_no, ${quoteLiteral(name)} as "column"`
    return `select row, ${cell} from numbered where ${isHit(quoteName(name))}`
  })
  if (hits.length === 0) return []
  return await db.all(
    z.object({row: z.coerce.number(), column: z.string()}),
    `with numbered as (select *, row_number() over () as row from ${rows})
     select row, "column" from (${hits.join(' union all ')}) order by row, column_no ${limit}`,
  )
}

/** Matches a text that is a formula to spreadsheets: `= + - @`, also full-width and after blanks, or TAB, CR or LF first (OWASP). */
const FORMULA = quoteLiteral('^[\\p{Z}\\p{C}]*[=+@＝＋＠－-]|^[\\t\\r\\n]')

const isFormula = (text: string) => `coalesce(regexp_matches(${text}, ${FORMULA}), false)`

const neutralise = (text: string) => `case when ${isFormula(text)} then '''' || ${text} else ${text} end`

const isText = ({type}: TableColumn) => type === 'VARCHAR'
const isEndless = ({type}: TableColumn) => /^(DOUBLE|DATE|TIMESTAMP)$/.test(type)
const isId = (column: TableColumn) => isText(column) && /(^|_)id$/.test(column.name)

/** Text written by people. Ids must stay as they are. */
const isFreeText = (column: TableColumn) => isText(column) && !isId(column)

/** Types whose values are never taken for formulas. */
const NO_TEXT = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL|FLOAT|DOUBLE|BOOLEAN|DATE|TIME|UUID|INTERVAL)\b/

/** Safe for a spreadsheet in every column, ids included; for people, not for importers. */
export function buildSafeRows(columns: readonly TableColumn[], from: string): string {
  const cells = columns.map(({name, type}) => {
    const quoted = quoteName(name)
    return NO_TEXT.test(type) ? quoted : `${neutralise(`${quoted}::varchar`)} as ${quoted}`
  })
  return `select ${cells.join(', ')} from ${from}`
}

/** The characters of windows-1252 from 0x80 to 0x9f; five positions are unused. */
const AT_80 = new TextDecoder('windows-1252').decode(
  Uint8Array.from({length: 32}, (_, index) => 0x80 + index),
)
const OWN = `[${AT_80.replace(/[\x80-\x9f]/g, '')}]`

const LACKED = quoteLiteral(OWN.replace('[', '[^\\x00-\\x7f\\x{a0}-\\x{ff}'))
const isLacked = (text: string) => `regexp_matches(${text}, ${LACKED})`

async function encodeFile(path: string, {bom, encoding}: Dialect): Promise<void> {
  const plain = `${path}.utf-8`
  renameSync(path, plain)
  const toByte = (own: string) => String.fromCharCode(0x80 + AT_80.indexOf(own))
  await pipeline(
    createReadStream(plain, 'utf8'),
    async function* (parts: AsyncIterable<string>) {
      if (bom) yield '\ufeff'
      for await (const part of parts)
        yield encoding === 'utf-8' ? part : Buffer.from(part.replace(new RegExp(OWN, 'g'), toByte), 'latin1')
    },
    createWriteStream(path),
  )
  rmSync(plain)
}
