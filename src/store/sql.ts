import {isUtf8} from 'node:buffer'
import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {codeOf, type LoantapeError, newError} from '../core/errors.ts'
import {shorten} from '../core/text.ts'
import type {Database, Queries} from './database.ts'
import {readWritten} from './files.ts'

/** The SQL that loantape ships. */
export const SQL_DIR = join(import.meta.dirname, '../../sql')

/**
 * Reads a model, check or seed, which people write with any editor: drops a byte order mark, and makes line ends LF.
 *
 * @throws CheckError `SQL_FILE` if it cannot be read or is not UTF-8
 */
export function readSqlFile(path: string): string {
  let bytes: Buffer
  try {
    bytes = readWritten(path)
  } catch (error) {
    throw newError('SQL_FILE', `File '${path}' cannot be read (${codeOf(error)}): expected a text file.`, {
      cause: error,
    })
  }
  const text = bytes.toString()
  if (!isUtf8(bytes)) throw explainByte(path, bytes, text)
  return text.replace(/^\uFEFF/, '').replaceAll('\r\n', '\n')
}

/** Finds the first byte that is not UTF-8: there the decoded text differs from the bytes. */
function explainByte(path: string, bytes: Buffer, text: string): LoantapeError {
  const isOther = (index: number) => {
    const at = Buffer.byteLength(text.slice(0, index))
    return bytes.subarray(at, at + 3).toString('hex') !== 'efbfbd'
  }
  const before = text.slice(0, text.matchAll(/\uFFFD/g).find(({index}) => isOther(index))?.index)
  const byte = bytes[Buffer.byteLength(before)]?.toString(16).toUpperCase()
  const lines = before.split('\n')
  return newError(
    'SQL_FILE',
    `Byte 0x${byte} in ${path}:${lines.length}:${(lines.at(-1)?.length ?? 0) + 1}: expected UTF-8; editors and spreadsheets offer it when they save a file.`,
  )
}

/** The files of a folder whose names end this way, sorted by name; none if there is no such folder. */
export function listFiles(folder: string, ending: string): string[] {
  if (!existsSync(folder)) return []
  const names = readdirSync(folder).filter((name) => name.endsWith(ending))
  return names.sort().map((name) => join(folder, name))
}

/** Splits a model or check: the comment lines at its top, and the SQL without the final semicolon. */
export function splitHeader(text: string): {header: string[]; sql: string} {
  const lines = text.split('\n')
  const end = lines.findIndex((line) => !line.startsWith('--'))
  return {header: end === -1 ? lines : lines.slice(0, end), sql: text.replace(/;\s*$/, '\n')}
}

/** The text of `sql/queries/<name>.sql`: a SELECT that this program asks by itself. */
export function readQuery(name: string): string {
  return readFileSync(join(SQL_DIR, 'queries', `${name}.sql`), 'utf8')
}

/** A text with each `{name}` replaced by its value. */
export function fillIn(text: string, values: Readonly<Record<string, unknown>>): string {
  return text.replace(/\{([a-z_]+)\}/g, (known, name: string) => String(values[name] ?? known))
}

/** SQL that makes a text comparable: in lower case, without surrounding blanks, which are those of JavaScript's `trim`. */
export function canonicalSql(text: string): string {
  return `lower(regexp_replace(${text}, '^[\\s\\x0b\\p{Z}\\x{feff}]+|[\\s\\x0b\\p{Z}\\x{feff}]+$', '', 'g'))`
}

/** A column of a table; `type` as DuckDB names it. */
export type TableColumn = z.output<typeof columnRow>
const columnRow = z.object({name: z.string(), type: z.string()})

/** The columns of a table, in order. */
export function readColumns(db: Database, table: string): Promise<TableColumn[]> {
  return db.all(columnRow, `select column_name as name, column_type as type from (describe ${table})`)
}

/** How many rows a table or subquery has. */
export async function countRows(db: Queries, from: string): Promise<number> {
  return (await db.one(z.object({rows: z.coerce.number()}), `select count(*) as "rows" from ${from}`)).rows
}

/** A row as text: its first column is its id, the others explain: `deal_7f3a (loan_amount=250000.00)`. */
export function describeRow(row: Record<string, unknown>): string {
  const [[id, subject] = ['', ''], ...others] = Object.entries(row)
  const named = id.endsWith('_id') ? String(subject) : shorten(String(subject))
  const explained = others.map(([column, value]) => `${column}=${shorten(String(value))}`).join(', ')
  return explained === '' ? named : `${named} (${explained})`
}

/** A digest of rows in any order. Computing it reads every value. */
export function digestRows(db: Database, from: string): Promise<string> {
  return db.value(
    z.string(),
    `select concat_ws(' ', count(*), bit_xor(hash("a row")), sum(cast(hash("a row") as hugeint))) from (${from}) as "a row"`,
  )
}

/** The columns of each table of the database attached as `release`: `core.deal` → `deal_id`, … . */
export async function readTables(db: Queries): Promise<Map<string, TableColumn[]>> {
  const tables = await db.all(
    z.object({table: z.string(), columns: z.array(columnRow)}),
    `select concat(schema_name, '.', table_name) as "table",
       list({'name': column_name, 'type': data_type} order by column_index) as columns
     from duckdb_columns() where database_name = 'release' and not internal group by all order by all`,
  )
  return new Map(tables.map(({table, columns}) => [table, columns]))
}
