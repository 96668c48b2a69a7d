import {constants, existsSync} from 'node:fs'
import {copyFile} from 'node:fs/promises'
import {LoantapeError, newError} from '../errors.ts'
import type {DataFolder} from './data-folder.ts'
import {type Database, type DatabaseOptions, openDatabase} from './database.ts'
import {listPendingMigrations} from './migrate.ts'
import {describeOpenFailure, hasWarehouse, lockWarehouse, openWarehouse} from './warehouse.ts'

/**
 * Opens the warehouse for reading, attached as `history`; nobody writes it meanwhile. Its tables are brought up to date first.
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
  await using opening = new AsyncDisposableStack()
  opening.use(await lockWarehouse(folder, 'read'))
  try {
    const db = opening.use(await openHistoryFile(folder.warehouse, options))
    if ((await listPendingMigrations(db, 'history')).length === 0) {
      const opened = opening.move()
      return {...db, [Symbol.asyncDispose]: () => opened.disposeAsync()}
    }
  } catch (error) {
    throw error instanceof LoantapeError ? error : describeOpenFailure(folder.warehouse, error)
  }
  await opening.disposeAsync()
  await (await openWarehouse(folder))[Symbol.asyncDispose]()
  return openHistory(folder, options)
}

/** Opens the file of a warehouse, or a copy of it, attached as `history`. */
export function openHistoryFile(
  path: string,
  options: Pick<DatabaseOptions, 'searchPath' | 'lanes'> = {},
): Promise<Database> {
  return openDatabase({...options, attach: [{path, alias: 'history', readOnly: true}]})
}

/** Copies the file of a warehouse that is open for reading, and what a run that died left in its write-ahead log. */
export async function copyHistory({warehouse}: DataFolder, copy: string): Promise<void> {
  for (const end of ['', '.wal']) {
    if (existsSync(`${warehouse}${end}`)) {
      await copyFile(`${warehouse}${end}`, `${copy}${end}`, constants.COPYFILE_FICLONE)
    }
  }
}
