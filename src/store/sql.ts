import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {escapeLineEnds, shorten} from '../core/text.ts'
import {listNames} from './data-folder.ts'
import type {Database, Queries} from './database.ts'
import {readWrittenText} from './files.ts'

export const SQL_DIR = join(import.meta.dirname, '../../sql')

/** @throws CheckError `SQL_FILE` if it cannot be read or is not UTF-8 */
export function readSqlFile(path: string): string {
  return readWrittenText(path, (problem, cause) =>
    newError('SQL_FILE', `File '${path}': ${problem}.`, {cause}),
  )
}

/** In the order of {@link listNames}. */
export const listFiles = (folder: string, ending: string): string[] =>
  listNames(folder).flatMap((name) => (name.endsWith(ending) ? join(folder, name) : []))

/** Splits off the comment lines at the top, without blanks at their ends. `sql` is the whole text without the final semicolon. */
export function splitHeader(text: string): {header: string[]; sql: string} {
  const lines = text.split('\n').map((line) => line.trimEnd())
  const end = lines.findIndex((line) => !line.startsWith('--'))
  return {header: end === -1 ? lines : lines.slice(0, end), sql: text.replace(/;\s*$/, '\n')}
}

/** A query of the program itself, with `values` in place of names in braces. */
export const readQuery = (name: string, values: Readonly<Record<string, unknown>> = {}): string =>
  fillIn(readFileSync(join(SQL_DIR, 'queries', `${name}.sql`), 'utf8'), values)

/** Unknown names stay. */
export function fillIn(text: string, values: Readonly<Record<string, unknown>>): string {
  return text.replace(/\{([a-z_]+)\}/g, (known, name: string) => String(values[name] ?? known))
}

/** The parts of a node of the engine's parser or binder that we use. */
export interface Node {
  type?: string
  query_location?: number
  schema_name?: string
  table_name?: string
  cte_map?: {map: {key: string}[]}
  from_table?: Node
  sample?: object | null
  function?: {function_name: string}
  function_name?: string
  expression_class?: string
  name?: string
  arguments?: {id: string}[]
}

/** Outer nodes first; looks also below parts that this version does not know. */
export function findNodes(
  tree: unknown,
  isWanted: (node: Node) => boolean = () => true,
  found: Node[] = [],
): Node[] {
  if (typeof tree !== 'object' || tree === null) return found
  if (isWanted(tree)) found.push(tree)
  for (const child of Object.values(tree)) findNodes(child, isWanted, found)
  return found
}

/** Lower case, without the surrounding blanks that JavaScript's `trim` removes. */
export function canonicalSql(text: string): string {
  return `lower(regexp_replace(${text}, '^[\\s\\x0b\\p{Z}\\x{feff}]+|[\\s\\x0b\\p{Z}\\x{feff}]+$', '', 'g'))`
}

/** `type` is as DuckDB names it. */
export type TableColumn = z.output<typeof columnRow>
const columnRow = z.object({name: z.string(), type: z.string()})

/** Whether a published column has an exact sum: doubles come to another one in another order. */
export const hasExactSum = ({type}: TableColumn) => /^(BIGINT|DECIMAL)/.test(type)

export function readColumns(db: Database, table: string): Promise<TableColumn[]> {
  return db.all(columnRow, `select column_name as name, column_type as type from (describe ${table})`)
}

export const countRows = (db: Queries, from: string) =>
  db.value(z.coerce.number(), `select count(*) from ${from}`)

/** The first column is the id, the others explain it: `deal_7f3a (loan_amount=250000.00)`. */
export function describeRow(row: Record<string, unknown>): string {
  const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value))
  const [[id, subject] = ['', ''], ...others] = Object.entries(row)
  const named = id.endsWith('_id') ? textOf(subject) : shorten(textOf(subject))
  const explained = others.map(([column, value]) => `${column}=${shorten(textOf(value))}`).join(', ')
  return escapeLineEnds(explained === '' ? named : `${named} (${explained})`)
}

/**
 * Every version computes the same digest: a null counts for nothing, so neither does a column that did not exist yet; the
 * engine's own `hash` changes with its version.
 */
export function buildDigestSql(columns: readonly string[], others: readonly string[] = []): string {
  const texts = columns.map((name) => `'${name}=' || ${name}`)
  return `md5_number(concat_ws(chr(31), ${[...texts, ...others].join(', ')}))`
}

/** Ignores the order of rows. Reads every value. */
export function digestRows(db: Database, from: string): Promise<string> {
  return db.value(
    z.string(),
    `select concat_ws(' ', count(*), bit_xor(hash("a row")), sum(cast(hash("a row") as hugeint))) from (${from}) as "a row"`,
  )
}

/** Tables of the database attached as `release`. */
export async function readTables(db: Queries): Promise<Map<string, TableColumn[]>> {
  const tables = await db.all(
    z.object({table: z.string(), columns: z.array(columnRow)}),
    `select concat(schema_name, '.', table_name) as "table",
       list({'name': column_name, 'type': data_type} order by column_index) as columns
     from duckdb_columns() where database_name = 'release' and not internal group by all order by all`,
  )
  return new Map(tables.map(({table, columns}) => [table, columns]))
}
