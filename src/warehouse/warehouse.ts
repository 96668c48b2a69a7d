import {existsSync, readdirSync, renameSync, rmSync, statSync} from 'node:fs'
import {basename} from 'node:path'
import {setTimeout as delay} from 'node:timers/promises'
import {z} from 'zod'
import {explainError, type LoantapeError, messageOf, newError} from '../errors.ts'
import type {World} from '../types.ts'
import type {DataFolder} from './data-folder.ts'
import {type Database, openDatabase, quoteLiteral, threadsFor} from './database.ts'
import {takeFileLock} from './file-lock.ts'
import {loadMemoryMb} from './memory.ts'
import {migrate} from './migrate.ts'

/** How the warehouse is opened for writing. */
export interface WarehouseConfig {
  /** What the engine may hold; the rest spills into the data folder. */
  memoryMb?: number | undefined
  /** How long it waits for those who read. */
  maxWaitMinutes?: number
}

/** The warehouse, attached for writing as `warehouse` to an engine in memory. */
export interface Warehouse extends Database {
  /**
   * Closes the file as long as `work` takes, so that others may read it; tables in memory stay.
   *
   * @throws LockedError `WAREHOUSE_LOCKED` when others still read it after the longest wait
   */
  closedWhile<T>(work: () => Promise<T>): Promise<T>
}

/** Each takes memory of its own, and more of them gain little: what is settled is copied more than computed. */
const MAX_THREADS = 4

/** Who only reads waits so long for a settle that is under way. */
const MAX_WAIT_MINUTES = 10

/**
 * Opens the warehouse for writing, and brings its tables up to date. Nobody else reads it meanwhile; who reads it already is
 * waited for. A write-ahead log that cannot be replayed is set aside, never deleted: what it held is on the tapes.
 *
 * @throws LockedError `WAREHOUSE_LOCKED` when others have it open after the longest wait
 * @throws UnexpectedError `WAREHOUSE_UNREADABLE` when the file does not open, `WAREHOUSE_MISSING` when it is lost
 */
export async function openWarehouse(
  folder: DataFolder,
  world?: Pick<World, 'log' | 'realClock'>,
  {memoryMb, maxWaitMinutes = MAX_WAIT_MINUTES}: WarehouseConfig = {},
): Promise<Warehouse> {
  requirePresent(folder)
  const db = await openDatabase({threads: 1})
  let lock: Disposable | undefined
  const open = async () => {
    lock = await lockWarehouse(folder, 'write', maxWaitMinutes)
    await attachWarehouse(db, folder, maxWaitMinutes, world)
    await db.run(`set threads = ${await countThreads(db, folder)}`)
  }
  const letGo = async () => {
    // One thread: whoever reads the source works beside it.
    await db.run('checkpoint warehouse; detach warehouse; set threads = 1')
    lock?.[Symbol.dispose]()
    lock = undefined
  }
  const dispose = async () => {
    await db[Symbol.asyncDispose]()
    lock?.[Symbol.dispose]()
  }
  try {
    await open()
    rmSync(folder.spill, {recursive: true, force: true})
    await prepareLoad(db, folder, memoryMb)
  } catch (error) {
    await dispose()
    throw IS_DAMAGED.test(messageOf(error)) ? describeOpenFailure(folder.warehouse, error) : error
  }
  return {
    ...db,
    async closedWhile(work) {
      await letGo()
      try {
        return await work()
      } finally {
        await open()
      }
    },
    [Symbol.asyncDispose]: dispose,
  }
}

/**
 * Makes sure that a data folder's warehouse is not written as long as this is held, or with `write` not read either.
 *
 * @throws LockedError `WAREHOUSE_LOCKED`
 */
export async function lockWarehouse(
  {warehouse, warehouseLock}: DataFolder,
  mode: 'read' | 'write',
  maxWaitMinutes: number = MAX_WAIT_MINUTES,
): Promise<Disposable> {
  const lock = await takeFileLock(warehouseLock, mode, maxWaitMinutes * 60_000)
  if (lock) return lock
  const others = mode === 'write' ? 'reading or writing' : 'writing'
  throw createLocked(`File '${warehouse}': others were ${others} it for ${maxWaitMinutes} minutes.`)
}

/** Sets what the engine may do while it loads, and brings the tables up to date. */
export async function prepareLoad(
  db: Database,
  {spill}: DataFolder,
  memoryMb: number = loadMemoryMb(),
): Promise<void> {
  // To pack texts costs as much as all else of an apply.
  await db.run(
    `set temp_directory = ${quoteLiteral(spill)}; set memory_limit = '${memoryMb}MB';
     set checkpoint_threshold = '1GB'; set disabled_compression_methods = 'fsst'`,
  )
  await migrate(db, 'warehouse')
}

