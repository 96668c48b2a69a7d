import {pipeline} from 'node:stream/promises'
import type {Json} from '@duckdb/node-api'
import {escapeIdentifier, escapeLiteral} from 'pg'
import {from as copyFrom} from 'pg-copy-streams'
import {z} from 'zod'
import {codeOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {type Database, openDatabase, quoteName} from '../store/database.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {
  dropOldSchemas,
  explainPostgres,
  findPublished,
  listSchemas,
  listTables,
  MARK,
  openSession,
  requireNoDependents,
  requireOwnSchemas,
  type Session,
  STATE,
} from './postgres-schemas.ts'
import {
  buildTotals,
  isSameTotals,
  type PublishedRelease,
  type ReleaseTarget,
  type TargetColumn,
  type TargetTable,
} from './target.ts'

/** A PostgreSQL database, and who reads there. */
export interface PostgresRequest {
  /** `postgres://user:password@host:5432/database` */
  url: string
  /** The role that may read the published tables. */
  reader?: string | undefined
  /** How long one attempt to swap waits for each table's readers; half a second by default. */
  lockMs?: number
  /** How many attempts, a second apart; 30 by default. */
  attempts?: number
}

/**
 * PostgreSQL as a target. One transaction fills tables in new schemas and gives these the names of the old ones: readers see one
 * whole release or the other, and a crashed publication leaves nothing behind.
 *
 * @throws ConfigError `PUBLISH_FOREIGN`, `POSTGRES_DEPENDENT`, `PUBLISH_PRIVILEGE`; LockedError
 *   `PUBLISH_LOCKED`; AuthError `PUBLISH_AUTH`; DeferredError `POSTGRES_BUSY`, `PUBLISH_LOST`, `PUBLISH_UNREACHABLE`,
 *   `PUBLISH_UNSURE`; the methods of the target throw the same
 */
export async function openPostgres(
  request: PostgresRequest,
  world: Pick<World, 'realClock' | 'log' | 'signal'>,
): Promise<ReleaseTarget> {
  const session = await openSession(request.url)
  const {server} = session
  const stop = () => void session.client.end()
  world.signal.addEventListener('abort', stop, {once: true})
  const explained =
    <A extends unknown[], T>(step: (...args: A) => Promise<T>) =>
    (...args: A) =>
      step(...args).catch((error: unknown) => Promise.reject(explainPostgres(error, server)))
  let copy:
    | {release: PublishedRelease; db: Database; names: Map<string, string>; transaction: string}
    | undefined
  /** A table in the new schemas, quoted. */
  const newTable = ({schema, name}: {schema: string; name: string}) =>
    `${escapeIdentifier(copy?.names.get(schema) ?? '')}.${escapeIdentifier(name)}`
  const loaded = new Set<object>()
  return {
    server,
    prepare: explained(async () => {
      await acquireLock(session)
      await dropOldSchemas(session, world)
      await grantReading(session, (await listSchemas(session)).live, request.reader)
      return await findPublished(session)
    }),
    begin: explained(async (release) => {
      const schemas = [...new Set([STATE, ...release.tables.map(({schema}) => schema)])]
      await requireOwnSchemas(session, schemas)
      await requireNoDependents(session)
      await session.run('begin')
      const [transaction = ''] = await session.column(z.string(), 'select pg_current_xact_id()::text')
      const names = new Map(schemas.map((schema) => [schema, `loantape_new_${transaction}_${schema}`]))
      const mark = escapeLiteral(`${MARK} ${release.manifest.release_id}`)
      for (const name of names.values()) {
        const quoted = escapeIdentifier(name)
        await session.run(`create schema ${quoted}; comment on schema ${quoted} is ${mark}`)
      }
      const db = await openDatabase({attach: [{path: release.database, alias: 'release', readOnly: true}]})
      copy = {release, db, names, transaction}
    }),
    verify: explained(async (table) => {
      if (!loaded.has(table)) return false
      const totals = buildTotals(table.columns, escapeIdentifier)
      const found = await session.row(`select ${totals.join(', ')} from ${newTable(table)}`)
      return isSameTotals(found, table.totals)
    }),
    load: explained(async (table) => {
      if (copy) await copyTable(session, copy.db, table, newTable(table))
      loaded.add(table)
    }),
    activate: explained(async () => {
      if (!copy) return
      await copyState(session, copy.release.manifest, newTable({schema: STATE, name: 'release'}), world)
      await grantReading(session, [...copy.names.values()], request.reader)
      await lockOldTables(session, request, world)
      await swapSchemas(session, copy.names, copy.transaction)
      world.signal.removeEventListener('abort', stop)
      await session.run('commit').catch((cause: unknown) => {
        // When the connection is lost, nobody knows whether the server has committed.
        const problem = `The connection to PostgreSQL at ${server} was lost while the release was swapped in.`
        throw newError('PUBLISH_UNSURE', problem, {cause})
      })
    }),
    prune: explained(() => dropOldSchemas(session, world)),
    async [Symbol.asyncDispose]() {
      world.signal.removeEventListener('abort', stop)
      await copy?.db[Symbol.asyncDispose]()
      await session[Symbol.asyncDispose]()
    },
  }
}

