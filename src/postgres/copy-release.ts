import {escapeIdentifier, escapeLiteral} from 'pg'
import {z} from 'zod'
import {codeOf, messageOf, newError} from '../errors.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {World} from '../types.ts'
import {openDatabase} from '../warehouse/database.ts'
import {copyRows, copyTable, type PublishedTable} from './copy-table.ts'
import {explainPostgres} from './failure.ts'
import {
  dropOldSchemas,
  findPublished,
  listSchemas,
  listTables,
  MARK,
  requireNoDependents,
  requireOwnSchemas,
  STATE,
} from './schemas.ts'
import {openSession, type Session} from './session.ts'

/** What is published, and to whom. */
export interface PublishRequest {
  /** `postgres://user:password@host:5432/database` */
  url: string
  /** The role that may read what is published. */
  reader?: string | undefined
  /** How long one attempt to swap waits for each table's readers; half a second by default. */
  lockMs?: number
  /** How many attempts, a second apart; 30 by default. */
  attempts?: number
}

/** What a publication came to; `publish postgres --json` prints it. */
export interface PublishResult {
  outcome: 'published' | 'unchanged'
  release_id: string
  server: string
  tables: number
  rows: number
}

/**
 * Copies the published tables of a release into PostgreSQL: into new schemas, which take the names of the old ones in the
 * same transaction. Readers see the one release or the other, whole; a publication that dies leaves nothing behind.
 *
 * @throws ConfigError `POSTGRES_FOREIGN_SCHEMA`, `POSTGRES_DEPENDENT`, `POSTGRES_PRIVILEGE`; LockedError
 *   `POSTGRES_LOCKED`; AuthError `POSTGRES_AUTH`; DeferredError `POSTGRES_BUSY`, `POSTGRES_LOST`, `POSTGRES_UNREACHABLE`,
 *   `INTERRUPTED`
 */
export async function publishToPostgres(
  source: {database: string; manifest: ReleaseManifest},
  request: PublishRequest,
  world: Pick<World, 'realClock' | 'log' | 'signal'>,
): Promise<PublishResult> {
  await using session = await openSession(request.url)
  const stop = () => void session.client.end()
  world.signal.addEventListener('abort', stop, {once: true})
  try {
    await acquireLock(session)
    await dropOldSchemas(session, world)
    const {manifest} = source
    const tables = manifest.tables.map(({name, rows}) => {
      const [schema = '', table = ''] = name.split('.')
      return {schema, name: table, rows}
    })
    const result = {
      release_id: manifest.release_id,
      server: session.server,
      tables: tables.length,
      rows: tables.reduce((sum, {rows}) => sum + rows, 0),
    }
    await requireOwnSchemas(session, [STATE, ...tables.map(({schema}) => schema)])
    if ((await findPublished(session)) === manifest.release_id) {
      await grantReading(session, (await listSchemas(session)).live, request.reader)
      return {outcome: 'unchanged', ...result}
    }
    await requireNoDependents(session)
    await session.run('begin')
    const [transaction = ''] = await session.column(z.string(), 'select pg_current_xact_id()::text')
    const names = await copyTables(session, source, {tables, transaction}, world)
    await grantReading(session, [...names.values()], request.reader)
    await lockOldTables(session, request, world)
    await swapSchemas(session, names, transaction)
    world.signal.removeEventListener('abort', stop)
    await commit(session)
    // Published it is: what cannot be dropped now is dropped by the next publication.
    await dropOldSchemas(session, world).catch((error: unknown) => {
      world.log.warn({err: error}, 'old releases in PostgreSQL could not be dropped')
    })
    return {outcome: 'published', ...result}
  } catch (error) {
    if (world.signal.aborted && codeOf(error) !== 'POSTGRES_COMMIT_LOST')
      throw newError('INTERRUPTED', `The publication was ${messageOf(world.signal.reason)}.`, {
        kept: 'Readers still see the release published before; nothing of this one is visible.',
        next: 'Run `loantape publish postgres` again.',
        cause: world.signal.reason,
      })
    throw explainPostgres(error, session.server)
  } finally {
    world.signal.removeEventListener('abort', stop)
  }
}

/** A connection that is lost now leaves it open whether the server has committed. */
async function commit(session: Session): Promise<void> {
  try {
    await session.run('commit')
  } catch (cause) {
    throw newError(
      'POSTGRES_COMMIT_LOST',
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
  throw newError('POSTGRES_LOCKED', `Another publication to ${session.server} is under way.`)
}

/** Fills new schemas; nobody sees them before the transaction ends. */
async function copyTables(
  session: Session,
  source: {database: string; manifest: ReleaseManifest},
  {tables, transaction}: {tables: readonly PublishedTable[]; transaction: string},
  world: Pick<World, 'realClock'>,
): Promise<Map<string, string>> {
  await using db = await openDatabase({attach: [{path: source.database, alias: 'release', readOnly: true}]})
  const names = new Map<string, string>()
  for (const schema of new Set([STATE, ...tables.map((table) => table.schema)])) {
    const name = `loantape_new_${transaction}_${schema}`
    names.set(schema, name)
    const [quoted, mark] = [escapeIdentifier(name), escapeLiteral(`${MARK} ${source.manifest.release_id}`)]
    await session.run(`create schema ${quoted}; comment on schema ${quoted} is ${mark}`)
  }
  for (const table of tables) await copyTable(session, db, table, names.get(table.schema) ?? '')
  await copyState(session, source.manifest, names.get(STATE) ?? '', world)
  return names
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
  schema: string,
  {realClock}: Pick<World, 'realClock'>,
): Promise<void> {
  const table = `${escapeIdentifier(schema)}.release`
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
  {lockMs = 500, attempts = 30}: PublishRequest,
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
