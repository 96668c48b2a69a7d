import {DatabaseSync, type SQLInputValue, type StatementSync} from 'node:sqlite'
import {z} from 'zod'

/** A SQLite file, or a database in memory with `:memory:`. */
export class Sqlite implements Disposable {
  readonly db: DatabaseSync
  readonly #statements = new Map<string, StatementSync>()
  readonly #patienceMs: number

  /** Opens the file and waits up to `patienceMs` for another writer. */
  constructor(path: string, patienceMs = 5000) {
    this.#patienceMs = patienceMs
    this.db = new DatabaseSync(path, {timeout: patienceMs})
  }

  /** The rows a query finds, each as `row` parses it. */
  all<T>(row: z.ZodType<T>, sql: string, values: readonly SQLInputValue[] = []): T[] {
    const found = this.#prepare(sql).all(...values)
    return found.map((one) => row.parse(one))
  }

  /** The first row a query finds. */
  first<T>(row: z.ZodType<T>, sql: string, values: readonly SQLInputValue[] = []): T | undefined {
    const found = this.#prepare(sql).get(...values)
    return found && row.parse(found)
  }

  /** The row of a query that always finds one. */
  one<T>(row: z.ZodType<T>, sql: string, values: readonly SQLInputValue[] = []): T {
    return row.parse(this.#prepare(sql).get(...values))
  }

  /** The values of a query that has one column. */
  column<T>(value: z.ZodType<T>, sql: string, values: readonly SQLInputValue[] = []): T[] {
    return this.all(z.record(z.string(), value), sql, values).flatMap((row) => Object.values(row))
  }

  /** Runs a statement that returns no rows. */
  run(sql: string, values: readonly SQLInputValue[] = []) {
    return this.#prepare(sql).run(...values)
  }

  /** Inserts one row, values by column; `orElse` says what happens if its key exists. */
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

  /** Changes the rows that have these values. */
  update(table: string, where: Record<string, SQLInputValue>, changes: Record<string, SQLInputValue>) {
    const [set, has] = [changes, where].map((row) => Object.keys(row).map((column) => `${column} = ?`))
    const sql = `update ${table} set ${set?.join(', ')} where ${has?.join(' and ')}`
    return this.run(sql, [...Object.values(changes), ...Object.values(where)])
  }

  /**
   * Runs `work` in one transaction, the current one if there is one: all of it is stored, or nothing.
   *
   * @param patienceMs how long to wait for another writer; by default as it was opened
   */
  transaction<T>(work: () => T, patienceMs = this.#patienceMs): T {
    if (this.db.isTransaction) return work()
    try {
      this.db.exec(`pragma busy_timeout = ${patienceMs}; begin immediate`)
    } finally {
      this.db.exec(`pragma busy_timeout = ${this.#patienceMs}`)
    }
    try {
      const result = work()
      this.db.exec('commit')
      return result
    } catch (error) {
      if (this.db.isTransaction) this.db.exec('rollback')
      throw error
    }
  }

  [Symbol.dispose](): void {
    this.db.close()
  }

  #prepare(sql: string): StatementSync {
    const statement = this.#statements.get(sql) ?? this.db.prepare(sql)
    this.#statements.set(sql, statement)
    return statement
  }
}
