import {DatabaseSync} from 'node:sqlite'
import {newError} from '../errors.ts'
import {explainLedgerFault} from './ledger-fault.ts'
import {MIGRATIONS} from './migrations.ts'

/** The run ledger: a SQLite file that stays readable while a run holds the warehouse. */
export interface Ledger extends Disposable {
  readonly db: DatabaseSync
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
  const ledger = {db, [Symbol.dispose]: () => db.close()}
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
