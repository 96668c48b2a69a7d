import {
  DatabaseSync,
  type SQLInputValue,
  type StatementResultingChanges,
  type StatementSync,
} from 'node:sqlite'
import type {z} from 'zod'
import {newError} from '../errors.ts'
import {explainLedgerFault} from './ledger-fault.ts'
import {MIGRATIONS} from './migrations.ts'

/** The run ledger: a SQLite file that stays readable while a run holds the warehouse. */
export interface Ledger extends Disposable {
  readonly db: DatabaseSync
  /** The rows a query finds, each as `row` parses it. */
  all<Row extends z.ZodType>(row: Row, sql: string, values?: readonly SQLInputValue[]): z.output<Row>[]
  /** The first row a query finds. */
  first<Row extends z.ZodType>(
    row: Row,
    sql: string,
    values?: readonly SQLInputValue[],
  ): z.output<Row> | undefined
  /** The row of a query that always finds one. */
  one<Row extends z.ZodType>(row: Row, sql: string, values?: readonly SQLInputValue[]): z.output<Row>
  /** Runs a statement that finds nothing. */
  run(sql: string, values?: readonly SQLInputValue[]): StatementResultingChanges
  /** Inserts one row, values by column; `orElse` is what SQLite does where its key is there already. */
  insert(
    table: string,
    row: Record<string, SQLInputValue>,
    orElse?: 'or ignore' | 'or replace',
  ): StatementResultingChanges
}

/**
 * Opens the ledger and brings its tables up to date; waits up to five seconds for another writer.
 *
 * @throws UnexpectedError `LEDGER_NEWER` when a later version of loantape has written it, `LEDGER_UNREADABLE`;
 * ConfigError `LEDGER_NOT_WRITABLE`
 */
export function openLedger(path: string): Ledger {
  try {
    return connectLedger(path)
  } catch (error) {
    throw explainLedgerFault(path, error)
  }
}

function connectLedger(path: string): Ledger {
  const db = new DatabaseSync(path, {timeout: 5000})
  const statements = new Map<string, StatementSync>()
  const prepare = (sql: string) => {
    const statement = statements.get(sql) ?? db.prepare(sql)
    statements.set(sql, statement)
    return statement
  }
  const ledger: Ledger = {
    db,
    all: (row, sql, values = []) => {
      const found = prepare(sql).all(...values)
      return found.map((one) => row.parse(one))
    },
    first: (row, sql, values = []) => {
      const found = prepare(sql).get(...values)
      return found && row.parse(found)
    },
    one: (row, sql, values = []) => row.parse(prepare(sql).get(...values)),
    run: (sql, values = []) => prepare(sql).run(...values),
    insert: (table, row, orElse) => {
      const columns = Object.keys(row)
      const marks = columns.map(() => '?')
      return prepare(
        `insert ${orElse ?? ''} into ${table} (${columns.join(', ')}) values (${marks.join(', ')})`,
      ).run(...Object.values(row))
    },
    [Symbol.dispose]: () => db.close(),
  }
  try {
    db.exec('pragma journal_mode = wal; pragma synchronous = full')
    migrateLedger(ledger)
    return ledger
  } catch (error) {
    db.close()
    throw error
  }
}

/** Runs `work` in one transaction, during which nobody else writes: all of it is stored, or nothing. */
export function inLedgerTransaction<T>({db}: Ledger, work: () => T): T {
  db.exec('begin immediate')
  try {
    const result = work()
    db.exec('commit')
    return result
  } catch (error) {
    if (db.isTransaction) db.exec('rollback')
    throw error
  }
}

function migrateLedger(ledger: Ledger): void {
  inLedgerTransaction(ledger, () => {
    const {db} = ledger
    const version = Number(db.prepare('pragma user_version').get()?.user_version ?? 0)
    if (version > MIGRATIONS.length)
      throw newError(
        'LEDGER_NEWER',
        `Version '${version}' of the ledger: this version of loantape knows ${MIGRATIONS.length}.`,
      )
    for (const sql of MIGRATIONS.slice(version)) db.exec(sql)
    db.exec(`pragma user_version = ${MIGRATIONS.length}`)
  })
}
