import {createReadStream} from 'node:fs'
import {join} from 'node:path'
import {Readable} from 'node:stream'
import {pipeline} from 'node:stream/promises'
import {Client, DatabaseError, escapeIdentifier, escapeLiteral} from 'pg'
import {from as copyFrom} from 'pg-copy-streams'
import {z} from 'zod'
import {LoantapeError, newError} from '../core/errors.ts'
import {makeTemporaryFolder} from '../core/process.ts'
import type {World} from '../core/types.ts'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {openRelease} from '../store/release.ts'
import {
  codeAt,
  explainTarget,
  isWhole,
  orUnsure,
  type Publication,
  type ReleaseTarget,
  requireWhole,
  type TargetErrors,
  type TargetTable,
  type VisibleRelease,
  visibleRow,
} from './target.ts'

export interface PostgresRequest {
  /** `postgres://user:password@host:5432/database` */
  url: string
  /** The role that may read the published tables. */
  reader?: string | undefined
  /** How long each of the attempts to swap waits for each table's readers; half a second by default. */
  lockMs?: number
}

/**
 * One transaction fills new schemas and gives them the names of the old ones, so that readers see either release whole.
 * @throws ConfigError `PUBLISH_FOREIGN`, `POSTGRES_DEPENDENT`, `POSTGRES_NAMES`, `PUBLISH_PRIVILEGE`; LockedError
 *   `PUBLISH_LOCKED`; AuthError `PUBLISH_AUTH`; DeferredError `POSTGRES_BUSY`, `PUBLISH_UNREACHABLE`, `PUBLISH_UNSURE`; the
 *   methods of the target throw the same
 */
export async function openPostgres(
  request: PostgresRequest,
  world: Pick<World, 'realClock' | 'log' | 'signal'>,
): Promise<ReleaseTarget> {
  const session = await openSession(request.url)
  const {server} = session
  const stop = () => void session[Symbol.asyncDispose]()
  world.signal.addEventListener('abort', stop, {once: true})
  return {
    server,
    async prepare() {
      // Lets in one publication at a time. The server releases the lock whenever the connection ends.
      const lock = `select pg_try_advisory_lock(hashtext('loantape publish'))`
      const [isOurs] = await session.column(z.boolean(), lock)
      if (!isOurs) throw newError('PUBLISH_LOCKED', `Another publication to ${server} is under way.`)
      await dropOldSchemas(session, world)
      await grantReading(session, await listSchemas(session, 'live'), request.reader)
      return await findPublished(session)
    },
    async publish(publication) {
      const {release, tables} = publication
      const schemas = [...new Set([STATE, ...tables.map(({schema}) => schema)])]
      const foreign = (await listSchemas(session, 'foreign')).filter((name) => schemas.includes(name))
      if (foreign.length > 0)
        throw newError(
          'PUBLISH_FOREIGN',
          `Schema '${foreign.join("', '")}' at ${server} was not made by loantape: expected a database without it.`,
        )
      requireDistinctNames(tables)
      await requireNoDependents(session)
      await session.run('begin')
      const [transaction = ''] = await session.column(z.string(), 'select pg_current_xact_id()::text')
      // Numbered, since the server would cut a long name behind this prefix.
      const nameOf = (schema: string) => `loantape_new_${transaction}_${schemas.indexOf(schema)}`
      const mark = escapeLiteral(`${MARK} ${release.manifest.release_id}`)
      for (const schema of schemas) {
        const quoted = escapeIdentifier(nameOf(schema))
        await session.run(`create schema ${quoted}; comment on schema ${quoted} is ${mark}`)
      }
      await using db = await openRelease(release)
      for (const table of tables) {
        const target = `${escapeIdentifier(nameOf(table.schema))}.${escapeIdentifier(table.name)}`
        await copyTable(session, db, table, target)
        requireWhole(await isWhole(session, table, target, escapeIdentifier), table, server)
      }
      await copyState(session, publication, `${escapeIdentifier(nameOf(STATE))}.release`, world)
      await grantReading(session, schemas.map(nameOf), request.reader)
      await lockOldTables(session, request, world)
      const rename = (from: string, to: string) =>
        session.run(`alter schema ${escapeIdentifier(from)} rename to ${escapeIdentifier(to)}`)
      // Renaming a schema needs no lock that readers hold.
      for (const [index, schema] of (await listSchemas(session, 'live')).entries())
        await rename(schema, `loantape_old_${transaction}_${index}`)
      for (const schema of schemas) await rename(nameOf(schema), schema)
      // Cut short, nobody would know whether it took place.
      world.signal.removeEventListener('abort', stop)
      await orUnsure(session.run('commit'))
      return tables
    },
    prune: () => dropOldSchemas(session, world),
    async [Symbol.asyncDispose]() {
      world.signal.removeEventListener('abort', stop)
      await session[Symbol.asyncDispose]()
    },
  }
}

