import {
  DatabaseSync,
  type SQLInputValue,
  type StatementResultingChanges,
  type StatementSync,
} from 'node:sqlite'
import {z} from 'zod'
import {messageOf, newError} from '../errors.ts'
import {MIGRATIONS} from './migrations.ts'

/** The run ledger: a SQLite file that stays readable while a run holds the warehouse. */
export class Ledger implements Disposable {
  readonly db: DatabaseSync
  readonly #statements = new Map<string, StatementSync>()

  /** Opens the file and waits up to five seconds for another writer. */
  constructor(path: string) {
    this.db = new DatabaseSync(path, {timeout: 5000})
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

  /** Runs a statement that finds nothing. */
  run(sql: string, values: readonly SQLInputValue[] = []): StatementResultingChanges {
    return this.#prepare(sql).run(...values)
  }

  /** Inserts one row, values by column; `orElse` is what SQLite does where its key is there already. */
  insert(
    table: string,
    row: Record<string, SQLInputValue>,
    orElse: 'or abort' | 'or ignore' | 'or replace' = 'or abort',
  ): StatementResultingChanges {
    const columns = Object.keys(row)
    const marks = columns.map(() => '?')
    const sql = `insert ${orElse} into ${table} (${columns.join(', ')}) values (${marks.join(', ')})`
    return this.run(sql, Object.values(row))
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

/**
 * Opens the ledger and brings its tables up to date; waits up to five seconds for another writer.
 *
 * @throws UnexpectedError `LEDGER_NEWER` when a later version of loantape has written it, `LEDGER_UNREADABLE`;
 * ConfigError `LEDGER_NOT_WRITABLE`
 */
export function openLedger(path: string): Ledger {
  try {
    using opening = new DisposableStack()
    const ledger = opening.use(new Ledger(path))
    ledger.db.exec('pragma journal_mode = wal; pragma synchronous = full')
    migrateLedger(ledger)
    opening.move()
    return ledger
  } catch (error) {
    throw explainFault(path, error)
  }
}

/** https://sqlite.org/rescode.html */
const [CORRUPT, NOT_A_DATABASE, READ_ONLY, CANNOT_OPEN] = [11, 26, 8, 14]

/** What SQLite says of the ledger's file, in our words where somebody can fix it; all else as it is. */
function explainFault(path: string, cause: unknown): unknown {
  // The low byte is the kind of fault, what is above it the details.
  const fault = cause instanceof Error && 'errcode' in cause ? Number(cause.errcode) & 0xff : undefined
  const problem = (what: string) => `Ledger '${path}' cannot be ${what}: ${messageOf(cause)}.`
  if (fault === CORRUPT || fault === NOT_A_DATABASE) {
    return newError('LEDGER_UNREADABLE', problem('read'), {cause})
  }
  if (fault === READ_ONLY || fault === CANNOT_OPEN) {
    return newError('LEDGER_NOT_WRITABLE', problem('written'), {cause})
  }
  return cause
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
    const version = ledger.one(z.object({user_version: z.number()}), 'pragma user_version').user_version
    if (version > MIGRATIONS.length)
      throw newError(
        'LEDGER_NEWER',
        `Version '${version}' of the ledger: this version of loantape knows ${MIGRATIONS.length}.`,
      )
    for (const sql of MIGRATIONS.slice(version)) ledger.db.exec(sql)
    ledger.db.exec(`pragma user_version = ${MIGRATIONS.length}`)
  })
}
