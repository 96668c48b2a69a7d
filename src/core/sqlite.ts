import {statSync} from 'node:fs'
import {backup, DatabaseSync, type SQLInputValue, type StatementSync} from 'node:sqlite'
import {z} from 'zod'

interface SqliteOptions {
  /** How long to wait for another writer. */
  patienceMs?: number | undefined
  /** Rewords an error of a statement. */
  explain?: (error: unknown) => unknown
  /** Reopens the path if it now holds another file. */
  reopen?: (() => DatabaseSync) | undefined
  /** Throws if the database may no longer be used; called before each use outside a transaction. */
  check?: ((db: DatabaseSync) => void) | undefined
}

/** `:memory:` makes a database in memory. */
export class Sqlite implements Disposable {
  readonly #statements = new Map<string, StatementSync>()
  readonly #patienceMs: number
  readonly #path: string
  readonly #options: SqliteOptions
  #db: DatabaseSync
  #file: string | undefined

  constructor(path: string, options: SqliteOptions = {}) {
    this.#path = path
    this.#options = options
    this.#patienceMs = options.patienceMs ?? 5000
    this.#db = new DatabaseSync(path, {timeout: this.#patienceMs})
    this.#file = findFile(path)
  }

  /** With `reopen`, reopened if the path now holds another file, except within a transaction. */
  get db(): DatabaseSync {
    const {reopen, check} = this.#options
    if (!reopen || this.#db.isTransaction) return this.#db
    const file = findFile(this.#path)
    if (file === this.#file) {
      check?.(this.#db)
      return this.#db
    }
    const next = reopen()
    this.#statements.clear()
    this.#db.close()
    this.#file = file
    this.#db = next
    return next
  }

  all<T>(row: z.ZodType<T>, sql: string, values: readonly SQLInputValue[] = []): T[] {
    const found = this.#ask(sql, (statement) => statement.all(...values))
    return found.map((one) => row.parse(one))
  }

  first<T>(row: z.ZodType<T>, sql: string, values: readonly SQLInputValue[] = []): T | undefined {
    const found = this.#ask(sql, (statement) => statement.get(...values))
    return found && row.parse(found)
  }

  /** The row of a query that always finds one. */
  one<T>(row: z.ZodType<T>, sql: string, values: readonly SQLInputValue[] = []): T {
    return row.parse(this.#ask(sql, (statement) => statement.get(...values)))
  }

  /** The values of a one-column query. */
  column<T>(value: z.ZodType<T>, sql: string, values: readonly SQLInputValue[] = []): T[] {
    return this.all(z.record(z.string(), value), sql, values).flatMap((row) => Object.values(row))
  }

  run(sql: string, values: readonly SQLInputValue[] = []) {
    return this.#ask(sql, (statement) => statement.run(...values))
  }

  /** `orElse` says what to do if the key exists. */
  insert(
    table: string,
    row: Record<string, SQLInputValue>,
    orElse: 'or abort' | 'or ignore' | 'or replace' = 'or abort',
  ) {
    const columns = Object.keys(row)
    const marks = columns.map(() => '?')
    const sql = `insert ${orElse} into ${table} (${columns.join(', ')}) values (${marks.join(', ')})`
    return this.run(sql, Object.values(row))
  }

  update(table: string, where: Record<string, SQLInputValue>, changes: Record<string, SQLInputValue>) {
    const [set, has] = [changes, where].map((row) => Object.keys(row).map((column) => `${column} = ?`))
    const sql = `update ${table} set ${set?.join(', ')} where ${has?.join(' and ')}`
    return this.run(sql, [...Object.values(changes), ...Object.values(where)])
  }

  /** Joins the current transaction if there is one. `patienceMs`: how long to wait for another writer. */
  transaction<T>(work: () => T, patienceMs = this.#patienceMs): T {
    if (this.db.isTransaction) return work()
    try {
      this.#explained(() => this.db.exec(`pragma busy_timeout = ${patienceMs}; begin immediate`))
    } finally {
      this.db.exec(`pragma busy_timeout = ${this.#patienceMs}`)
    }
    try {
      const result = work()
      this.#explained(() => this.db.exec('commit'))
      return result
    } catch (error) {
      if (this.db.isTransaction) this.db.exec('rollback')
      throw error
    }
  }

  [Symbol.dispose](): void {
    this.#db.close()
  }

  #ask<T>(sql: string, ask: (statement: StatementSync) => T): T {
    return this.#explained(() => {
      const {db} = this
      const statement = this.#statements.get(sql) ?? db.prepare(sql)
      this.#statements.set(sql, statement)
      return ask(statement)
    })
  }

  #explained<T>(work: () => T): T {
    try {
      return work()
    } catch (error) {
      throw this.#options.explain?.(error) ?? error
    }
  }
}

/** Copies a database in one step: between two, others may write, and then the engine begins again, perhaps for ever. */
export async function copyDatabase(db: DatabaseSync, copy: string): Promise<void> {
  await backup(db, copy, {rate: 2 ** 31 - 1})
}

/** Identifies the file at a path, as long as somebody has it open; undefined if there is none. */
function findFile(path: string): string | undefined {
  const found = statSync(path, {throwIfNoEntry: false})
  return found && `${found.dev}:${found.ino}`
}
