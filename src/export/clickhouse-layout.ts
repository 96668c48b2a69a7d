import {createReadStream} from 'node:fs'
import {createClient} from '@clickhouse/client'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {literal, quote} from './clickhouse-sql.ts'
import {explainTarget, type TargetErrors, type TargetTable} from './target.ts'

export interface ClickhouseServer {
  /** `https://host:8443` */
  url: string
  user?: string | undefined
  password?: string | undefined
  /** By default a single server. */
  cluster?: string | undefined
}

export type Session = ReturnType<typeof openSession>

/** Tables of millions of rows are checked and sent in one request. */
const LONGEST_REQUEST_MS = 3_600_000

/** Over HTTP or HTTPS; sends nothing yet. */
export function openSession(
  {url, user, password, cluster}: ClickhouseServer,
  signal: AbortSignal,
  requestMs = LONGEST_REQUEST_MS,
) {
  const {host, pathname} = new URL(url)
  const server = `${host}${pathname.replace(/\/$/, '')}`
  const client = createClient({
    url,
    ...(user !== undefined && {username: user}),
    ...(password !== undefined && {password}),
    application: 'loantape',
    request_timeout: requestMs,
    keep_alive: {enabled: false},
    log: {level: 127},
    clickhouse_settings: {
      // A cast of null is null, as in other engines, and a column is nullable only where that is said.
      cast_keep_nullable: 1,
      data_type_default_nullable: 0,
      // A statement ends only when every replica has executed it.
      alter_sync: '2',
      mutations_sync: '2',
      lightweight_deletes_sync: '2',
      distributed_foreground_insert: 1,
      distributed_ddl_task_timeout: '300',
      wait_end_of_query: 1,
      // Deduplication would drop rows that are sent again after being deleted.
      insert_deduplicate: 0,
      async_insert: 0,
    },
  })
  async function explained<T>(ask: () => Promise<T>): Promise<T> {
    try {
      // The client misses a signal that was aborted before.
      signal.throwIfAborted()
      return await ask()
    } catch (error) {
      throw explainTarget(error, `ClickHouse at ${server}`, ERRORS)
    }
  }
  return {
    ...topologyOf(cluster),
    /** `host:port` */
    server,
    run: (query: string): Promise<void> =>
      explained(async () => {
        await client.command({query, abort_signal: signal})
      }),
    /** 64-bit integers and decimals arrive as text. */
    async rows<T>(row: z.ZodType<T>, query: string): Promise<T[]> {
      const asked = {query, format: 'JSONEachRow', abort_signal: signal} as const
      const found = await explained(async () => (await client.query(asked)).json())
      return z.array(row).parse(found)
    },
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

/** Codes from ClickHouse's `system.errors`. */
const ERRORS: TargetErrors = [
  ['PUBLISH_AUTH', /^(516|192|193|194) /],
  ['PUBLISH_PRIVILEGE', /^(497|164) /],
  // The server's own errors have a number; one without is of the connection, or a proxy's answer.
  ['PUBLISH_UNREACHABLE', /^UNEXPECTED /],
]

/** Marks our databases; a database without this mark is never touched. */
const MARK = 'loantape'

const TYPES: Readonly<Record<string, string>> = {
  VARCHAR: 'String',
  BOOLEAN: 'Bool',
  BIGINT: 'Int64',
  DOUBLE: 'Float64',
  DATE: 'Date32',
  TIMESTAMP: "DateTime64(6, 'UTC')",
}

type TableName = Pick<TargetTable, 'schema' | 'name'>

/** A column as ClickHouse lists it. */
export interface Field {
  name: string
  type: string
  comment: string
}

/** The first column of every shown table. */
export const sourceField = (comment = 'the lender'): Field => ({name: 'source', type: 'String', comment})

/** The columns that loantape adds to every table. */
export const ADDED = ['source', 'content']

/** Columns as ClickHouse has them. @throws ConfigError `CLICKHOUSE_TYPE` */
export const fieldsOf = (columns: TargetTable['columns'], table: string): Field[] =>
  columns.map(({name, type, meaning}) => {
    if (ADDED.includes(name))
      throw newError(
        'CLICKHOUSE_TYPE',
        `Column '${name}' of table '${table}' has the name of one that loantape adds.`,
        {next: 'Give it another name in its model, or in fields.json with its own as `path`.'},
      )
    const own = TYPES[type] ?? type.replace(/^DECIMAL\((\d+),(\d+)\)$/, 'Decimal($1, $2)')
    if (own !== type) return {name, type: `Nullable(${own})`, comment: meaning}
    const problem = `Column '${name}' of table '${table}' has the type ${type}: expected a plain one.`
    throw newError('CLICKHOUSE_TYPE', problem, {
      next: 'Cast the column in its model to VARCHAR, BIGINT, DECIMAL, DOUBLE, DATE, TIMESTAMP or BOOLEAN.',
    })
  })

export const describeFields = (fields: readonly Field[]): string =>
  fields.map(({name, type, comment}) => `${quote(name)} ${type} comment ${literal(comment)}`).join(',\n')

/**
 * How tables are spread: on one server, or over the nodes of a cluster. `on` is appended to a statement that every node must
 * run; `engine` is that of tables whose rows are sharded, or the same on all nodes; `local` is the table that holds rows,
 * `whole` the one that is read and written, both quoted.
 */
export function topologyOf(cluster: string | undefined) {
  const path = (shard: string) => `'/clickhouse/tables/${shard}/{database}/{table}'`
  const engines = {
    shards: `ReplicatedMergeTree(${path('{shard}')}, '{replica}')`,
    everywhere: `ReplicatedMergeTree(${path('all')}, '{shard}-{replica}')`,
  }
  return {
    cluster,
    on: cluster === undefined ? '' : ` on cluster ${quote(cluster)}`,
    engine: (spread: keyof typeof engines) => (cluster === undefined ? 'MergeTree' : engines[spread]),
    local: ({schema, name}: TableName) => `${quote(schema)}.${quote(`${name}_local`)}`,
    whole: ({schema, name}: TableName) =>
      `${quote(schema)}.${quote(`${name}_${cluster === undefined ? 'local' : 'all'}`)}`,
  }
}

/** @throws ConfigError `PUBLISH_FOREIGN` */
export async function createDatabases(session: Session, schemas: readonly string[]): Promise<void> {
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
        `create database if not exists ${quote(name)}${session.on} comment '${MARK}: published releases'`,
      )
  }
}
