import {Client, escapeIdentifier} from 'pg'
import {z} from 'zod'
import {codeOf, LoantapeError, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {VisibleRelease} from './target.ts'

/** The server as messages name it: `db.example.com:5432/reporting`, without user and password. */
function describeServer(url: string): string {
  if (!URL.canParse(url)) return 'the server in LOANTAPE_POSTGRES_URL'
  const {hostname, port, pathname} = new URL(url)
  return `${hostname}:${port || '5432'}${pathname}`
}

/** An error of PostgreSQL as one of ours. Codes: its appendix A. */
export function explainPostgres(error: unknown, server: string): LoantapeError {
  if (error instanceof LoantapeError) return error
  const code = codeOf(error)
  const words = messageOf(error).split('\n')[0] ?? ''
  const more = {cause: error}
  if (/^(28P01|28000)$/.test(code) || /password must be a string/.test(words))
    return newError('PUBLISH_AUTH', `PostgreSQL at ${server} refused user or password (${code}).`, more)
  if (/does not support SSL/.test(words) || /CERT|UNABLE_TO_VERIFY|ERR_TLS|ERR_SSL/.test(code))
    return newError('POSTGRES_TLS', `PostgreSQL at ${server} cannot be trusted: ${words}.`, more)
  const refused = `PostgreSQL at ${server} refused: ${words} (${code}).`
  if (code === '42501')
    return newError('PUBLISH_PRIVILEGE', refused, {
      ...more,
      next: 'Grant the user CREATE on the database, or let it own the schemas core, mart and accounting.',
    })
  if (code === '3D000' || code === '42704') return newError('POSTGRES_UNKNOWN_NAME', refused, more)
  if (/^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|57P03)$/.test(code))
    return newError('PUBLISH_UNREACHABLE', `PostgreSQL at ${server} cannot be reached (${code}).`, more)
  const isLost = /^(57P0.|08...|ECONNRESET|EPIPE)$/.test(code)
  if (isLost || /terminated|timeout expired|not queryable/.test(words))
    return newError('PUBLISH_LOST', `The connection to PostgreSQL at ${server} was lost.`, more)
  return newError('PUBLISH_FAILED', refused, more)
}

/** A connection to PostgreSQL; disposing it ends it. */
export type Session = Awaited<ReturnType<typeof openSession>>

const CONNECT_MS = 15_000

/**
 * Connects to a server.
 *
 * @throws AuthError `PUBLISH_AUTH`; DeferredError `PUBLISH_UNREACHABLE`
 */
export async function openSession(url: string) {
  const server = describeServer(url)
  const client = new Client({
    connectionString: url,
    application_name: 'loantape',
    connectionTimeoutMillis: CONNECT_MS,
    keepAlive: true,
  })
  // A broken connection fails the running statement; without a listener it would also end the process.
  client.on('error', () => undefined)
  try {
    await client.connect()
  } catch (error) {
    await client.end()
    throw explainPostgres(error, server)
  }
  return {
    client,
    /** `host:port/database` */
    server,
    /** Runs one or more statements. */
    async run(sql: string): Promise<void> {
      await client.query(sql)
    },
    /** The values of a query that has one column. */
    async column<T>(value: z.ZodType<T>, sql: string, values: unknown[] = []): Promise<T[]> {
      const {rows} = await client.query<unknown[]>({text: sql, values, rowMode: 'array'})
      return rows.map(([found]) => value.parse(found))
    },
    /** The first row of a query whose columns are all texts; empty if there is none. */
    async row(sql: string): Promise<string[]> {
      const {rows} = await client.query<unknown[]>({text: sql, rowMode: 'array'})
      return z.array(z.string()).parse(rows[0] ?? [])
    },
    /** Ends the connection; a running statement fails. */
    [Symbol.asyncDispose]: () => client.end(),
  }
}

/** Marks our schemas; a schema without it is never touched. */
export const MARK = 'loantape release'

/** The schema whose table `release` says what readers see. */
export const STATE = 'loantape'

