import {constants, copyFileSync, existsSync, linkSync, renameSync, rmSync} from 'node:fs'
import {z} from 'zod'
import {UnexpectedError} from '../errors.ts'
import {moveIntoPlace} from './atomic-file.ts'
import type {DataFolder} from './data-folder.ts'
import {type Database, quoteLiteral} from './database.ts'

/** Warehouses beside whose copy the one before lies: a run, which opens one, refreshes for each stream. */
const keptBefore = new WeakSet<Database>()

/**
 * Brings `history.duckdb`, the read-only copy of what was observed, up to the warehouse, checks it and swaps it in; the
 * one from before the run is kept. Only what was appended since is copied, into a copy of that file. The warehouse
 * itself is read by SQL: reading the live file would drop this process's lock on it.
 *
 * @throws UnexpectedError `HISTORY_COPY_DIFFERS`
 */
export async function refreshHistory(db: Database, folder: DataFolder): Promise<void> {
  const temporary = `${folder.history}.tmp`
  await db.run('checkpoint warehouse')
  await writeCopy(db, folder.history, temporary)
  if (existsSync(folder.history) && !keptBefore.has(db)) {
    rmSync(`${folder.previousHistory}.tmp`, {force: true})
    linkSync(folder.history, `${folder.previousHistory}.tmp`)
    renameSync(`${folder.previousHistory}.tmp`, folder.previousHistory)
  }
  keptBefore.add(db)
  moveIntoPlace(temporary, folder.history)
}

async function writeCopy(db: Database, history: string, temporary: string): Promise<void> {
  const isExtended = existsSync(history) && (await extendCopy(db, history, temporary))
  if (isExtended) return
  removeDatabase(temporary)
  const difference = await withCopy(db, temporary, () => copyWhole(db))
  if (difference === null) return
  throw new UnexpectedError({
    code: 'HISTORY_COPY_DIFFERS',
    problem: `Copy of table '${difference}' is not what the warehouse holds.`,
    kept: 'The warehouse and the history before are untouched.',
    next: 'Check the disk, then run again.',
  })
}

function removeDatabase(path: string): void {
  for (const file of [path, `${path}.wal`]) rmSync(file, {force: true})
}

/** Whether the copy before could be extended; not so when it is damaged, of another form, or ahead of the warehouse. */
async function extendCopy(db: Database, history: string, temporary: string): Promise<boolean> {
  removeDatabase(temporary)
  copyFileSync(history, temporary, constants.COPYFILE_FICLONE)
  try {
    return (await withCopy(db, temporary, () => copyNew(db))) === null
  } catch (error) {
    if (/corrupt|catalog error|binder error|not a valid duckdb|could not read/i.test(String(error)))
      return false
    throw error
  }
}

/** Attaches the copy while `copy` fills it, and compares it with the warehouse; returns a table that differs, or null. */
async function withCopy(db: Database, path: string, copy: () => Promise<void>): Promise<string | null> {
  // A copy that is not swapped in is thrown away: no log is needed to recover it.
  await db.run(`attach ${quoteLiteral(path)} as history_copy (recovery_mode no_wal_writes)`)
  await db.run(`set disabled_compression_methods = ''`)
  try {
    await copy()
    const difference = await findDifference(db)
    await db.run('checkpoint history_copy')
    return difference
  } finally {
    await db.run(`detach history_copy; set disabled_compression_methods = 'fsst'`)
  }
}

const tableRow = z.object({name: z.string()})

/** Which tables are history, as a condition in SQL: the latest states are the warehouse's own. */
export const IS_HISTORY = `table_name not like '%\\_head' escape '\\'`

async function listCopiedTables(db: Database): Promise<string[]> {
  const rows = await db.all(
    tableRow,
    `select schema_name || '.' || table_name as name from duckdb_tables()
     where database_name = 'warehouse' and ${IS_HISTORY}
     order by name`,
  )
  return rows.map(({name}) => name)
}

function isAppendOnly(table: string): boolean {
  return /_(version|confirmation)$/.test(table) || table === 'raw.rate' || table === 'raw.settle'
}

async function copyWhole(db: Database): Promise<void> {
  await db.run('copy from database warehouse to history_copy (schema)')
  for (const name of await listCopiedTables(db)) {
    await db.run(`insert into history_copy.${name} from warehouse.${name}`)
  }
}

async function copyNew(db: Database): Promise<void> {
  for (const name of await listCopiedTables(db)) {
    if (isAppendOnly(name)) {
      await db.run(
        `insert into history_copy.${name} from warehouse.${name}
         where seq > (select coalesce(max(seq), 0) from history_copy.${name})`,
      )
    } else {
      await db.run(`delete from history_copy.${name}`)
      await db.run(`insert into history_copy.${name} from warehouse.${name}`)
    }
  }
}

const differenceRow = z.object({is_equal: z.boolean()})

async function findDifference(db: Database): Promise<string | null> {
  for (const name of await listCopiedTables(db)) {
    const digest = 'count(*) as rows, bit_xor(hash(t)) as digest'
    const {is_equal} = await db.one(
      differenceRow,
      `select (select (rows, digest) from (select ${digest} from warehouse.${name} t))
         is not distinct from (select (rows, digest) from (select ${digest} from history_copy.${name} t)) as is_equal`,
    )
    if (!is_equal) return name
  }
  return null
}
