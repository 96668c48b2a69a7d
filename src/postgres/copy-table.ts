import {pipeline} from 'node:stream/promises'
import type {Json} from '@duckdb/node-api'
import {escapeIdentifier, escapeLiteral} from 'pg'
import {from as copyFrom} from 'pg-copy-streams'
import {codeOf, newError} from '../errors.ts'
import type {TargetColumn, TargetTable} from '../release-target.ts'
import {type Database, quoteName} from '../warehouse/database.ts'
import type {Session} from './session.ts'

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

function postgresTypeOf({name, type}: TargetColumn, table: string): string {
  const known = PLAIN_TYPES[type] ?? /^DECIMAL(\(\d+,\d+\))$/.exec(type)?.[1]?.replace(/^/, 'numeric')
  if (known !== undefined) return known
  throw newError(
    'POSTGRES_VALUE',
    `Column '${name}' of table '${table}' has the type ${type}: expected a plain one.`,
  )
}

/**
 * Creates a table in the running transaction, with its comments, and copies its rows into it from the database attached as
 * `release`.
 *
 * @param target where, quoted
 */
export async function copyTable(
  session: Session,
  db: Database,
  table: TargetTable,
  target: string,
): Promise<void> {
  const {columns} = table
  const source = `${table.schema}.${table.name}`
  const fields = columns.map((column) => `${escapeIdentifier(column.name)} ${postgresTypeOf(column, source)}`)
  await session.run(`create table ${target} (${fields.join(', ')})`)
  await copyRows(session, target, readRows(db, source, columns)).catch((error: unknown) => {
    const code = codeOf(error)
    // What PostgreSQL says of a value (class 22, data exceptions) repeats it.
    if (!code.startsWith('22')) throw error
    throw newError('POSTGRES_VALUE', `Table '${source}' has a value that PostgreSQL does not take (${code}).`)
  })
  await session.run([...buildComments(target, table), `analyze ${target}`].join('; '))
}

/** The rows of a table as PostgreSQL reads them. */
async function* readRows(
  db: Database,
  source: string,
  columns: readonly TargetColumn[],
): AsyncGenerator<Json[]> {
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

/** Comments on a table and its columns. */
function buildComments(target: string, {comment, columns}: TargetTable): string[] {
  const described = columns.filter((column) => column.comment !== '')
  return [
    `comment on table ${target} is ${escapeLiteral(comment)}`,
    ...described.map(
      ({name, comment}) =>
        `comment on column ${target}.${escapeIdentifier(name)} is ${escapeLiteral(comment)}`,
    ),
  ]
}