/** Our schemas: those that readers see, and those that are being built or were replaced. */
export async function listSchemas(session: Session): Promise<{live: string[]; old: string[]}> {
  const names = await session.column(
    z.string(),
    `select nspname from pg_namespace
     where obj_description(oid, 'pg_namespace') like '${MARK} %' order by nspname`,
  )
  const isOld = (name: string) => /^loantape_(old|new)_\d+_/.test(name)
  return {live: names.filter((name) => !isOld(name)), old: names.filter(isOld)}
}

/**
 * Drops the schemas of earlier releases without `cascade`, so that no object of others is dropped with them. A schema in use stays
 * until the next publication.
 */
export async function dropOldSchemas(session: Session, world: Pick<World, 'log'>): Promise<void> {
  for (const schema of (await listSchemas(session)).old) {
    const tables = await listTables(session, [schema])
    const drops = tables.length === 0 ? '' : `drop table ${tables.join(', ')};`
    try {
      await session.run(
        `begin; set local lock_timeout = '500ms'; ${drops} drop schema ${escapeIdentifier(schema)}; commit`,
      )
    } catch (error) {
      await session.run('rollback')
      // lock_not_available, dependent_objects_still_exist
      if (!['55P03', '2BP01'].includes(codeOf(error))) throw error
      world.log.info({reason: schema}, 'an old release in PostgreSQL is still in use: it is dropped later')
    }
  }
}

/** The tables of schemas, quoted; the one of {@link STATE} comes first. */
export async function listTables(session: Session, schemas: readonly string[]): Promise<string[]> {
  return await session.column(
    z.string(),
    `select format('%I.%I', schemaname, tablename) as name from pg_tables
     where schemaname = any($1) order by schemaname <> '${STATE}', name`,
    [schemas],
  )
}

/** The release readers see now, if there is one. */
export async function findPublished(session: Session): Promise<VisibleRelease | undefined> {
  const [isThere] = await session.column(z.boolean(), `select to_regclass('${STATE}.release') is not null`)
  if (!isThere) return undefined
  const [release_id, as_of = '', known_at = ''] = await session.row(
    `select release_id, as_of::text, to_char(known_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') from ${STATE}.release`,
  )
  return release_id === undefined ? undefined : {release_id, as_of, known_at}
}

/** @throws ConfigError `PUBLISH_FOREIGN` */
export async function requireOwnSchemas(session: Session, schemas: readonly string[]): Promise<void> {
  const foreign = await session.column(
    z.string(),
    `select nspname from pg_namespace
     where nspname = any($1) and coalesce(obj_description(oid, 'pg_namespace'), '') not like '${MARK} %'`,
    [schemas],
  )
  if (foreign.length === 0) return
  throw newError(
    'PUBLISH_FOREIGN',
    `Schema '${foreign.join("', '")}' at ${session.server} was not made by loantape: expected a database without it.`,
  )
}

/**
 * Refuses views and functions that depend on our tables, which would keep showing the old release, or that lie in our schemas, which
 * would be dropped with it.
 *
 * @throws ConfigError `POSTGRES_DEPENDENT`
 */
export async function requireNoDependents(session: Session): Promise<void> {
  const found = await session.column(
    z.string(),
    `with
     ours as (
       select oid from pg_namespace where obj_description(oid, 'pg_namespace') like '${MARK} %'
     ),
     objects as (
       select 'pg_class'::regclass as class, rule.ev_class as object
       from pg_depend as dependency
       inner join pg_class as base on base.oid = dependency.refobjid and dependency.refclassid = 'pg_class'::regclass
       inner join pg_rewrite as rule on rule.oid = dependency.objid and dependency.classid = 'pg_rewrite'::regclass
       where base.relnamespace in (select oid from ours)
       union
       select dependency.classid, dependency.objid
       from pg_depend as dependency
       inner join pg_class as base on base.oid = dependency.refobjid and dependency.refclassid = 'pg_class'::regclass
       where dependency.classid = 'pg_proc'::regclass and base.relnamespace in (select oid from ours)
       union
       select 'pg_proc'::regclass, oid from pg_proc where pronamespace in (select oid from ours)
     )
     select pg_describe_object(class, object, 0) as name from objects order by name`,
  )
  if (found.length === 0) return
  throw newError(
    'POSTGRES_DEPENDENT',
    `Published tables at ${session.server} are read there by: ${found.join(', ')}. These would keep showing the old release, or be dropped with it.`,
  )
}
