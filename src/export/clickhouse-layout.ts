import {createReadStream} from 'node:fs'
import {createClient} from '@clickhouse/client'
import {z} from 'zod'
import {codeOf, LoantapeError, messageOf, newError} from '../core/errors.ts'
import type {TargetColumn, TargetTable} from './target.ts'

const quoted = (text: string, mark: string): string =>
  `${mark}${text.replaceAll('\\', '\\\\').replaceAll(mark, `\\${mark}`)}${mark}`

/** A name as ClickHouse quotes it. */
export const quote = (name: string): string => quoted(name, '`')

/** A text as ClickHouse quotes it. */
export const literal = (text: string): string => quoted(text, "'")

/** A connection to ClickHouse; disposing it closes it. */
export type Session = ReturnType<typeof openSession>

/** Tables of some millions of rows are checked and sent whole. */
const REQUEST_MS = 3_600_000

/** Opens a connection over HTTP or HTTPS; nothing is asked yet. */
export function openSession(
  {url, user, password}: {url: string; user?: string | undefined; password?: string | undefined},
  signal: AbortSignal,
) {
  const {host, pathname} = new URL(url)
  const server = `${host}${pathname.replace(/\/$/, '')}`
  const client = createClient({
    url,
    ...(user !== undefined && {username: user}),
    ...(password !== undefined && {password}),
    application: 'loantape',
    request_timeout: REQUEST_MS,
    keep_alive: {enabled: false},
    log: {level: 127},
    clickhouse_settings: {
      // As other engines have it: text of nothing is nothing.
      cast_keep_nullable: 1,
      // A statement has happened, on every replica, when it ends.
      alter_sync: '2',
      mutations_sync: '2',
      lightweight_deletes_sync: '2',
      distributed_foreground_insert: 1,
      distributed_ddl_task_timeout: '300',
      wait_end_of_query: 1,
      // What was dropped and is sent again is no duplicate.
      insert_deduplicate: 0,
      async_insert: 0,
    },
  })
  async function explained<T>(ask: () => Promise<T>): Promise<T> {
    try {
      return await ask()
    } catch (error) {
      throw explainClickhouse(error, server)
    }
  }
  return {
    /** `host:port` */
    server,
    /** Runs a statement that has no rows. */
    run: (query: string): Promise<void> =>
      explained(async () => {
        await client.command({query, abort_signal: signal})
      }),
    /** The rows of a query; whole numbers of 64 bits and decimals arrive as texts. */
    async rows<T>(row: z.ZodType<T>, query: string): Promise<T[]> {
      const found = await explained(async () => {
        const result = await client.query({query, format: 'JSONEachRow', abort_signal: signal})
        return await result.json()
      })
      return z.array(row).parse(found)
    },
    /** Runs an INSERT whose data is this file. */
    send: (query: string, path: string): Promise<void> =>
      explained(async () => {
        const values = createReadStream(path)
        const {stream} = await client.exec({query, values, abort_signal: signal})
        stream.resume()
        await new Promise((resolve, reject) => stream.once('end', resolve).once('error', reject))
      }),
    [Symbol.asyncDispose]: () => client.close(),
  }
}

/** Anything thrown while publishing, in our words. Codes: `system.errors` of ClickHouse. */
function explainClickhouse(error: unknown, server: string): LoantapeError {
  if (error instanceof LoantapeError) return error
  const code = codeOf(error)
  const words = messageOf(error).split('\n')[0] ?? ''
  const more = {cause: error}
  if (/^(516|192|193|194)$/.test(code))
    return newError('PUBLISH_AUTH', `ClickHouse at ${server} refused user or password (${code}).`, more)
  if (/^(497|164)$/.test(code))
    return newError('PUBLISH_PRIVILEGE', `ClickHouse at ${server} refused: ${words} (${code}).`, more)
  if (/^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT)$/.test(code))
    return newError('PUBLISH_UNREACHABLE', `ClickHouse at ${server} cannot be reached (${code}).`, more)
  if (/^(ECONNRESET|EPIPE|UND_ERR_.*)$/.test(code) || /timeout error|socket hang up|aborted/i.test(words))
    return newError('PUBLISH_LOST', `The connection to ClickHouse at ${server} was lost.`, more)
  return newError('PUBLISH_FAILED', `ClickHouse at ${server} refused: ${words} (${code}).`, more)
}

/** Whether ClickHouse refused a statement because a table of that name is there. */
export function isThereAlready(error: unknown): boolean {
  return error instanceof LoantapeError && codeOf(error.cause) === '57'
}

/** Marks databases that are ours: one without it is never touched. */
const MARK = 'loantape'

