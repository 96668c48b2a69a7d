import {createReadStream} from 'node:fs'
import {createClient} from '@clickhouse/client'
import {z} from 'zod'
import {codeOf, LoantapeError, messageOf, newError} from '../core/errors.ts'
import {literal, quote} from './clickhouse-sql.ts'
import type {TargetColumn, TargetTable} from './target.ts'

/** A connection to ClickHouse; disposing it closes it. */
export type Session = ReturnType<typeof openSession>

/** Tables of millions of rows are checked and sent in one request. */
const REQUEST_MS = 3_600_000

/** Opens a client over HTTP or HTTPS; sends nothing yet. */
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
      // A cast of null is null, as in other engines.
      cast_keep_nullable: 1,
      // A statement ends when every replica has executed it.
      alter_sync: '2',
      mutations_sync: '2',
      lightweight_deletes_sync: '2',
      distributed_foreground_insert: 1,
      distributed_ddl_task_timeout: '300',
      wait_end_of_query: 1,
      // Rows that were dropped and sent again are not duplicates.
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
    /** The rows of a query; 64-bit integers and decimals arrive as texts. */
    async rows<T>(row: z.ZodType<T>, query: string): Promise<T[]> {
      const found = await explained(async () => {
        const result = await client.query({query, format: 'JSONEachRow', abort_signal: signal})
        return await result.json()
      })
      return z.array(row).parse(found)
    },
    /** Runs an INSERT with the data of this file. */
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

/** An error of ClickHouse as one of ours. Codes: its `system.errors`. */
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

/** Whether ClickHouse refused a statement because the table exists. */
export function isThereAlready(error: unknown): boolean {
  return error instanceof LoantapeError && codeOf(error.cause) === '57'
}

/** Marks our databases; a database without it is never touched. */
const MARK = 'loantape'

/** The database whose view `release` says what readers see. */
export const STATE = 'loantape'

/**
 * The visible partitions of all tables, and the latest day. Every view contains this same text, and ClickHouse computes such a subquery
 * once per query: a query sees one release of each source, on every node.
 */
export const VISIBLE = `(select (groupArrayArray(contents), max(as_of)) from ${STATE}.release)`

/** The beginning of a partition's name: source, table and sha256 of its Parquet file. The publication's number follows. */
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

/** The ClickHouse type of a column. @throws ConfigError `CLICKHOUSE_TYPE` */
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

/** How tables are spread: on one server, or over the nodes of a cluster. */
export interface Topology {
  cluster: string | undefined
  /** Appended to a statement that every node must run. */
  on: string
  /** The engine of tables whose rows are sharded, or the same on all nodes. */
  engine(spread: 'shards' | 'everywhere'): string
  /** The table that is read and written; its rows are in `<name>_local`. */
  whole(name: string): string
}

export function topologyOf(cluster: string | undefined): Topology {
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

/** Creates the databases of these schemas. @throws ConfigError `PUBLISH_FOREIGN` */
export async function createDatabases(
  session: Session,
  topology: Topology,
  schemas: readonly string[],
): Promise<void> {
  const there = await session.rows(
    z.object({name: z.string(), comment: z.string()}),
    'select name, comment from system.databases',
  )
  for (const name of schemas) {
    const found = there.find((database) => database.name === name)
    if (found && !found.comment.startsWith(MARK))
      throw newError(
        'PUBLISH_FOREIGN',
        `Database '${name}' at ${session.server} was not made by loantape: expected a server without it.`,
      )
    if (!found)
      await session.run(
        `create database if not exists ${quote(name)}${topology.on} comment '${MARK}: published releases'`,
      )
  }
}

/** Creates the tables and views that say which release readers see. */
export async function createState(session: Session, topology: Topology): Promise<void> {
  await createDatabases(session, topology, [STATE])
  await session.run(`
    create table if not exists ${STATE}.published${topology.on} (
      source String comment 'the lender',
      number UInt64 comment 'the latest of a source is the one readers see',
      release_id String,
      as_of Date32,
      known_at DateTime64(6, 'UTC'),
      time_zone String,
      currency String,
      generator String,
      contents Array(String) comment 'the partition of each table',
      published_at DateTime64(3, 'UTC')
    ) engine = ${topology.engine('everywhere')} order by (source, number)
    comment 'Every release that is kept.'`)
  await session.run(`
    create view if not exists ${STATE}.release${topology.on} as
    select * from ${STATE}.published order by number desc limit 1 by source`)
}

/** A column; the table itself has an empty name. */
type Field = Omit<z.output<typeof fieldRow>, 'table'>
const fieldRow = z.object({table: z.string(), name: z.string(), type: z.string(), comment: z.string()})

/**
 * Creates missing tables and columns, and the views that show them. Releases of other sources have nulls in columns they lack.
 *
 * @throws ConfigError `CLICKHOUSE_TYPE`
 */
export async function createTables(
  session: Session,
  topology: Topology,
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
    const [local, whole] = [at(`${table.name}_local`), at(topology.whole(table.name))]
    const own = table.columns.map(({name, type, comment}) => ({
      name,
      type: typeOf({name, type}, full),
      comment,
    }))
    const there = fields.filter((field) => field.table === `${full}_local` && field.name !== '')
    // On a cluster always, because a new node has no tables.
    if (there.length === 0 || topology.cluster !== undefined)
      await createTable(session, topology, {table, local, whole, own})
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
            `alter table ${one}${topology.on} add column if not exists ${quote(name)} ${type} comment ${literal(comment)}`,
          )
    }
    const source = {name: 'source', type: 'String', comment: 'the lender'}
    const ours = ['source', 'content', ...own.map(({name}) => name)]
    const columns = [source, ...own, ...there.filter(({name}) => !ours.includes(name))]
    const shown = fields.filter((field) => field.table === full)
    const wanted = [{name: '', type: '', comment: table.comment}, ...columns]
    if (describeColumns(shown) === describeColumns(wanted)) continue
    await session.run(`
      create or replace view ${at(table.name)}${topology.on} (${describeColumns(columns)}) as
      select ${columns.map(({name}) => quote(name)).join(', ')}
      from ${whole}
      where content in ${VISIBLE}.1
      comment ${literal(table.comment)}`)
  }
}

const describeColumns = (columns: readonly Field[]): string =>
  columns.map(({name, type, comment}) => `${quote(name)} ${type} comment ${literal(comment)}`).join(',\n')

async function createTable(
  session: Session,
  topology: Topology,
  {table, local, whole, own}: {table: TargetTable; local: string; whole: string; own: readonly Field[]},
): Promise<void> {
  const {schema, name, order, comment} = table
  await session.run(`
    create table if not exists ${local}${topology.on} (
      source LowCardinality(String) comment 'the lender',
      content LowCardinality(String) comment 'source, table, sha256 of the Parquet file, and number of the publication',
      ${describeColumns(own)}
    )
    engine = ${topology.engine('shards')}
    partition by content
    order by (${['source', ...order].map(quote).join(', ')})
    settings allow_nullable_key = 1
    comment ${literal(comment)}`)
  if (topology.cluster === undefined) return
  const [first = 'source'] = order
  // The expression must not be null.
  const spread = `cityHash64(source, ifNull(toString(${quote(first)}), ''))`
  await session.run(`
    create table if not exists ${whole}${topology.on} as ${local}
    engine = Distributed(${[topology.cluster, schema, `${name}_local`].map(literal).join(', ')}, ${spread})`)
}
