import {type DuckDBConnection, DuckDBInstance, type DuckDBValue, type Json} from '@duckdb/node-api'
import type {z} from 'zod'

/** One database file to attach. */
export interface Attachment {
  path: string
  alias: string
  readOnly?: boolean
}

/** How a connection is opened. */
export interface DatabaseOptions {
  attach?: readonly Attachment[]
  /** Catalog-qualified schemas, so that models can name tables of two files: `release.main,history.raw`. */
  searchPath?: string
  threads?: number
}

/** An in-memory DuckDB with files attached, and its one connection; closing it detaches and closes everything. */
export interface Database extends AsyncDisposable {
  readonly connection: DuckDBConnection
  /** Runs one or more statements; the last may have parameters. */
  run(sql: string, params?: DuckDBValue[]): Promise<void>
  /**
   * Runs a query and parses each row: BIGINT, HUGEINT and DECIMAL arrive as exact decimal text, DATE as `YYYY-MM-DD`,
   * TIMESTAMP as `YYYY-MM-DD HH:MM:SS[.ssssss]`.
   */
  all<T>(row: z.ZodType<T>, sql: string, params?: DuckDBValue[]): Promise<T[]>
  /** The first row, parsed; undefined when there is none. */
  first<T>(row: z.ZodType<T>, sql: string, params?: DuckDBValue[]): Promise<T | undefined>
  /** The row of a query that always has one. */
  one<T>(row: z.ZodType<T>, sql: string, params?: DuckDBValue[]): Promise<T>
  /** The rows of a query, some thousand at a time and never all in memory; values as {@link Database.all} has them. */
  stream(sql: string): AsyncGenerator<Json[][]>
}

/** A text as an SQL string literal. */
export function quoteLiteral(text: string): string {
  return `'${text.replaceAll("'", "''")}'`
}

/** A name as an SQL identifier. */
export function quoteName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`
}

/**
 * Opens an in-memory DuckDB and attaches files to it: attached files replay their WAL reliably, and one process can
 * hold several. The session time zone is UTC.
 */
export async function openDatabase(options: DatabaseOptions = {}): Promise<Database> {
  const config: Record<string, string> = {
    autoinstall_known_extensions: 'false',
    autoload_known_extensions: 'false',
  }
  if (options.threads) config.threads = String(options.threads)
  const instance = await DuckDBInstance.create(':memory:', config)
  const connection = await instance.connect()
  const close = () => {
    connection.closeSync()
    instance.closeSync()
  }
  try {
    await connection.run(`set TimeZone = 'UTC'`)
    for (const {path, alias, readOnly} of options.attach ?? []) {
      await connection.run(`attach ${quoteLiteral(path)} as ${alias}${readOnly ? ' (read_only)' : ''}`)
    }
    if (options.searchPath) await connection.run(`set search_path = ${quoteLiteral(options.searchPath)}`)
  } catch (error) {
    close()
    throw error
  }
  // Closing under a running statement crashes the process: closing waits for it.
  let underWay: Promise<unknown> = Promise.resolve()
  const execute = (sql: string, params?: DuckDBValue[]) => {
    const work = connection.runAndReadAll(sql, params)
    underWay = Promise.allSettled([underWay, work])
    return work
  }
  const read = async (sql: string, params?: DuckDBValue[]) => (await execute(sql, params)).getRowObjectsJson()
  return {
    connection,
    async run(sql, params) {
      await execute(sql, params)
    },
    async all(row, sql, params) {
      return (await read(sql, params)).map((values) => row.parse(values))
    },
    async first(row, sql, params) {
      const [values] = await read(sql, params)
      return values === undefined ? undefined : row.parse(values)
    },
    async one(row, sql, params) {
      return row.parse((await read(sql, params))[0])
    },
    async *stream(sql) {
      const work = connection.stream(sql)
      underWay = Promise.allSettled([underWay, work])
      yield* (await work).yieldRowsJson()
    },
    async [Symbol.asyncDispose]() {
      await underWay
      close()
    },
  }
}

/** Runs `work` in one transaction: all of it is stored, or nothing. */
export async function inTransaction<T>(db: Database, work: () => Promise<T>): Promise<T> {
  await db.run('begin transaction')
  try {
    const result = await work()
    await db.run('commit')
    return result
  } catch (error) {
    // A failed commit has already rolled back.
    await db.run('rollback').catch((rollback: Error) => {
      if (!/no transaction is active/i.test(rollback.message)) throw rollback
    })
    throw error
  }
}