/** The database that says what readers see. */
export const STATE = 'loantape'

/**
 * What readers see: the contents of all tables, and the latest day. Every view asks for it with the same text, and the value of such a
 * subquery is worked out once for a query: it sees one release of each source throughout, on every node.
 */
export const VISIBLE = `(select (groupArrayArray(contents), max(as_of)) from ${STATE}.release)`

/**
 * Begins the name of rows of a table that belong together: whose they are, of which table, and the digest of the Parquet file they are
 * of. The number of the publication that sends them ends it.
 */
export const contentPrefix = (source: string, {schema, name, sha256}: TargetTable): string =>
  `${source}/${schema}.${name}/${sha256}/`

const PLAIN_TYPES: Record<string, string> = {
  VARCHAR: 'String',
  BOOLEAN: 'Bool',
  BIGINT: 'Int64',
  DOUBLE: 'Float64',
  DATE: 'Date32',
  TIMESTAMP: "DateTime64(6, 'UTC')",
}

/** The type that ClickHouse gives a column. @throws ConfigError `CLICKHOUSE_TYPE` */
export function typeOf({name, type}: Pick<TargetColumn, 'name' | 'type'>, table: string): string {
  const [, precision, scale] = /^DECIMAL\((\d+),(\d+)\)$/.exec(type) ?? []
  const plain = PLAIN_TYPES[type] ?? (precision === undefined ? undefined : `Decimal(${precision}, ${scale})`)
  if (plain !== undefined) return `Nullable(${plain})`
  throw newError(
    'CLICKHOUSE_TYPE',
    `Column '${name}' of table '${table}' has the type ${type}: expected a plain one.`,
    {
      next: 'Cast the column in its model to VARCHAR, BIGINT, DECIMAL, DOUBLE, DATE, TIMESTAMP or BOOLEAN.',
    },
  )
}

/** Where the tables are: on one server, or on the nodes of a cluster. */
export interface Place {
  cluster: string | undefined
  /** After a statement that every node is to run. */
  on: string
  /** The engine of tables whose rows each node has of its own, or all nodes alike. */
  engine(spread: 'shards' | 'everywhere'): string
  /** What is read, and written to, of the table whose rows are in `<name>_local`. */
  whole(name: string): string
}

export function placeOf(cluster: string | undefined): Place {
  if (cluster === undefined)
    return {cluster, on: '', engine: () => 'MergeTree', whole: (name) => `${name}_local`}
  return {
    cluster,
    on: ` on cluster ${quote(cluster)}`,
    engine: (spread) =>
      spread === 'shards'
        ? "ReplicatedMergeTree('/clickhouse/tables/{shard}/{database}/{table}', '{replica}')"
        : "ReplicatedMergeTree('/clickhouse/tables/all/{database}/{table}', '{shard}-{replica}')",
    whole: (name) => `${name}_all`,
  }
}

const databaseRow = z.object({name: z.string(), comment: z.string()})

/**
 * Creates what says which release readers see, and the databases of these schemas.
 *
 * @throws ConfigError `PUBLISH_FOREIGN`
 */
export async function createDatabases(
  session: Session,
  place: Place,
  schemas: readonly string[],
): Promise<void> {
  const there = await session.rows(databaseRow, 'select name, comment from system.databases')
  for (const name of schemas) {
    const found = there.find((database) => database.name === name)
    if (found && !found.comment.startsWith(MARK))
      throw newError(
        'PUBLISH_FOREIGN',
        `Database '${name}' at ${session.server} was not made by loantape: expected a server without it.`,
      )
    if (!found)
      await session.run(
        `create database if not exists ${quote(name)}${place.on} comment '${MARK}: published releases'`,
      )
  }
}

/** Creates the tables and views that say which release readers see. */
export async function createState(session: Session, place: Place): Promise<void> {
  await createDatabases(session, place, [STATE])
  await session.run(`
    create table if not exists ${STATE}.published${place.on} (
      source String comment 'whose release it is',
      number UInt64 comment 'the latest of a source is the one readers see',
      release_id String,
      as_of Date32,
      known_at DateTime64(6, 'UTC'),
      time_zone String,
      currency String,
      generator String,
      contents Array(String) comment 'of each table which rows it has',
      published_at DateTime64(3, 'UTC')
    ) engine = ${place.engine('everywhere')} order by (source, number)
    comment 'Every release that is still there.'`)
  await session.run(`
    create view if not exists ${STATE}.release${place.on} as
    select * from ${STATE}.published order by number desc limit 1 by source`)
}

