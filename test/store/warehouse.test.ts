import {spawn} from 'node:child_process'
import {once} from 'node:events'
import {existsSync, mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {type Database, openDatabase} from '../../src/store/database.ts'
import {
  MIGRATIONS_DIR,
  migrate,
  openHistory,
  openWarehouse,
  readSettings,
  writeSettings,
} from '../../src/store/warehouse.ts'
import {anyRow, createWorld} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {useFolder} from '../support/set-up.ts'
import {until} from '../support/until.ts'

const data = useFolder()

const MIGRATIONS = readdirSync(MIGRATIONS_DIR)
  .filter((name) => name.endsWith('.sql'))
  .sort()

const listMigrations = (db: Database) =>
  db.column(z.string(), 'select name from history.main.migration order by rowid')

/** Writes a folder of migrations, as a later version may have it. */
function writeMigrations(sql: string): string {
  const dir = join(data.folder.root, 'migrations')
  mkdirSync(dir, {recursive: true})
  for (const name of MIGRATIONS) writeFileSync(join(dir, name), readFileSync(join(MIGRATIONS_DIR, name)))
  writeFileSync(join(dir, '0002_since.sql'), sql)
  return dir
}

test('a new warehouse has every migration; a later one is applied once, and stored data stays; a failed one changes nothing', async () => {
  await using db = await openWarehouse(data.folder, createWorld())
  await writeSettings(db, {hash_key: 'top level'})
  expect(await listMigrations(db)).toEqual(MIGRATIONS)
  const failing = writeMigrations('create table raw.more (value integer); from nowhere')
  await expect(migrate(db, 'history', failing)).rejects.toThrow('nowhere')
  await expect(db.run('from history.raw.more')).rejects.toThrow('more')
  expect(await listMigrations(db)).toEqual(MIGRATIONS)
  const dir = writeMigrations("alter table raw.setting add column since varchar default 'ever'")
  for (let time = 0; time < 2; time += 1) await migrate(db, 'history', dir)
  expect(await db.all(anyRow, 'from history.raw.setting')).toEqual([
    {name: 'hash_key', value: 'top level', since: 'ever'},
  ])
  expect(await listMigrations(db)).toEqual([...MIGRATIONS, '0002_since.sql'])
})

const changeBy = (sql: string) => async (path: string) => {
  await (await openWarehouse(data.folder, createWorld()))[Symbol.asyncDispose]()
  await using db = await openDatabase({attach: [{path, alias: 'history'}]})
  await db.run(sql)
}

test.each<[string, (path: string) => Promise<void> | void, string, string]>([
  [
    'of a later version',
    changeBy(`insert into history.main.migration values ('9999_later.sql', '')`),
    'DATA_NEWER',
    '9999_later.sql',
  ],
  [
    'of a later engine',
    async (path) => {
      await changeBy('select 1')(path)
      const file = readFileSync(path)
      const header = new BigUint64Array(file.buffer.slice(file.byteOffset, file.byteOffset + 4096))
      // Its second word begins with the letters DUCK and the version of the format; the first is the checksum of the others.
      header[1] = (header[1]! & 0xffffffffn) | (99n << 32n)
      header[0] = header
        .slice(1)
        .reduce((sum, word) => sum ^ ((word * 0xbf58476d1ce4e5b9n) & (2n ** 64n - 1n)), 5381n)
      file.set(new Uint8Array(header.buffer))
      writeFileSync(path, file)
    },
    'DATA_NEWER',
    'version number 99',
  ],
  [
    'whose migration was another file',
    changeBy(`update history.main.migration set sha256 = 'of another file'`),
    'MIGRATION_CHANGED',
    'sql/migrations/0001_warehouse.sql',
  ],
  [
    'that is no database',
    (path) => writeFileSync(path, 'something else entirely\n'.repeat(1000)),
    'WAREHOUSE_UNREADABLE',
    'warehouse.duckdb',
  ],
  [
    'that is cut short',
    async (path) => {
      await changeBy('select 1')(path)
      truncateSync(path, 10_000)
    },
    'WAREHOUSE_UNREADABLE',
    'warehouse.duckdb',
  ],
])('a warehouse %s is refused and left as it is', async (_, damage, code, words) => {
  await damage(data.folder.warehouse)
  const before = readFileSync(data.folder.warehouse)
  for (const open of [openWarehouse, openHistory]) {
    const refusal = await failureOf(open(data.folder, createWorld()))
    expect(refusal).toMatchObject({code, exitCode: 1, message: expect.stringContaining(words)})
  }
  expect(readFileSync(data.folder.warehouse).equals(before)).toBe(true)
})

/** Creates these tables in a database file, beside those of the warehouse, if any. */
async function writeDatabase(sql: string): Promise<void> {
  await using db = await openDatabase({attach: [{path: data.folder.warehouse, alias: 'history'}]})
  await db.run(sql)
}

test('before the first walk and of another database no history is read, and the reader says what to do', async () => {
  const missing = await failureOf(openHistory(data.folder, createWorld()))
  expect(missing).toMatchObject({code: 'RELEASE_NONE', message: expect.stringContaining('loantape sync')})
  expect(existsSync(data.folder.warehouse)).toBe(false)
  await writeDatabase('create table history.main.thesis as select 1 as year')
  expect(await failureOf(openHistory(data.folder, createWorld()))).toMatchObject({
    code: 'WAREHOUSE_UNREADABLE',
  })
})

test('a history that lacks migrations gets them before it is read, and keeps its data', async () => {
  await writeDatabase(`create table history.main.migration (name varchar not null, sha256 varchar not null);
    create table history.main.kept as select 7 as value`)
  await using history = await openHistory(data.folder, createWorld())
  const deals = 'select count(*) as deals from history.raw.deal_version'
  expect(await history.all(anyRow, deals)).toEqual([{deals: '0'}])
  expect(await history.all(anyRow, 'from history.main.kept')).toEqual([{value: 7}])
})

const HASH_KEY = `select value from history.raw.setting where name = 'hash_key'`

test('while the source is asked, many can read the history at once, and the stage stays', async () => {
  await using db = await openWarehouse(data.folder, createWorld())
  await writeSettings(db, {hash_key: 'first'})
  await db.run('create temp table staged as select 7 as value')
  await db.closedWhile(async () => {
    await using one = await openHistory(data.folder, createWorld())
    await using other = await openHistory(data.folder, createWorld())
    for (const reader of [one, other]) {
      expect(await reader.all(anyRow, HASH_KEY)).toEqual([{value: 'first'}])
      await expect(reader.run('delete from history.raw.setting')).rejects.toThrow(/read-only/)
    }
    await db.run('insert into staged values (8)')
  })
  await writeSettings(db, {hash_key: 'second'})
  expect(await db.all(anyRow, 'from staged')).toEqual([{value: 7}, {value: 8}])
})

test('a run that let go of the warehouse is refused once a later version has changed its tables meanwhile', async () => {
  await using db = await openWarehouse(data.folder, createWorld())
  const letGo = db.closedWhile(async () => {
    await using other = await openDatabase({attach: [{path: data.folder.warehouse, alias: 'history'}]})
    await migrate(other, 'history', writeMigrations('alter table raw.walk add column since varchar'))
  })
  expect(await failureOf(letGo)).toMatchObject({code: 'DATA_NEWER'})
})

function isHeld(path: string): boolean {
  const db = new DatabaseSync(path, {timeout: 0})
  try {
    db.exec('begin exclusive')
    return false
  } catch {
    return true
  } finally {
    db.close()
  }
}

test('a writer waits for current readers and blocks new ones, who then read what was written', async () => {
  const told: string[] = []
  {
    await using db = await openWarehouse(data.folder, createWorld())
    await writeSettings(db, {hash_key: 'first'})
  }
  const reader = await openHistory(data.folder, createWorld())
  const writing = openWarehouse(data.folder, createWorld()).then(async (db) => {
    told.push('writes')
    await writeSettings(db, {hash_key: 'second'})
    await db[Symbol.asyncDispose]()
  })
  await until(() => isHeld(`${data.folder.warehouseLock}.gate`))
  const later = openHistory(data.folder, createWorld()).then(async (db) => {
    told.push('reads')
    const rows = await db.all(anyRow, HASH_KEY)
    await db[Symbol.asyncDispose]()
    return rows
  })
  expect(told).toEqual([])
  await reader[Symbol.asyncDispose]()
  expect(await later).toEqual([{value: 'second'}])
  await writing
  expect(told).toEqual(['writes', 'reads'])
})

const refusedAtOnce = async () =>
  failureOf(openWarehouse(data.folder, createWorld(), {maxWaitMinutes: 0.001}))

const DATABASE_MODULE = join(import.meta.dirname, '../../src/store/database.ts')

/** Opens a file for writing, prints a word, and holds the file until the process is ended. */
const HOLD_FILE = `
  const {openDatabase} = await import(${JSON.stringify(DATABASE_MODULE)})
  await openDatabase({attach: [{path: process.argv[1], alias: 'held'}]})
  console.log('open')
  setInterval(() => undefined, 60_000)`

test("a writer is refused while another reads too long, or has it open, by its pid; a killed one's commits are there", async () => {
  {
    await using db = await openWarehouse(data.folder, createWorld())
    await writeSettings(db, {hash_key: 'before'})
  }
  const locked = {code: 'WAREHOUSE_LOCKED', exitCode: 4}
  {
    await using _reader = await openHistory(data.folder, createWorld())
    expect(await refusedAtOnce()).toMatchObject({
      ...locked,
      message: expect.stringContaining('reading or writing'),
    })
  }

  const args = ['--input-type=module', '--eval', HOLD_FILE, data.folder.warehouse]
  const holder = spawn(process.execPath, args, {stdio: ['ignore', 'pipe', 'inherit']})
  try {
    await once(holder.stdout, 'data')
    expect(await refusedAtOnce()).toMatchObject({
      ...locked,
      message: expect.stringContaining(`(pid ${holder.pid})`),
    })
  } finally {
    holder.kill('SIGKILL')
    await once(holder, 'exit')
  }
  await using db = await openWarehouse(data.folder, createWorld())
  expect((await readSettings(db)).hash_key).toBe('before')
})
