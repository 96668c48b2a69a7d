import {randomBytes} from 'node:crypto'
import {DatabaseSync, type SQLInputValue, type StatementSync} from 'node:sqlite'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {SCHEMA} from './schema.ts'

/** The service's SQLite database; integers come back as bigint. */
export type ServiceDatabase = ReturnType<typeof openServiceDatabase>

/** An id of the service: `deal_` and 80 random bits. */
export function createId(prefix: string): string {
  return `${prefix}_${randomBytes(10).toString('hex')}`
}

/** A column of ms since the epoch as ISO 8601. */
export const rowInstant = z.bigint().transform((ms) => new Date(Number(ms)).toISOString())

/** A column of a whole number. */
export const rowCount = z.bigint().transform(Number)

function openFile(path: string): DatabaseSync {
  try {
    const database = new DatabaseSync(path, {readBigInts: true, timeout: 5_000})
    // full: what was acknowledged outlives a power cut, too.
    database.exec('pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -65536')
    database.exec('pragma foreign_keys = on')
    // One transaction: each would wait for the disk.
    database.exec(`begin immediate; ${SCHEMA}; commit`)
    return database
  } catch (cause) {
    throw newError(
      'SERVICE_DB_OPEN',
      `The service cannot open its database '${path}': expected a new file in an existing folder, or a file it wrote itself.`,
      {cause},
    )
  }
}

function readSecret(database: DatabaseSync): Buffer {
  database
    .prepare('insert into cursor_secret (only_row, secret) values (1, ?) on conflict do nothing')
    .run(randomBytes(32))
  const secret = database.prepare('select secret from cursor_secret').get()?.secret
  return secret instanceof Uint8Array ? Buffer.from(secret) : Buffer.alloc(0)
}

/**
 * Opens the service's database in a file, or in memory with `:memory:`.
 *
 * @throws ConfigError when the file cannot be opened as the service's database
 */
export function openServiceDatabase(path: string) {
  const database = openFile(path)
  const statements = new Map<string, StatementSync>()
  let onCommit: (() => void)[] = []

  function prepare(sql: string): StatementSync {
    const known = statements.get(sql)
    if (known) return known
    const statement = database.prepare(sql)
    statements.set(sql, statement)
    return statement
  }

  /** Runs `work` in one transaction, or in the one under way; rolls back and rethrows when it throws. */
  function transaction<T>(work: () => T): T {
    if (database.isTransaction) return work()
    database.exec('begin immediate')
    onCommit = []
    try {
      const result = work()
      database.exec('commit')
      for (const then of onCommit) then()
      return result
    } catch (error) {
      if (database.isTransaction) database.exec('rollback')
      throw error
    }
  }

  return {
    /** The file, or `:memory:`. */
    path,
    /** Signs cursors and digests of requests; kept with the data, so that both outlive a restart. */
    secret: readSecret(database),
    prepare,
    transaction,
    all: <T>(row: z.ZodType<T>, sql: string, ...values: SQLInputValue[]): T[] =>
      z.array(row).parse(prepare(sql).all(...values)),
    get: <T>(row: z.ZodType<T>, sql: string, ...values: SQLInputValue[]): T | undefined =>
      row.optional().parse(prepare(sql).get(...values)),
    /** Returns how many rows were touched. */
    run: (sql: string, ...values: SQLInputValue[]): number => Number(prepare(sql).run(...values).changes),
    /** Inserts one row, its values by column. */
    insert(table: string, row: Record<string, SQLInputValue>): void {
      const names = Object.keys(row)
      const places = names.map(() => '?').join(', ')
      prepare(`insert into ${table} (${names.join(', ')}) values (${places})`).run(...Object.values(row))
    },
    /** Sets columns of the row with this id. */
    update(table: string, id: string, columns: Record<string, SQLInputValue>): void {
      const set = Object.keys(columns).map((name) => `${name} = ?`)
      prepare(`update ${table} set ${set.join(', ')} where id = ?`).run(...Object.values(columns), id)
    },
    /** Has `work` run when the transaction under way has been committed, never when it is rolled back. */
    afterCommit(work: () => void): void {
      if (database.isTransaction) onCommit.push(work)
      else work()
    },
    close: (): void => database.close(),
  }
}