/** Allows one publication at a time. The server releases the lock when the connection ends, however it ends. */
async function acquireLock(session: Session): Promise<void> {
  const sql = `select pg_try_advisory_lock(hashtext('loantape publish'))`
  const [isOurs] = await session.column(z.boolean(), sql)
  if (isOurs) return
  throw newError('PUBLISH_LOCKED', `Another publication to ${session.server} is under way.`)
}

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
  // Instants of a release are in UTC.
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
 * Creates a table with its comments, and copies its rows from the database attached as `release`.
 *
 * @param target the new table, quoted
 */
async function copyTable(session: Session, db: Database, table: TargetTable, target: string): Promise<void> {
  const {columns} = table
  const source = `${table.schema}.${table.name}`
  const fields = columns.map((column) => `${escapeIdentifier(column.name)} ${postgresTypeOf(column, source)}`)
  await session.run(`create table ${target} (${fields.join(', ')})`)
  await copyRows(session, target, readRows(db, source, columns)).catch((error: unknown) => {
    const code = codeOf(error)
    // A message of class 22 (data exceptions) would repeat the value.
    if (!code.startsWith('22')) throw error
    throw newError(
      'POSTGRES_VALUE',
      `Table '${source}' has a value that PostgreSQL does not accept (${code}).`,
    )
  })
  const comments = columns
    .filter(({comment}) => comment !== '')
    .map(
      ({name, comment}) =>
        `comment on column ${target}.${escapeIdentifier(name)} is ${escapeLiteral(comment)}; `,
    )
  await session.run(
    `comment on table ${target} is ${escapeLiteral(table.comment)}; ${comments.join('')}analyze ${target}`,
  )
}

/** The rows of a table, each value as text for PostgreSQL. */
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
 * Copies rows into a new table. Frozen rows are visible to every snapshot: otherwise a reader whose transaction began before the
 * swap would find an empty table.
 */
async function copyRows(
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

async function grantReading(
  session: Session,
  schemas: readonly string[],
  reader: string | undefined,
): Promise<void> {
  if (reader === undefined || schemas.length === 0) return
  const [where, role] = [schemas.map(escapeIdentifier).join(', '), escapeIdentifier(reader)]
  await session.run(`grant usage on schema ${where} to ${role}`)
  await session.run(`grant select on all tables in schema ${where} to ${role}`)
}

/** Records which release the new schemas hold. */
async function copyState(
  session: Session,
  {release_id, as_of, known_at, time_zone, currency, generator}: ReleaseManifest,
  table: string,
  {realClock}: Pick<World, 'realClock'>,
): Promise<void> {
  await session.run(`
    create table ${table} (
      release_id text not null,
      as_of date not null,
      known_at timestamptz not null,
      time_zone text not null,
      currency text not null,
      generator text not null,
      published_at timestamptz not null
    );
    comment on table ${table} is
      'The release that the tables show now. A transaction that reads it first sees one release to its end.'`)
  const publishedAt = new Date(realClock.now()).toISOString()
  await copyRows(session, table, [[release_id, as_of, known_at, time_zone, currency, generator, publishedAt]])
}

/** Gives the new schemas their names. Renaming a schema takes no lock that readers hold. */
async function swapSchemas(
  session: Session,
  names: ReadonlyMap<string, string>,
  transaction: string,
): Promise<void> {
  const rename = (from: string, to: string) =>
    session.run(`alter schema ${escapeIdentifier(from)} rename to ${escapeIdentifier(to)}`)
  const {live} = await listSchemas(session)
  for (const schema of live) await rename(schema, `loantape_old_${transaction}_${schema}`)
  for (const [schema, name] of names) await rename(name, schema)
}

const PAUSE_MS = 1000

/** Attempts that wait for the readers of every table; later ones wait only for those that hold `loantape.release`. */
const STRICT_ATTEMPTS = 5

/**
 * Locks the old tables for the swap, so that no statement sees one table before it and another after it. A reader that wants one
 * release throughout reads `loantape.release` first in its transaction, and the swap waits for it.
 */
async function lockOldTables(
  session: Session,
  {lockMs = 500, attempts = 30}: PostgresRequest,
  {realClock}: Pick<World, 'realClock'>,
): Promise<void> {
  const tables = await listTables(session, (await listSchemas(session)).live)
  const [state] = tables
  if (!state) return
  await session.run('savepoint swap')
  for (let attempt = 1; ; attempt++) {
    const locked = attempt > STRICT_ATTEMPTS ? [state] : tables
    try {
      // Shorter than the server's deadlock_timeout of a second, which could abort a reader.
      await session.run(
        `set local lock_timeout = ${lockMs}; lock table ${locked.join(', ')} in access exclusive mode`,
      )
      return
    } catch (error) {
      if (codeOf(error) !== '55P03') throw error
      await session.run('rollback to savepoint swap')
      if (attempt === attempts)
        throw newError(
          'POSTGRES_BUSY',
          `A reader at ${session.server} holds its release: ${STATE}.release stayed locked.`,
          {cause: error},
        )
      await realClock.sleep(PAUSE_MS)
    }
  }
}