/**
 * Makes sure that a warehouse is there, or never was: a new one in place of one that is lost would begin history anew.
 *
 * @throws UnexpectedError `WAREHOUSE_MISSING`
 */
function requirePresent({warehouse, tapes}: DataFolder): void {
  if (existsSync(warehouse) || !existsSync(tapes)) return
  // What was done to books is no history.
  const names = readdirSync(tapes, {recursive: true, encoding: 'utf8'}).filter((name) =>
    name.endsWith('.zst'),
  )
  if (names.every((name) => basename(name).startsWith('act_'))) return
  throw newError(
    'WAREHOUSE_MISSING',
    `File '${warehouse}' is not there, and '${tapes}' is: expected both, or none in a new data folder.`,
  )
}

/** Whether anything was ever stored here; throws as {@link requirePresent} does. */
export function hasWarehouse(folder: DataFolder): boolean {
  requirePresent(folder)
  return existsSync(folder.warehouse)
}

/** As many threads as what is stored and what is staged keep busy. */
async function countThreads(db: Database, {warehouse}: DataFolder): Promise<number> {
  const {staged} = await db.one(
    z.object({staged: z.coerce.number()}),
    `select coalesce(sum(memory_usage_bytes), 0)::bigint as staged from duckdb_memory() where tag = 'IN_MEMORY_TABLE'`,
  )
  return Math.min(MAX_THREADS, threadsFor(statSync(warehouse).size + staged))
}

/** How often a file is tried that a stranger has open. */
const TRY_MS = 100

async function attachWarehouse(
  db: Database,
  {warehouse}: DataFolder,
  maxWaitMinutes: number,
  world?: Pick<World, 'log' | 'realClock'>,
): Promise<void> {
  const until = performance.now() + maxWaitMinutes * 60_000
  const attach = async (): Promise<void> => {
    try {
      // The newest format is smaller and written faster.
      await db.run(`attach ${quoteLiteral(warehouse)} as warehouse (storage_version 'latest')`)
    } catch (error) {
      if (!IS_LOCKED.test(messageOf(error)) || performance.now() >= until) throw error
      await delay(TRY_MS)
      await attach()
    }
  }
  const log = `${warehouse}.wal`
  try {
    return await attach()
  } catch (error) {
    if (!existsSync(log) || !/replaying WAL/i.test(messageOf(error))) {
      throw describeOpenFailure(warehouse, error)
    }
    const aside = setAside(log, world?.realClock.now() ?? Date.now())
    world?.log.warn({file: aside, reason: messageOf(error)}, 'a damaged write-ahead log was set aside')
  }
  try {
    await attach()
  } catch (error) {
    throw describeOpenFailure(warehouse, error)
  }
}

/** Gives a damaged file another name, so that nothing is lost and nothing trips over it again; returns that name. */
export function setAside(path: string, now: number): string {
  const stamp = new Date(now).toISOString().replace(/[-:]|\.\d+/g, '')
  const aside = `${path}.damaged-${stamp}`
  renameSync(path, aside)
  return aside
}

/** What is thrown where the file does not open. */
export function describeOpenFailure(path: string, error: unknown): Error {
  const words = messageOf(error)
  if (IS_LOCKED.test(words)) {
    const holder = /PID (\d+)/.exec(words)?.[1]
    return createLocked(
      `File '${path}' is open in another process${holder ? ` (pid ${holder})` : ''}.`,
      error,
    )
  }
  const explained = explainError(error)
  if (explained.code === 'TOO_MANY_FILES') return explained
  if (/permission denied|not permitted|read-only/i.test(words)) {
    return newError('WAREHOUSE_NOT_WRITABLE', `File '${path}' may not be written: ${words.split('\n')[0]}.`, {
      cause: error,
    })
  }
  return newError('WAREHOUSE_UNREADABLE', `File '${path}' does not open: ${words.split('\n')[0]}.`, {
    cause: error,
  })
}

/** What the engine says of a file whose blocks it cannot read. */
const IS_DAMAGED = /corrupt|checksum/i
const IS_LOCKED = /could not set lock|conflicting lock/i

function createLocked(problem: string, cause?: unknown): LoantapeError {
  return newError('WAREHOUSE_LOCKED', problem, {cause})
}
