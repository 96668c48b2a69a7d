import {existsSync, readFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import type {DatabaseSync} from 'node:sqlite'
import {z} from 'zod'
import {findMachineFault, messageOf, newError} from '../core/errors.ts'
import {Sqlite} from '../core/sqlite.ts'
import {RESTORING} from './data-folder.ts'
import {listFiles} from './sql.ts'

/** The state database: a SQLite file that stays readable while a run holds the warehouse. */
export type StateDb = Sqlite

/** @throws ConfigError `RESTORE_UNFINISHED` if a restore died or is under way */
export function hasStateDb({stateDb}: {stateDb: string}): boolean {
  requireRestored(stateDb)
  return existsSync(stateDb)
}

function requireRestored(stateDb: string): void {
  if (stateDb === ':memory:') return
  const root = dirname(stateDb)
  if (!existsSync(join(root, RESTORING))) return
  throw newError(
    'RESTORE_UNFINISHED',
    `Data folder '${root}' holds part of a backup: its restore is under way, or died.`,
  )
}

/**
 * Opens the state database and brings its tables up to date. `patienceMs` is how long to wait for another writer, which blocks
 * this process; five seconds by default. `isServed` is for a connection that stays open long: the file is checked when opened,
 * opened again when it is replaced, and refused once a later version has changed its tables.
 * @throws UnexpectedError `DATA_NEWER` if a later version of loantape has written it, `STATE_UNREADABLE`; ConfigError
 *   `NOT_WRITABLE`, `RESTORE_UNFINISHED`; LockedError `STATE_BUSY`
 */
export function openStateDb(path: string, options: {patienceMs?: number; isServed?: boolean} = {}): StateDb {
  const {patienceMs, isServed = false} = options
  requireRestored(path)
  const explain = (error: unknown) => explainFault(path, error)
  const reopen = () => {
    requireThere(path)
    return openStateDb(path, options).db
  }
  try {
    // Without the file, SQLite would join these leftovers with a new one.
    if (['-wal', '-shm'].some((end) => existsSync(path + end))) requireThere(path)
    using opening = new DisposableStack()
    const known = listFiles(STATE_MIGRATIONS, '.sql')
    const served = isServed && {reopen, check: (db: DatabaseSync) => void listPending({db}, known)}
    const stateDb = opening.use(new Sqlite(path, {patienceMs, explain, ...served}))
    stateDb.db.exec('pragma journal_mode = wal; pragma synchronous = full')
    if (isServed) requireSound(stateDb, path)
    migrateStateDb(stateDb)
    opening.move()
    return stateDb
  } catch (error) {
    throw explain(error)
  }
}

const TAKEN_OVER = 'another run has the lock'

/**
 * Makes a connection refuse writes once its run has lost its lock, because another run took over while it was silent. Nothing a
 * run does takes effect without a write here.
 */
export function fenceWrites(stateDb: StateDb, runId: string): void {
  const tables = stateDb.column(
    z.string(),
    `select name from sqlite_schema where type = 'table' and name not in ('lock', 'sqlite_sequence')`,
  )
  for (const table of tables)
    for (const what of ['insert', 'update', 'delete'])
      stateDb.db.exec(
        `create temp trigger fence_${what}_${table} before ${what} on ${table}
         when not exists (select 1 from lock where run_id = '${runId}') begin select raise(abort, '${TAKEN_OVER}'); end`,
      )
}

/** A server that made a new file would write into a restore under way. @throws UnexpectedError `STATE_UNREADABLE` */
export function requireThere(path: string): void {
  if (existsSync(path)) return
  throw newError('STATE_UNREADABLE', `State database '${path}' is not there: it was moved or removed.`, {
    kept: 'Nothing was changed.',
    next: 'Put it back. If it is lost, move its -wal and -shm away, too: the next command computes it again from the tapes, without the history of jobs and the webhooks not yet applied.',
  })
}

function requireSound(stateDb: StateDb, path: string): void {
  const found = stateDb.one(z.object({quick_check: z.string()}), 'pragma quick_check(1)').quick_check
  if (found !== 'ok') throw newError('STATE_UNREADABLE', `State database '${path}' cannot be read: ${found}.`)
}

/** Result codes: https://sqlite.org/rescode.html */
const [BUSY, CORRUPT, NOT_A_DATABASE, READ_ONLY, CANNOT_OPEN] = [5, 11, 26, 8, 14]

/** Rewords the errors that a user can fix; returns others unchanged. */
function explainFault(path: string, cause: unknown): unknown {
  // The low byte is the kind of error, the rest its details.
  const fault = cause instanceof Error && 'errcode' in cause ? Number(cause.errcode) & 0xff : undefined
  if (messageOf(cause) === TAKEN_OVER)
    return newError('RUN_IN_PROGRESS', 'This run was silent for so long that another one has taken over.', {
      kept: 'What it had read and not settled is on the tape that the other run goes on with.',
      cause,
    })
  const problem = (what: string) => `State database '${path}' cannot be ${what}: ${messageOf(cause)}.`
  // SQLite does not say which file.
  const ofMachine = findMachineFault(fault === undefined ? cause : new Error(problem('used'), {cause}))
  if (ofMachine) return ofMachine
  if (fault === BUSY) return newError('STATE_BUSY', problem('written'), {cause})
  // Of a folder, SQLite only says that it cannot be opened.
  const isFolder = existsSync(`${path}/.`)
  if (fault === CORRUPT || fault === NOT_A_DATABASE || isFolder)
    return newError('STATE_UNREADABLE', problem('read'), {cause})
  if (fault === READ_ONLY || fault === CANNOT_OPEN)
    return newError('NOT_WRITABLE', problem('written'), {cause})
  return cause
}

export const STATE_MIGRATIONS = join(import.meta.dirname, '../../sql/migrations/state')

/** Runs each new file of `dir` once, in order, all of them or none. */
export function migrateStateDb(stateDb: StateDb, dir: string = STATE_MIGRATIONS): void {
  // If nothing is to be done, nothing may be written: reading must work on a full disk.
  const files = listFiles(dir, '.sql')
  if (listPending(stateDb, files).length === 0) return
  stateDb.transaction(() => {
    for (const file of listPending(stateDb, files)) stateDb.db.exec(readFileSync(file, 'utf8'))
    stateDb.db.exec(`pragma user_version = ${files.length}`)
  })
}

/** Changes nothing. @throws as {@link openStateDb} */
export function listPendingOfState(path: string): string[] {
  try {
    using stateDb = new Sqlite(path)
    return listPending(stateDb, listFiles(STATE_MIGRATIONS, '.sql'))
  } catch (error) {
    throw explainFault(path, error)
  }
}

function listPending({db}: Pick<StateDb, 'db'>, files: readonly string[]): string[] {
  const version = Number(db.prepare('pragma user_version').get()?.user_version)
  if (version <= files.length) return files.slice(version)
  throw newError(
    'DATA_NEWER',
    `State database '${db.location()}' has version ${version}: this version of loantape knows ${files.length}.`,
  )
}
