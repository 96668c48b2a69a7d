import {randomUUID} from 'node:crypto'
import {constants, copyFileSync, existsSync, renameSync, rmSync} from 'node:fs'
import {LoantapeError, LockedError, messageOf, UnexpectedError} from '../errors.ts'
import type {World} from '../types.ts'
import type {DataFolder} from './data-folder.ts'
import {type Database, openDatabase, quoteLiteral} from './database.ts'
import {loadMemoryMb} from './memory.ts'
import {listPendingMigrations, migrate} from './migrate.ts'

/**
 * Opens the warehouse for writing, attached as `warehouse`, and brings its tables up to date. A write-ahead log that
 * cannot be replayed is set aside, never deleted: what it held was not acknowledged as released, and is walked again.
 *
 * @param memoryMb what the engine may hold; the rest spills into the data folder
 * @throws LockedError `WAREHOUSE_LOCKED` when another process has it open
 * @throws UnexpectedError `WAREHOUSE_UNREADABLE` when the file does not open, `WAREHOUSE_MISSING` when only its copy is there
 */
export async function openWarehouse(
  folder: DataFolder,
  world?: Pick<World, 'log' | 'realClock'>,
  memoryMb?: number,
): Promise<Database> {
  requirePresent(folder)
  const db = await attachWarehouse(folder, world)
  try {
    rmSync(folder.spill, {recursive: true, force: true})
    await prepareLoad(db, folder, memoryMb)
    return db
  } catch (error) {
    await db[Symbol.asyncDispose]()
    throw error
  }
}

/** Sets what the engine may do while it loads, and brings the tables up to date. */
export async function prepareLoad(
  db: Database,
  {spill}: DataFolder,
  memoryMb: number = loadMemoryMb(),
): Promise<void> {
  // To pack texts costs as much as all else of an apply: only the copy that is read has them packed.
  await db.run(
    `set temp_directory = ${quoteLiteral(spill)}; set memory_limit = '${memoryMb}MB';
     set checkpoint_threshold = '1GB'; set disabled_compression_methods = 'fsst'`,
  )
  await migrate(db, 'warehouse')
}

/**
 * Makes sure that a warehouse is there, or never was: a new one in place of one that is lost would take its copies with
 * it, which follow the warehouse.
 *
 * @throws UnexpectedError `WAREHOUSE_MISSING`
 */
export function requirePresent({warehouse, history, previousHistory}: DataFolder): void {
  const copy = [history, previousHistory].find((file) => existsSync(file))
  if (existsSync(warehouse) || copy === undefined) return
  throw new UnexpectedError({
    code: 'WAREHOUSE_MISSING',
    problem: `File '${warehouse}' is not there, and its copy '${copy}' is: expected both, or none in a new data folder.`,
    kept: 'Nothing was changed.',
    next: 'Run `loantape restore`: it brings back the last good copy, and the next sync walks what came since.',
  })
}

async function attachWarehouse(
  folder: DataFolder,
  world?: Pick<World, 'log' | 'realClock'>,
): Promise<Database> {
  // One thread: the walk works beside it, and what is applied is copied more than computed.
  const options = {attach: [{path: folder.warehouse, alias: 'warehouse'}], threads: 1}
  const log = `${folder.warehouse}.wal`
  try {
    return await openDatabase(options)
  } catch (error) {
    if (!existsSync(log) || !/replaying WAL/i.test(messageOf(error))) {
      throw describeOpenFailure(folder.warehouse, error, WAREHOUSE_NEXT)
    }
    const aside = setAside(log, world?.realClock.now() ?? Date.now())
    world?.log.warn({file: aside, reason: messageOf(error)}, 'a damaged write-ahead log was set aside')
  }
  try {
    return await openDatabase(options)
  } catch (error) {
    throw describeOpenFailure(folder.warehouse, error, WAREHOUSE_NEXT)
  }
}

/** Gives a damaged file another name, so that nothing is lost and nothing trips over it again; returns that name. */
export function setAside(path: string, now: number): string {
  const stamp = new Date(now).toISOString().replace(/[-:]|\.\d+/g, '')
  const aside = `${path}.damaged-${stamp}`
  renameSync(path, aside)
  return aside
}

/** What to do about a copy of the warehouse that is damaged. */
export const HISTORY_NEXT =
  'Remove history.duckdb and run `loantape sync`, which copies it from the warehouse anew.'

/**
 * Opens the last good copy of the warehouse, attached read-only as `history`. One that an earlier version wrote is read
 * through a copy brought up to date; the next sync renews the file itself.
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
  const open = (path: string) => openReadable(path, options)
  try {
    return (await open(folder.history)) ?? (await withMigratedCopy(folder.history, open))
  } catch (error) {
    throw error instanceof LoantapeError ? error : describeOpenFailure(folder.history, error, HISTORY_NEXT)
  }
}

/** The database attached as `history`; undefined when it has not had every migration. */
async function openReadable(
  path: string,
  options: {attach?: {path: string; alias: string}[]; searchPath?: string; threads?: number},
): Promise<Database | undefined> {
  const attach = [{path, alias: 'history', readOnly: true}, ...(options.attach ?? [])]
  const db = await openDatabase({...options, attach})
  let isReadable = false
  try {
    isReadable = (await listPendingMigrations(db, 'history')).length === 0
  } finally {
    if (!isReadable) await db[Symbol.asyncDispose]()
  }
  return isReadable ? db : undefined
}

/** Opens a copy that has had every migration; the file itself may be swapped by a sync meanwhile. */
async function withMigratedCopy(
  path: string,
  open: (path: string) => Promise<Database | undefined>,
): Promise<Database> {
  const copy = `${path}.migrated-${randomUUID()}`
  try {
    await migrateCopy(path, copy)
    const db = await open(copy)
    if (!db) throw new Error('a migrated copy lacks migrations')
    return db
  } finally {
    // An open file lives on without its name: the copy is gone when it is closed, however that comes.
    for (const file of [copy, `${copy}.wal`]) rmSync(file, {force: true})
  }
}

async function migrateCopy(path: string, copy: string): Promise<void> {
  copyFileSync(path, copy, constants.COPYFILE_FICLONE)
  await using db = await openDatabase({attach: [{path: copy, alias: 'history'}]})
  await migrate(db, 'history')
}

const WAREHOUSE_NEXT =
  'Run `loantape rebuild --apply`: it computes the warehouse anew from the tapes and sets this file aside. Where tapes are missing, `loantape restore` brings back the last good copy.'

function describeOpenFailure(path: string, error: unknown, next: string): Error {
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
    next,
    cause: error,
  })
}
