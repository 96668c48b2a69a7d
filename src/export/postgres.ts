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

/** Where PostgreSQL is, and who reads there. */
export interface PostgresRequest {
  /** `postgres://user:password@host:5432/database` */
  url: string
  /** The role that may read what is published. */
  reader?: string | undefined
  /** How long one attempt to swap waits for each table's readers; half a second by default. */
  lockMs?: number
  /** How many attempts, a second apart; 30 by default. */
  attempts?: number
}

/**
 * PostgreSQL as a target: tables are filled in new schemas, which take the names of the old ones in the same transaction.
 * Readers see the one release or the other, whole; a publication that dies leaves nothing behind.
 *
 * @throws ConfigError `PUBLISH_FOREIGN`, `POSTGRES_DEPENDENT`, `PUBLISH_PRIVILEGE`; LockedError
 *   `PUBLISH_LOCKED`; AuthError `PUBLISH_AUTH`; DeferredError `POSTGRES_BUSY`, `PUBLISH_LOST`, `PUBLISH_UNREACHABLE`,
 *   `PUBLISH_UNSURE`; so do all steps of the target
 */
export async function openPostgres(
  request: PostgresRequest,
  world: Pick<World, 'realClock' | 'log' | 'signal'>,
): Promise<ReleaseTarget> {
  const session = await openSession(request.url)
  const stop = () => void session.client.end()
  world.signal.addEventListener('abort', stop, {once: true})
  const {server} = session
  const explained = <A extends unknown[], T>(step: (...args: A) => Promise<T>) => {
    return (...args: A) =>
      step(...args).catch((error: unknown) => Promise.reject(explainPostgres(error, server)))
  }
  let copy:
    | {release: PublishedRelease; db: Database; names: Map<string, string>; transaction: string}
    | undefined
  /** Of a table of {@link copy}, where it is filled. */
  const placeOf = ({schema, name}: {schema: string; name: string}) =>
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
      return isSameTotals(
        await session.row(`select ${totals.join(', ')} from ${placeOf(table)}`),
        table.totals,
      )
    }),
    load: explained(async (table) => {
      if (copy) await copyTable(session, copy.db, table, placeOf(table))
      loaded.add(table)
    }),
    activate: explained(async () => {
      if (!copy) return
      await copyState(session, copy.release.manifest, placeOf({schema: STATE, name: 'release'}), world)
      await grantReading(session, [...copy.names.values()], request.reader)
      await lockOldTables(session, request, world)
      await swapSchemas(session, copy.names, copy.transaction)
      world.signal.removeEventListener('abort', stop)
      await commit(session)
    }),
    prune: explained(() => dropOldSchemas(session, world)),
    async [Symbol.asyncDispose]() {
      world.signal.removeEventListener('abort', stop)
      await copy?.db[Symbol.asyncDispose]()
      await session[Symbol.asyncDispose]()
    },
  }
}

/** A connection that is lost now leaves it open whether the server has committed. */
async function commit(session: Session): Promise<void> {
  try {
    await session.run('commit')
  } catch (cause) {
    throw newError(
      'PUBLISH_UNSURE',
      `The connection to PostgreSQL at ${session.server} was lost while the release was swapped in.`,
      {cause},
    )
  }
}

/** One publication at a time; the server gives the lock back when the connection ends, however it ends. */
async function acquireLock(session: Session): Promise<void> {
  const sql = `select pg_try_advisory_lock(hashtext('loantape publish'))`
  const [isOurs] = await session.column(z.boolean(), sql)
  if (isOurs) return
  throw newError('PUBLISH_LOCKED', `Another publication to ${session.server} is under way.`)
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

/** Writes which release the new schemas hold. */
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

/** Gives the new schemas their names. Renaming waits for nobody and nobody waits for it. */
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

/** Attempts in which readers of any table are waited for; later ones wait for holders of `loantape.release` only. */
const STRICT_ATTEMPTS = 5

/**
 * Locks the old tables for the instant of the swap where their readers allow it, so that no statement finds one of them
 * before the swap and another after it. Readers that asked for one release throughout, by reading `loantape.release` in
 * their transaction, are waited for.
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
      // Shorter than the server's deadlock_timeout of a second: no reader is ever ended for our sake.
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