/** Where the name differs in PostgreSQL. */
const TYPES: Readonly<Record<string, string>> = {
  VARCHAR: 'text',
  DOUBLE: 'double precision',
  // Instants of a release are in UTC, the session's time zone.
  TIMESTAMP: 'timestamptz',
}

/** `target` is quoted. */
async function copyTable(session: Session, db: Database, table: TargetTable, target: string): Promise<void> {
  const {columns} = table
  const source = `${table.schema}.${table.name}`
  const fields = columns.map(({name, type}) => `${escapeIdentifier(name)} ${TYPES[type] ?? type}`)
  await session.run(`create table ${target} (${fields.join(', ')})`, `, table '${source}',`)
  using folder = makeTemporaryFolder('loantape-publish-')
  const file = join(folder.path, `${source}.csv`)
  // A server before 18 takes an unquoted `\.` on a line of its own for the end.
  await db.run(`copy release.${source} to ${quoteLiteral(file)} (format csv, header false, force_quote *)`)
  await copyRows(session, target, createReadStream(file)).catch(async (error: unknown) => {
    const code = codeAt(error)
    // The server's message for class 22 (data exceptions) would repeat the value.
    if (!code.startsWith('22')) throw error
    const column = (await findZeroed(db, source, columns)) ?? columnAt(error)
    const place = column === undefined ? '' : `, column '${column}',`
    throw newError(
      'POSTGRES_VALUE',
      `Table '${source}'${place} has a value that PostgreSQL does not accept (${code}).`,
    )
  })
  const comments = columns.map(
    ({name, meaning}) => `comment on column ${target}.${escapeIdentifier(name)} is ${escapeLiteral(meaning)}`,
  )
  const about = `comment on table ${target} is ${escapeLiteral(table.description || source)}`
  await session.run([about, ...comments, `analyze ${target}`].join('; '))
}

/** The server refuses the character 0 in a text without naming the column. */
async function findZeroed(db: Database, source: string, columns: TargetTable['columns']) {
  for (const {name} of columns.filter(({type}) => type === 'VARCHAR')) {
    const zeroed = `select 1 from release.${source} where contains(${quoteName(name)}, chr(0)) limit 1`
    if (await db.first(z.unknown(), zeroed)) return name
  }
  return undefined
}

/** Where the server met a wrong value. */
function columnAt(error: unknown): string | undefined {
  const cause = error instanceof LoantapeError ? error.cause : error
  return cause instanceof DatabaseError ? /, column (.+?): /.exec(cause.where ?? '')?.[1] : undefined
}

/** Frozen: otherwise a reader whose transaction began before the swap would find the table empty. */
const copyRows = (session: Session, target: string, rows: Readable): Promise<void> =>
  session.send(`copy ${target} from stdin with (format csv, freeze)`, rows)

async function grantReading(
  session: Session,
  schemas: readonly string[],
  reader: string | undefined,
): Promise<void> {
  const tables = await listTables(session, schemas)
  if (reader === undefined || tables.length === 0) return
  const [names, to] = [schemas.map(escapeIdentifier).join(', '), escapeIdentifier(reader)]
  await session.run(`grant usage on schema ${names} to ${to}; grant select on ${tables.join(', ')} to ${to}`)
}

