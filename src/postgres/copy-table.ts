import {pipeline} from 'node:stream/promises'
import type {Json} from '@duckdb/node-api'
import {escapeIdentifier, escapeLiteral} from 'pg'
import {from as copyFrom} from 'pg-copy-streams'
import {z} from 'zod'
import {codeOf, newError} from '../errors.ts'
import {type Database, quoteName} from '../warehouse/database.ts'
import {readTableComment} from '../warehouse/table-columns.ts'
import type {Session} from './session.ts'

/** A published table of a release. */
export interface PublishedTable {
  schema: string
  name: string
  rows: number
}

type Column = z.output<typeof columnRow>
const columnRow = z.object({
  name: z.string(),
  type: z.string(),
  comment: z.string().nullable(),
})

const PLAIN_TYPES: Record<string, string> = {
  VARCHAR: 'text',
  BOOLEAN: 'boolean',
  TINYINT: 'smallint',
  SMALLINT: 'smallint',
  INTEGER: 'integer',
  BIGINT: 'bigint',
  HUGEINT: 'numeric(39, 0)',
  UBIGINT: 'numeric(20, 0)',
  DOUBLE: 'double precision',
  FLOAT: 'real',
  DATE: 'date',
  // Instants of a release are UTC without saying so.
  TIMESTAMP: 'timestamptz',
}

function postgresTypeOf({name, type}: Column, table: string): string {
  const known = PLAIN_TYPES[type] ?? /^DECIMAL(\(\d+,\d+\))$/.exec(type)?.[1]?.replace(/^/, 'numeric')
  if (known !== undefined) return known
  throw newError(
    'POSTGRES_TYPE',
    `Column '${name}' of table '${table}' has the type ${type}: expected a plain one.`,
  )
}

/** Creates a table in a schema of the running transaction, with its comments, and copies its rows into it. */
export async function copyTable(
  session: Session,
  db: Database,
  table: PublishedTable,
  schema: string,
): Promise<void> {
  const source = `${table.schema}.${table.name}`
  const target = `${escapeIdentifier(schema)}.${escapeIdentifier(table.name)}`
  const columns = await db.all(
    columnRow,
    `select column_name as name, data_type as type, comment from duckdb_columns()
     where database_name = 'release' and schema_name = $1 and table_name = $2 order by column_index`,
    [table.schema, table.name],
  )
  const fields = columns.map((column) => `${escapeIdentifier(column.name)} ${postgresTypeOf(column, source)}`)
  await session.run(`create table ${target} (${fields.join(', ')})`)
  await copyRows(session, target, readRows(db, source, columns)).catch((error: unknown) => {
    const code = codeOf(error)
    // What PostgreSQL says of a value (class 22, data exceptions) repeats it.
    if (!code.startsWith('22')) throw error
    throw newError('POSTGRES_VALUE', `Table '${source}' has a value that PostgreSQL does not take (${code}).`)
  })
  await requireWhole(session, db, {source, target, columns, rows: table.rows})
  const comments = buildComments(target, await readTableComment(db, source), columns)
  await session.run([...comments, `analyze ${target}`].join('; '))
}

/** The rows of a table as PostgreSQL reads them. */
async function* readRows(db: Database, source: string, columns: readonly Column[]): AsyncGenerator<Json[]> {
  const values = columns.map(({name, type}) => {
    const quoted = quoteName(name)
    return type === 'TIMESTAMP'
      ? `strftime(${quoted}, '%Y-%m-%d %H:%M:%S.%f+00')`
      : `cast(${quoted} as varchar)`
  })
  for await (const rows of db.stream(`select ${values.join(', ')} from release.${source}`)) yield* rows
}

/**
 * Copies rows into a table of the running transaction. They are frozen, which every snapshot sees: a reader whose
 * transaction began before the swap would otherwise find an empty table.
 */
export async function copyRows(
  session: Session,
  target: string,
  rows: Iterable<Json[]> | AsyncIterable<Json[]>,
): Promise<void> {
  const copy = session.client.query(copyFrom(`copy ${target} from stdin with (freeze)`))
  await pipeline(encodeRows(rows), copy)
}

const escapes: Record<string, string> = {'\\': '\\\\', '\t': '\\t', '\n': '\\n', '\r': '\\r'}

const CHUNK_CHARACTERS = 65_536

/** Rows in the text format of COPY. */
async function* encodeRows(rows: Iterable<Json[]> | AsyncIterable<Json[]>): AsyncGenerator<Buffer> {
  let text = ''
  for await (const row of rows) {
    const cells = row.map((value) =>
      value === null ? '\\N' : String(value).replace(/[\\\t\n\r]/g, (sign) => escapes[sign] ?? sign),
    )
    text += `${cells.join('\t')}\n`
    if (text.length < CHUNK_CHARACTERS) continue
    yield Buffer.from(text)
    text = ''
  }
  yield Buffer.from(text)
}

/** Integers, and decimals whose sum cannot outgrow the 38 digits either engine gives it. */
const SUMMABLE = /^(U?(TINY|SMALL|BIG)INT|U?INTEGER|DECIMAL\(([12]?\d),\d+\))$/

/** Rows, and of each column its exact sum or how many values it has: the same text from either engine. */
function buildTotalsSql(from: string, columns: readonly Column[]): string {
  const totals = columns.map(({name, type}) => {
    const total = SUMMABLE.test(type) ? `sum(${quoteName(name)})` : `count(${quoteName(name)})`
    return `coalesce(cast(${total} as varchar), '')`
  })
  return `select ${['cast(count(*) as varchar)', ...totals].join(" || ' ' || ")} as totals from ${from}`
}

/** Every row and every cent has to be there before anybody is shown the table. */
async function requireWhole(
  session: Session,
  db: Database,
  copied: {source: string; target: string; columns: readonly Column[]; rows: number},
): Promise<void> {
  const {source, target, columns, rows} = copied
  const {totals} = await db.one(z.object({totals: z.string()}), buildTotalsSql(`release.${source}`, columns))
  const [found] = await session.column(z.string(), buildTotalsSql(target, columns))
  if (found === totals && totals.split(' ')[0] === String(rows)) return
  throw newError(
    'POSTGRES_INCOMPLETE',
    `Table '${source}' arrived otherwise than it was sent: expected ${rows} rows, and the same totals.`,
  )
}

/** Comments on a table and its columns. */
function buildComments(target: string, comment: string, columns: readonly Column[]): string[] {
  const described = columns.filter((column) => column.comment !== null)
  return [
    `comment on table ${target} is ${escapeLiteral(comment)}`,
    ...described.map(
      ({name, comment}) =>
        `comment on column ${target}.${escapeIdentifier(name)} is ${escapeLiteral(comment ?? '')}`,
    ),
  ]
}