/** A column there, or with an empty name the table itself. */
type Field = z.output<typeof fieldRow>
const fieldRow = z.object({table: z.string(), name: z.string(), type: z.string(), comment: z.string()})

/**
 * Creates the tables that are not there, adds columns that are new, and shows them: what releases of other sources hold stays
 * as it is, with nulls in columns they have not.
 *
 * @throws ConfigError `CLICKHOUSE_TYPE`
 */
export async function createTables(
  session: Session,
  place: Place,
  tables: readonly TargetTable[],
): Promise<void> {
  const databases = [...new Set(tables.map(({schema}) => literal(schema)))].join(', ')
  const fields = await session.rows(
    fieldRow,
    `select table, name, type, comment from (
       select concat(database, '.', table) as table, name, type, comment, position
       from system.columns where database in (${databases})
       union all
       select concat(database, '.', name) as table, '' as name, '' as type, comment, 0 as position
       from system.tables where database in (${databases})
     ) order by position`,
  )
  for (const table of tables) {
    const full = `${table.schema}.${table.name}`
    const at = (name: string) => `${quote(table.schema)}.${quote(name)}`
    const [local, whole] = [at(`${table.name}_local`), at(place.whole(table.name))]
    const own = table.columns.map(({name, type, comment}) => ({
      name,
      type: typeOf({name, type}, full),
      comment,
    }))
    const there = fields.filter((field) => field.table === `${full}_local` && field.name !== '')
    // On a cluster also where they are: a node that was set up anew has none.
    if (there.length === 0 || place.cluster !== undefined)
      await createTable(session, place, {table, local, whole, own})
    for (const {name, type, comment} of there.length === 0 ? [] : own) {
      const found = there.find((field) => field.name === name)
      if (found && found.type !== type)
        throw newError(
          'CLICKHOUSE_TYPE',
          `Column '${name}' of table '${full}' is ${found.type} at ${session.server}, and ${type} in this release.`,
        )
      if (!found)
        for (const one of new Set([local, whole]))
          await session.run(
            `alter table ${one}${place.on} add column if not exists ${quote(name)} ${type} comment ${literal(comment)}`,
          )
    }
    const source = {name: 'source', type: 'String', comment: 'whose release it is of'}
    const others = there.filter(
      ({name}) => !['source', 'content', ...own.map((one) => one.name)].includes(name),
    )
    await showTable(session, place, {
      target: at(table.name),
      whole,
      comment: table.comment,
      columns: [source, ...own, ...others],
      shown: fields.filter((field) => field.table === full),
    })
  }
}

const describeColumn = ({name, type, comment}: Omit<Field, 'table'>): string =>
  `${quote(name)} ${type} comment ${literal(comment)}`

/** Makes the view of a table, where it is not there as it should be. */
async function showTable(
  session: Session,
  place: Place,
  {
    target,
    whole,
    comment,
    columns,
    shown,
  }: {
    target: string
    whole: string
    comment: string
    columns: readonly Omit<Field, 'table'>[]
    shown: readonly Field[]
  },
): Promise<void> {
  const textOf = (fields: readonly Omit<Field, 'table'>[]) => fields.map(describeColumn).join(',\n')
  const wanted = [{name: '', type: '', comment}, ...columns]
  if (textOf(shown) === textOf(wanted)) return
  await session.run(`
    create or replace view ${target}${place.on} (${textOf(columns)}) as
    select ${columns.map((column) => quote(column.name)).join(', ')}
    from ${whole}
    where content in ${VISIBLE}.1
    comment ${literal(comment)}`)
}

async function createTable(
  session: Session,
  place: Place,
  {
    table,
    local,
    whole,
    own,
  }: {table: TargetTable; local: string; whole: string; own: readonly Omit<Field, 'table'>[]},
): Promise<void> {
  const {schema, name, order, comment} = table
  await session.run(`
    create table if not exists ${local}${place.on} (
      source LowCardinality(String) comment 'whose release it is of',
      content LowCardinality(String) comment 'source, table, sha256 of the Parquet file, and publication that it is of',
      ${own.map(describeColumn).join(',\n')}
    )
    engine = ${place.engine('shards')}
    partition by content
    order by (${['source', ...order].map(quote).join(', ')})
    settings allow_nullable_key = 1
    comment ${literal(comment)}`)
  if (place.cluster === undefined) return
  const [first = 'source'] = order
  // A column that may be null spreads nothing.
  const spread = `cityHash64(source, ifNull(toString(${quote(first)}), ''))`
  await session.run(`
    create table if not exists ${whole}${place.on} as ${local}
    engine = Distributed(${[place.cluster, schema, `${name}_local`].map(literal).join(', ')}, ${spread})`)
}