async function copyState(
  session: Session,
  {release: {manifest}, folderId}: Publication,
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
      folder_id text not null,
      published_at timestamptz not null
    );
    comment on table ${table} is
      'The release that the tables show now. A transaction that reads it first sees one release to its end.'`)
  const publishedAt = new Date(realClock.now()).toISOString()
  const {release_id, as_of, known_at, time_zone, currency, generator} = manifest
  const row = [release_id, as_of, known_at, time_zone, currency, generator, folderId, publishedAt]
  await copyRows(session, table, Readable.from([`"${row.join('","')}"\n`]))
}

/** Attempts, a second apart, that wait for the readers of every table; later ones only for those that hold `loantape.release`. */
const STRICT_ATTEMPTS = 5
const ATTEMPTS = 30

/**
 * Locks the old tables for the swap, so that no statement reads one table before the swap and another after it. A reader that
 * needs one release for a whole transaction reads `loantape.release` first in it; the swap then waits for that reader.
 */
async function lockOldTables(
  session: Session,
  {lockMs = 500}: PostgresRequest,
  {realClock}: Pick<World, 'realClock'>,
): Promise<void> {
  const tables = await listTables(session, await listSchemas(session, 'live'))
  const [state] = tables
  if (!state) return
  await session.run('savepoint swap')
  for (let attempt = 1; ; attempt++) {
    const locked = attempt > STRICT_ATTEMPTS ? [state] : tables
    try {
      // Must be shorter than the server's deadlock_timeout (one second), which could abort a reader.
      await session.run(
        `set local lock_timeout = ${lockMs}; lock table ${locked.join(', ')} in access exclusive mode`,
      )
      return
    } catch (error) {
      if (codeAt(error) !== '55P03') throw error
      await session.run('rollback to savepoint swap')
      if (attempt === ATTEMPTS)
        throw newError(
          'POSTGRES_BUSY',
          `A reader at ${session.server} holds its release: ${STATE}.release stayed locked.`,
          {cause: error},
        )
      await realClock.sleep(1000)
    }
  }
}

/** Codes from appendix A of PostgreSQL's manual. */
const ERRORS: TargetErrors = [
  ['PUBLISH_AUTH', /^(28P01|28000) |password must be a string/],
  [
    'POSTGRES_TLS',
    /does not support SSL|^\S*(CERT|UNABLE_TO_VERIFY|ERR_TLS|ERR_SSL|ERR_OSSL)|^(ENOENT|EACCES|EISDIR) /,
  ],
  ['PUBLISH_PRIVILEGE', /^42501 /],
  ['POSTGRES_UNKNOWN_NAME', /^(3D000|42704) /],
  ['PUBLISH_UNREACHABLE', /^(57P0.|53300|08...) |terminated|timeout expired|not queryable/],
]

/** Disposing it makes a statement that is still running fail. */
type Session = Awaited<ReturnType<typeof openSession>>

async function openSession(url: string) {
  const {hostname, port, pathname} = new URL(url)
  const server = `${hostname}:${port || '5432'}${pathname}`
  const explained = <T>(answer: Promise<T>, place = ''): Promise<T> =>
    answer.catch((error: unknown) => {
      throw explainTarget(error, `PostgreSQL at ${server}${place}`, ERRORS)
    })
  const create = async () =>
    // Reads the files of certificates that the URL names.
    new Client({
      connectionString: url,
      application_name: 'loantape',
      connectionTimeoutMillis: 15_000,
      keepAlive: true,
    })
  const client = await explained(create())
  // A broken connection makes the running statement fail; without a listener it would also end the process.
  client.on('error', () => undefined)
  const rows = async <T>(row: z.ZodType<T>, sql: string, values: unknown[] = []): Promise<T[]> => {
    const found = await explained(client.query<Record<string, unknown>>(sql, values))
    return found.rows.map((values) => row.parse(values))
  }
  // A database or role may have other defaults: of dates and instants, which are compared as text, and limits that a long copy would
  // exceed.
  const settings = `set datestyle = 'ISO, YMD';
    set timezone = 'UTC';
    select set_config(name, '0', false) from pg_settings where name ~ '(session|statement|transaction)_timeout$'`
  await explained(client.connect().then(() => client.query(settings))).catch(async (error: unknown) => {
    await client.end()
    throw error
  })
  return {
    /** `host:port/database` */
    server,
    /** `place` is for errors. */
    async run(sql: string, place?: string): Promise<void> {
      await explained(client.query(sql), place)
    },
    rows,
    column: async <T>(value: z.ZodType<T>, sql: string, values: unknown[] = []): Promise<T[]> =>
      (await rows(z.record(z.string(), value), sql, values)).flatMap((row) => Object.values(row)),
    send: (sql: string, data: Readable): Promise<void> =>
      explained(pipeline(data, client.query(copyFrom(sql)))),
    [Symbol.asyncDispose]: () => client.end(),
  }
}

/** Marks our schemas; a schema without this mark is never touched. */
const MARK = 'loantape release'

/** The schema whose table `release` says which release readers see. */
const STATE = 'loantape'

/** Readers see `live` schemas; `old` ones were replaced or never finished; `foreign` ones are not ours. */
const listSchemas = (session: Session, kind: 'live' | 'old' | 'foreign'): Promise<string[]> =>
  session.column(
    z.string(),
    `select nspname from pg_namespace
     where $1 = case
       when coalesce(obj_description(oid, 'pg_namespace'), '') not like '${MARK} %' then 'foreign'
       when nspname ~ '^loantape_(old|new)_[0-9]+_' then 'old'
       else 'live'
     end
     order by nspname`,
    [kind],
  )

/** Drops earlier releases, without `cascade`, which would drop objects of others; one in use stays until the next publication. */
async function dropOldSchemas(session: Session, world: Pick<World, 'log'>): Promise<void> {
  for (const schema of await listSchemas(session, 'old')) {
    const tables = await listTables(session, [schema])
    const drops = tables.map((table) => `drop table ${table};`).join(' ')
    try {
      await session.run(
        `begin; set local lock_timeout = '500ms'; ${drops} drop schema ${escapeIdentifier(schema)}; commit`,
      )
    } catch (error) {
      await session.run('rollback')
      // The codes of lock_not_available and dependent_objects_still_exist.
      if (!['55P03', '2BP01'].includes(codeAt(error))) throw error
      world.log.info({reason: schema}, 'an old release in PostgreSQL is still in use: it is dropped later')
    }
  }
}

/** Each table of ours has a comment, and the owner of its schema or of {@link STATE}; those that others made lack one or the other. */
const IS_OURS = `relkind = 'r' and obj_description(pg_class.oid, 'pg_class') is not null
  and relowner in (nspowner, (select state.relowner from pg_class as state where state.oid = to_regclass('${STATE}.release')))`

/** Quoted; those of {@link STATE} come first. */
async function listTables(session: Session, schemas: readonly string[]): Promise<string[]> {
  return await session.column(
    z.string(),
    `select format('%I.%I', nspname, relname) as name
     from pg_class join pg_namespace on pg_namespace.oid = relnamespace
     where nspname = any($1) and ${IS_OURS}
     order by nspname <> '${STATE}', name`,
    [schemas],
  )
}

async function findPublished(session: Session): Promise<VisibleRelease | undefined> {
  const tables = await listTables(session, await listSchemas(session, 'live'))
  if (!tables.includes(`${STATE}.release`)) return undefined
  const [release] = await session.rows(
    visibleRow,
    `select release_id, as_of::text, to_char(known_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as known_at, folder_id from ${STATE}.release`,
  )
  return release
}

/** In bytes; names of tables and columns are ASCII. */
const LONGEST_NAME = 63

/** The server would cut such names to the same one. @throws ConfigError `POSTGRES_NAMES` */
function requireDistinctNames(tables: readonly TargetTable[]): void {
  const given = new Map<string, string>()
  for (const {schema, name, columns} of tables)
    for (const parts of [[schema], [schema, name], ...columns.map((column) => [schema, name, column.name])]) {
      const whole = parts.join('.')
      const cut = parts.map((part) => part.slice(0, LONGEST_NAME)).join('.')
      const other = given.get(cut) ?? whole
      if (other !== whole)
        throw newError(
          'POSTGRES_NAMES',
          `'${other}' and '${whole}' would have the same name: PostgreSQL keeps ${LONGEST_NAME} bytes of each part.`,
        )
      given.set(cut, whole)
    }
}

/** Refuses what depends on our tables, such as views and functions, and whatever others made in our schemas. @throws ConfigError `POSTGRES_DEPENDENT` */
async function requireNoDependents(session: Session): Promise<void> {
  const found = await session.column(
    z.string(),
    `with schemas as (select * from pg_namespace where obj_description(oid, 'pg_namespace') like '${MARK} %'),
     tables as (
       select pg_class.oid, (${IS_OURS}) is true as is_ours
       from pg_class join schemas on schemas.oid = relnamespace
     )
     select distinct replace(pg_describe_object(classid, objid, 0), 'rule _RETURN on ', '') as name
     from pg_depend
     where
       deptype = 'n' and (
         refclassid = 'pg_namespace'::regclass and refobjid in (select oid from schemas)
           and not (classid = 'pg_class'::regclass and objid in (select oid from tables where is_ours))
         or refclassid = 'pg_class'::regclass and refobjid in (select oid from tables)
       )
     order by name`,
  )
  if (found.length === 0) return
  throw newError(
    'POSTGRES_DEPENDENT',
    `Objects of others are in published schemas at ${session.server}, or read their tables: ${found.join(', ')}. These would keep showing the old release, or be dropped with it.`,
  )
}
