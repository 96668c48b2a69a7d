import {existsSync, linkSync, renameSync, rmSync} from 'node:fs'
import {z} from 'zod'
import {LockedError, messageOf, UnexpectedError} from '../errors.ts'
import {moveIntoPlace} from './atomic-file.ts'
import type {DataFolder} from './data-folder.ts'
import {type Database, openDatabase, quoteLiteral, quoteName} from './database.ts'
import {migrate} from './migrate.ts'

/**
 * Opens the warehouse for writing, attached as `warehouse`, and brings its tables up to date.
 *
 * @throws LockedError `WAREHOUSE_LOCKED` when another process has it open
 * @throws UnexpectedError `WAREHOUSE_UNREADABLE` when the file does not open
 */
export async function openWarehouse(folder: DataFolder): Promise<Database> {
  let db: Database
  try {
    db = await openDatabase({attach: [{path: folder.warehouse, alias: 'warehouse'}]})
  } catch (error) {
    throw describeOpenFailure(folder.warehouse, error)
  }
  try {
    await migrate(db, 'warehouse')
    return db
  } catch (error) {
    await db[Symbol.asyncDispose]()
    throw error
  }
}

/**
 * Opens the last good copy of the warehouse, attached read-only as `history`.
 *
 * @throws UnexpectedError `HISTORY_MISSING` when no walk has been completed yet
 */
export async function openHistory(
  folder: DataFolder,
  options: {attach?: {path: string; alias: string}[]; searchPath?: string; threads?: number} = {},
): Promise<Database> {
  if (!existsSync(folder.history)) {
    throw new UnexpectedError({
      code: 'HISTORY_MISSING',
      problem: `No history in '${folder.root}': no walk has been completed there yet.`,
      kept: 'Nothing was changed.',
      next: 'Run `loantape sync` first, or name another folder with --data.',
    })
  }
  const attach = [{path: folder.history, alias: 'history', readOnly: true}, ...(options.attach ?? [])]
  try {
    return await openDatabase({...options, attach})
  } catch (error) {
    throw describeOpenFailure(folder.history, error)
  }
}

function describeOpenFailure(path: string, error: unknown): Error {
  const words = messageOf(error)
  if (/could not set lock|conflicting lock/i.test(words)) {
    const holder = /PID (\d+)/.exec(words)?.[1]
    return new LockedError({
      code: 'WAREHOUSE_LOCKED',
      problem: `File '${path}' is open in another process${holder ? ` (pid ${holder})` : ''}.`,
      kept: 'Nothing was changed.',
      next: 'Wait for that process to end, or stop it, then run again.',
      cause: error,
    })
  }
  return new UnexpectedError({
    code: 'WAREHOUSE_UNREADABLE',
    problem: `File '${path}' does not open: ${words.split('\n')[0]}.`,
    kept: 'The file was not changed; releases and exports are separate files and stay as they are.',
    next: 'Keep a copy of it, then see "Damage" in docs/operations.md.',
    cause: error,
  })
}

const tableRow = z.object({name: z.string()})
const countRow = z.object({rows: z.coerce.number()})

/**
 * Copies what has been stored into a new `history.duckdb`, checks it and swaps it in; the one before is kept.
 * The copy is made by SQL: reading the live file would drop this process's lock on it.
 */
export async function refreshHistory(db: Database, folder: DataFolder): Promise<void> {
  const temporary = `${folder.history}.tmp`
  for (const leftover of [temporary, `${temporary}.wal`]) rmSync(leftover, {force: true})
  await db.run('checkpoint warehouse')
  await db.run(`attach ${quoteLiteral(temporary)} as history_copy`)
  try {
    await db.run('copy from database warehouse to history_copy (schema)')
    const tables = await db.all(
      tableRow,
      `select schema_name || '.' || table_name as name from duckdb_tables()
       where database_name = 'warehouse' and table_name not like 'staged_%' and table_name <> 'page' order by 1`,
    )
    for (const {name} of tables) {
      await db.run(`insert into history_copy.${name} select * from warehouse.${name}`)
      await requireSameRows(db, name)
    }
    await db.run('checkpoint history_copy')
  } finally {
    await db.run('detach history_copy')
  }
  if (existsSync(folder.history)) {
    rmSync(`${folder.previousHistory}.tmp`, {force: true})
    linkSync(folder.history, `${folder.previousHistory}.tmp`)
    renameSync(`${folder.previousHistory}.tmp`, folder.previousHistory)
  }
  moveIntoPlace(temporary, folder.history)
}

async function requireSameRows(db: Database, table: string): Promise<void> {
  const count = async (catalog: string) =>
    (await db.first(countRow, `select count(*) as rows from ${quoteName(catalog)}.${table}`))?.rows
  const [expected, copied] = [await count('warehouse'), await count('history_copy')]
  if (expected === copied) return
  throw new UnexpectedError({
    code: 'HISTORY_COPY_DIFFERS',
    problem: `Copy of table '${table}' has ${copied} rows: expected ${expected}.`,
    kept: 'The warehouse and the history before are untouched.',
    next: 'Check the disk, then run again.',
  })
}
