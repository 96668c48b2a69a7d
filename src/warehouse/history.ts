import {randomUUID} from 'node:crypto'
import {constants, existsSync, rmSync} from 'node:fs'
import {copyFile} from 'node:fs/promises'
import {LoantapeError, newError} from '../errors.ts'
import type {DataFolder} from './data-folder.ts'
import {type Database, type DatabaseOptions, openDatabase} from './database.ts'
import {listPendingMigrations, migrate} from './migrate.ts'
import {describeOpenFailure, hasWarehouse, lockWarehouse} from './warehouse.ts'

/**
 * Opens the warehouse for reading, attached as `history`; nobody writes it meanwhile. One that an earlier version wrote is read
 * through a copy brought up to date; the next sync renews the file itself.
 *
 * @throws UnexpectedError `HISTORY_MISSING` when nothing was ever stored
 */
export async function openHistory(
  folder: DataFolder,
  options: Pick<DatabaseOptions, 'searchPath'> = {},
): Promise<Database> {
  if (!hasWarehouse(folder)) {
    throw newError('HISTORY_MISSING', `No history in '${folder.root}': no walk has been completed there yet.`)
  }
  const lock = await lockWarehouse(folder, 'read')
  try {
    const db = (await openReadable(folder.warehouse, options)) ?? (await openNamelessCopy(folder, options))
    return {
      ...db,
      async [Symbol.asyncDispose]() {
        await db[Symbol.asyncDispose]()
        lock[Symbol.dispose]()
      },
    }
  } catch (error) {
    lock[Symbol.dispose]()
    throw error instanceof LoantapeError ? error : describeOpenFailure(folder.warehouse, error)
  }
}

/** The database attached as `history`; undefined when it has not had every migration. */
async function openReadable(
  path: string,
  options: Pick<DatabaseOptions, 'searchPath' | 'lanes'>,
): Promise<Database | undefined> {
  const db = await openDatabase({...options, attach: [{path, alias: 'history', readOnly: true}]})
  let isReadable = false
  try {
    isReadable = (await listPendingMigrations(db, 'history')).length === 0
  } finally {
    if (!isReadable) await db[Symbol.asyncDispose]()
  }
  return isReadable ? db : undefined
}

/** Opens a copy that has had every migration; it is gone when it is closed, however that comes. */
async function openNamelessCopy(
  folder: DataFolder,
  options: Pick<DatabaseOptions, 'searchPath'>,
): Promise<Database> {
  const copy = `${folder.warehouse}.migrated-${randomUUID()}`
  try {
    await copyHistory(folder, copy)
    return await openHistoryCopy(copy, options)
  } finally {
    // An open file lives on without its name.
    for (const file of [copy, `${copy}.wal`]) rmSync(file, {force: true})
  }
}

/** Copies the file of a warehouse that is open for reading, and what a run that died left in its write-ahead log. */
export async function copyHistory({warehouse}: DataFolder, copy: string): Promise<void> {
  for (const end of ['', '.wal']) {
    if (existsSync(`${warehouse}${end}`)) {
      await copyFile(`${warehouse}${end}`, `${copy}${end}`, constants.COPYFILE_FICLONE)
    }
  }
}

/** Opens such a copy, attached as `history`; one that lacks migrations is brought up to date first. */
export async function openHistoryCopy(
  path: string,
  options: Pick<DatabaseOptions, 'searchPath' | 'lanes'> = {},
): Promise<Database> {
  const readable = await openReadable(path, options)
  if (readable) return readable
  {
    await using db = await openDatabase({attach: [{path, alias: 'history'}]})
    await migrate(db, 'history')
  }
  const migrated = await openReadable(path, options)
  if (migrated) return migrated
  throw new Error('a migrated copy lacks migrations')
}
