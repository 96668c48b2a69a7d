import {createHmac, hash} from 'node:crypto'
import {constants, existsSync, lstatSync, readFileSync, renameSync, rmSync, statSync} from 'node:fs'
import {copyFile} from 'node:fs/promises'
import {basename, join} from 'node:path'
import {z} from 'zod'
import type {Config} from '../core/config.ts'
import {closeWords, findMachineFault, LoantapeError, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {DataFolder} from './data-folder.ts'
import {
  type Database,
  inTransaction,
  loadMemoryMb,
  openDatabase,
  quoteLiteral,
  threadsFor,
} from './database.ts'
import {isFile, listFilesBelow, takeFileLock, writeNewKey} from './files.ts'
import {isOfActs} from './recorded.ts'
import {listFiles} from './sql.ts'

/** More threads need more memory and gain little: settling copies more than it computes. */
const MAX_THREADS = 4

const MAX_WAIT_MINUTES = 10

/** What waiting for others takes: it is logged, and ends when the process is asked to stop. */
type Waiting = Pick<World, 'log' | 'realClock' | 'signal'>

/** Attached for writing as `history` to an in-memory engine. */
export type Warehouse = Awaited<ReturnType<typeof openWarehouse>>

/**
 * Opens the warehouse for writing and brings its tables up to date. Waits for readers, and keeps others out. A write-ahead log
 * that cannot be replayed is set aside, never deleted: its content is on the tapes.
 * @throws LockedError `WAREHOUSE_LOCKED` if others read it after the longest wait, or another program has it open; DeferredError
 *   `INTERRUPTED`; UnexpectedError `WAREHOUSE_UNREADABLE` if the file does not open, `WAREHOUSE_MISSING` if it is lost
 */
export async function openWarehouse(
  folder: DataFolder,
  world: Waiting,
  {memoryMb, maxWaitMinutes = MAX_WAIT_MINUTES}: Partial<Pick<Config, 'memoryMb' | 'maxWaitMinutes'>> = {},
) {
  // Throws if the warehouse is lost; a new folder has none yet.
  hasWarehouse(folder)
  const db = await openDatabase({threads: 1})
  let lock: Disposable | undefined
  const open = async () => {
    lock = await lockWarehouse(folder, 'write', world, maxWaitMinutes)
    await attachWarehouse(db, folder, world)
    // Each time: meanwhile another version may have changed the tables.
    await migrate(db, 'history')
    await db.run(`set threads = ${await countThreads(db, folder)}`)
  }
  const letGo = async () => {
    // One thread: meanwhile the source is being read.
    await db.run('checkpoint history; detach history; set threads = 1')
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
    throw isDamage(error) ? describeOpenFailure(folder.warehouse, error) : error
  }
  return {
    ...db,
    /** Closes the file, so that others may read it; tables in memory stay. @throws LockedError `WAREHOUSE_LOCKED` */
    async closedWhile<T>(work: () => Promise<T>): Promise<T> {
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

const TELL_MS = 3_000

/**
 * Keeps others from writing and, with `write`, from reading.
 * @throws LockedError `WAREHOUSE_LOCKED`; DeferredError `INTERRUPTED` if asked to stop while waiting
 */
export async function lockWarehouse(
  {warehouse, warehouseLock}: DataFolder,
  mode: 'read' | 'write',
  world: Waiting,
  maxWaitMinutes: number = MAX_WAIT_MINUTES,
): Promise<Disposable> {
  const others = mode === 'write' ? 'reading or writing' : 'writing'
  const tell = () => world.log.warn({file: warehouse}, `waiting for others who are ${others} the warehouse`)
  const telling = setTimeout(tell, TELL_MS)
  const taking = takeFileLock(warehouseLock, mode, maxWaitMinutes * 60_000, world.signal)
  const lock = await taking.finally(() => clearTimeout(telling))
  if (lock) return lock
  if (world.signal.aborted)
    throw newError('INTERRUPTED', `Asked to stop while others were ${others} file '${warehouse}'.`, {
      next: 'Run it again.',
    })
  throw newError(
    'WAREHOUSE_LOCKED',
    `File '${warehouse}': others were ${others} it for ${maxWaitMinutes} minutes.`,
  )
}

export async function prepareLoad(
  db: Database,
  {spill}: DataFolder,
  memoryMb: number = loadMemoryMb(),
): Promise<void> {
  // Compressing texts would take as long as everything else in an apply.
  await db.run(
    `set temp_directory = ${quoteLiteral(spill)}; set memory_limit = '${memoryMb}MB';
     set checkpoint_threshold = '1GB'; set disabled_compression_methods = 'fsst'`,
  )
}

/** @throws UnexpectedError `WAREHOUSE_MISSING` if there are tapes but no warehouse: a new one would start history over */
export function hasWarehouse({warehouse, tapes}: DataFolder): boolean {
  if (existsSync(warehouse)) return true
  // Tapes of acts do not count, since acts are not history.
  const names = listFilesBelow(tapes).map((path) => basename(path))
  if (!names.some((name) => name.endsWith('.zst') && !isOfActs(name))) return false
  throw newError(
    'WAREHOUSE_MISSING',
    `File '${warehouse}' is missing, although '${tapes}' exists: expected both, or neither in a new data folder.`,
  )
}

async function countThreads(db: Database, {warehouse}: DataFolder): Promise<number> {
  const staged = await db.value(
    z.coerce.number(),
    `select coalesce(sum(memory_usage_bytes), 0)::bigint from duckdb_memory() where tag = 'IN_MEMORY_TABLE'`,
  )
  return Math.min(MAX_THREADS, threadsFor(statSync(warehouse).size + staged))
}

async function attachWarehouse(db: Database, {warehouse}: DataFolder, world: Waiting): Promise<void> {
  const log = `${warehouse}.wal`
  // The newest format is smaller and faster to write.
  const attach = () => db.run(`attach ${quoteLiteral(warehouse)} as history (storage_version 'latest')`)
  const withoutLog = (error: unknown) => {
    const reason = messageOf(error)
    if (!/replaying WAL/i.test(reason) || !existsSync(log)) throw error
    const aside = setAside(log, world.realClock.now())
    world.log.warn({file: aside, reason}, 'a damaged write-ahead log was set aside')
    return attach()
  }
  await attach()
    .catch(withoutLog)
    .catch((error: unknown) => {
      throw describeOpenFailure(warehouse, error)
    })
}

/** Renames a file, so that it is kept but no longer used. */
export function setAside(
  path: string,
  now: number,
  how: 'damaged' | 'before-rebuild' = 'damaged',
  move: (path: string, other: string) => void = renameSync,
): string {
  const stamp = new Date(now).toISOString().replace(/[-:.]/g, '')
  const aside = `${path}.${how}-${stamp}`
  move(path, aside)
  return aside
}

function describeOpenFailure(path: string, error: unknown): Error {
  const words = messageOf(error)
  if (IS_LOCKED.test(words)) {
    const holder = /PID (\d+)/.exec(words)?.[1]
    const problem = `File '${path}' is open in another process${holder ? ` (pid ${holder})` : ''}.`
    return newError('WAREHOUSE_LOCKED', problem, {cause: error})
  }
  const fault = findMachineFault(error)
  if (fault) return fault
  if (error instanceof LoantapeError) return error
  if (IS_NEWER.test(words))
    return newError('DATA_NEWER', `File '${path}' was written by a later engine: ${words.split('\n')[0]}`, {
      cause: error,
    })
  const [code, what] = /permission denied|not permitted|read-only/i.test(words)
    ? (['NOT_WRITABLE', 'may not be written'] as const)
    : (['WAREHOUSE_UNREADABLE', 'does not open'] as const)
  return newError(code, `File '${path}' ${what}: ${closeWords(words.split('\n')[0] ?? '')}`, {cause: error})
}

export const isDamage = (error: unknown) =>
  error instanceof LoantapeError
    ? error.code === 'WAREHOUSE_UNREADABLE'
    : /corrupt|checksum|fatal/i.test(messageOf(error))

/** What the engine says of a file of a later one, which it would otherwise call unreadable. */
const IS_NEWER = /newer version of DuckDB|storage version of an existing database/i
const IS_LOCKED = /could not set lock|conflicting lock/i

export const MIGRATIONS_DIR = join(import.meta.dirname, '../../sql/migrations')

const migrationRow = z.object({name: z.string(), sha256: z.string()})

export const listRawTables = (db: Database): Promise<string[]> =>
  db.column(
    z.string(),
    `select table_name from duckdb_tables()
     where database_name = 'history' and schema_name = 'raw' order by table_name`,
  )

/** Runs each new file of `dir` once, in order, in a transaction of its own. */
export async function migrate(db: Database, catalog: string, dir?: string): Promise<void> {
  await db.run(
    `create table if not exists ${catalog}.main.migration (name varchar not null, sha256 varchar not null)`,
  )
  const pending = await listPendingMigrations(db, catalog, dir)
  for (const {name, sql, sha256} of pending) {
    await db.run(`use ${catalog}.main`)
    await inTransaction(db, async () => {
      await db.run(sql)
      await db.run(`insert into ${catalog}.main.migration values ($1, $2)`, [name, sha256])
    })
    await db.run('use memory.main')
  }
  if (pending.length > 0) await db.run(`checkpoint ${catalog}`)
}

async function listPendingMigrations(db: Database, catalog: string, dir: string = MIGRATIONS_DIR) {
  const stored = db.all(migrationRow, `select name, sha256 from ${catalog}.main.migration order by name`)
  const applied = await stored.catch(async (error: unknown) => {
    const tables = await db.all(z.unknown(), 'from duckdb_tables() where database_name = $1', [catalog])
    // A run that failed while creating the file leaves no tables.
    if (tables.length === 0) return []
    throw error
  })
  const files = listFiles(dir, '.sql').map((file) => {
    const sql = readFileSync(file, 'utf8')
    return {name: basename(file), sql, sha256: hash('sha256', sql)}
  })
  const known = new Map(files.map((migration) => [migration.name, migration]))
  for (const {name, sha256} of applied) {
    const migration = known.get(name)
    if (!migration)
      throw newError(
        'DATA_NEWER',
        `Migration '${name}' in the warehouse: this version of loantape does not know it.`,
      )
    if (migration.sha256 !== sha256)
      throw newError(
        'MIGRATION_CHANGED',
        `Migration '${name}' in the warehouse: expected the file it was made with; this installation's has another sha256.`,
        {
          next: `Bring back sql/migrations/${name} as it was released; what has to change goes into the next migration.`,
        },
      )
    known.delete(name)
  }
  return [...known.values()]
}

/** `hash_key` is the fingerprint of the key, `tape_head` the chain of the last unit. */
type SettingName = 'hash_key' | 'folder_id' | 'tape_head'

const settingRow = z.object({name: z.string(), value: z.string()})

export async function readSettings(db: Database): Promise<Partial<Record<SettingName, string>>> {
  const rows = await db.all(settingRow, `select name, value from history.raw.setting`)
  return Object.fromEntries(rows.map(({name, value}) => [name, value]))
}

/** Skips undefined and null. */
export async function writeSettings(
  db: Database,
  settings: Partial<Record<SettingName, string | null | undefined>>,
): Promise<void> {
  const given = Object.entries(settings).flatMap(([name, value]) => (value == null ? [] : [{name, value}]))
  await db.run(
    `merge into history.raw.setting as setting
     using (select unnest(from_json($1, '[{"name":"varchar","value":"varchar"}]'), max_depth := 2)) as given
     on setting.name = given.name
     when matched and setting.value <> given.value then update set value = given.value
     when not matched then insert (name, value) values (given.name, given.value)`,
    [JSON.stringify(given)],
  )
}

/** Made at first use. Under another key, one person would become two. @throws ConfigError `HASH_KEY_CHANGED`, `NOT_WRITABLE` */
export async function requireHashKey(db: Database, folder: DataFolder): Promise<string> {
  const {hash_key: pinned} = await readSettings(db)
  const own = (isFile(folder.hashKey) && readFileSync(folder.hashKey, 'utf8').trim()) || undefined
  if (own === undefined && pinned === undefined && lstatSync(folder.hashKey, {throwIfNoEntry: false}))
    throw newError('NOT_WRITABLE', `Key of hashed e-mail addresses '${folder.hashKey}': it holds no key.`, {
      next: 'Move away what is in its place, then run again.',
    })
  const key = own ?? (pinned === undefined ? writeNewKey(folder.hashKey).toString('hex') : '')
  const fingerprint = createHmac('sha256', key).update('loantape').digest('hex').slice(0, 16)
  if (pinned === undefined) await writeSettings(db, {hash_key: fingerprint})
  if (pinned === undefined || pinned === fingerprint) return key
  const found = own === undefined ? 'it is missing' : 'it is another one'
  throw newError(
    'HASH_KEY_CHANGED',
    `Key of hashed e-mail addresses '${folder.hashKey}': ${found}: expected the key that those of this data folder were hashed with.`,
  )
}

/**
 * Opens the warehouse for reading, attached as `history`; keeps writers out. Brings the tables up to date first.
 * @throws ConfigError `RELEASE_NONE` if nothing was ever stored
 */
export async function openHistory(folder: DataFolder, world: Waiting): Promise<Database> {
  const history = await openHistoryAsItIs(folder, world)
  if (history.pending.length === 0) return history
  await history[Symbol.asyncDispose]()
  await (await openWarehouse(folder, world))[Symbol.asyncDispose]()
  return openHistory(folder, world)
}

/** Changes nothing; `pending` names the migrations that the warehouse lacks. */
export async function openHistoryAsItIs(folder: DataFolder, world: Waiting) {
  if (!hasWarehouse(folder))
    throw newError('RELEASE_NONE', `No history in '${folder.root}': no walk has been completed there yet.`)
  await using opening = new AsyncDisposableStack()
  opening.use(await lockWarehouse(folder, 'read', world))
  try {
    const attach = [{path: folder.warehouse, alias: 'history', readOnly: true}]
    const db = opening.use(await openDatabase({attach, isReader: true}))
    const pending = (await listPendingMigrations(db, 'history')).map(({name}) => name)
    const opened = opening.move()
    return {...db, pending, [Symbol.asyncDispose]: () => opened.disposeAsync()}
  } catch (error) {
    throw describeOpenFailure(folder.warehouse, error)
  }
}

/** Copies the file of a warehouse that is open for reading, with its write-ahead log. */
export async function copyHistory({warehouse}: DataFolder, copy: string): Promise<void> {
  for (const end of ['', '.wal']) {
    if (existsSync(`${warehouse}${end}`))
      await copyFile(`${warehouse}${end}`, `${copy}${end}`, constants.COPYFILE_FICLONE)
  }
}
