import {type ChildProcess, spawn} from 'node:child_process'
import {once} from 'node:events'
import {existsSync, mkdirSync, readdirSync, readFileSync, truncateSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {type Database, openDatabase} from '../../src/store/database.ts'
import {
  MIGRATIONS_DIR,
  migrate,
  openHistory,
  openWarehouse,
  readSettings,
  writeSettings,
} from '../../src/store/warehouse.ts'
import {anyRow, createFolder, type TestFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {until} from '../support/until.ts'

let data: TestFolder

beforeEach(() => {
  data = createFolder()
})

afterEach(() => data[Symbol.dispose]())

const MIGRATIONS = readdirSync(MIGRATIONS_DIR).filter((name) => name.endsWith('.sql'))

const migrationsOf = (db: Database) => db.all(anyRow, 'select name from warehouse.main.migration')

test('a new warehouse has every migration once, in order, and keeps its data when reopened', async () => {
  for (const envelope of ['top level', 'pagination']) {
    await using db = await openWarehouse(data.folder)
    expect((await readSettings(db)).envelope).toBe(envelope === 'top level' ? undefined : 'top level')
    await writeSettings(db, {envelope})
    expect((await readSettings(db)).envelope).toBe(envelope)
    expect((await migrationsOf(db)).map(({name}) => name)).toEqual(MIGRATIONS.toSorted())
  }
})

/** A folder of migrations, as the next version may have it. */
function writeMigrations(sql: string): string {
  const dir = join(data.folder.root, 'migrations')
  mkdirSync(dir, {recursive: true})
  for (const name of MIGRATIONS) writeFileSync(join(dir, name), readFileSync(join(MIGRATIONS_DIR, name)))
  writeFileSync(join(dir, '0002_since.sql'), sql)
  return dir
}

test('a migration is applied once, and stored data stays', async () => {
  await using db = await openWarehouse(data.folder)
  await writeSettings(db, {envelope: 'top level'})
  const dir = writeMigrations("alter table raw.setting add column since varchar default 'ever'")
  for (let time = 0; time < 2; time += 1) await migrate(db, 'warehouse', dir)
  expect(await db.all(anyRow, 'from warehouse.raw.setting')).toEqual([
    {name: 'envelope', value: 'top level', since: 'ever'},
  ])
  expect((await migrationsOf(db)).at(-1)).toEqual({name: '0002_since.sql'})
})

test('a failed migration changes nothing', async () => {
  await using db = await openWarehouse(data.folder)
  const dir = writeMigrations('create table raw.more (value integer); from nowhere')
  await expect(migrate(db, 'warehouse', dir)).rejects.toThrow('nowhere')
  await expect(db.run('from warehouse.raw.more')).rejects.toThrow('more')
  expect(await migrationsOf(db)).toHaveLength(MIGRATIONS.length)
})

test.each([
  [
    'of a later version',
    `insert into warehouse.main.migration values ('9999_later.sql', '')`,
    'DATA_NEWER',
    '9999_later.sql',
  ],
  [
    'whose migration was another file',
    `update warehouse.main.migration set sha256 = 'of another file'`,
    'MIGRATION_CHANGED',
    'sql/migrations/0001_warehouse.sql',
  ],
])('a warehouse %s is refused and left as it is', async (_, sql, code, words) => {
  {
    await using db = await openWarehouse(data.folder)
    await db.run(`${sql}; checkpoint warehouse`)
  }
  const before = readFileSync(data.folder.warehouse)
  for (const open of [openWarehouse, openHistory]) {
    const refusal = await failureOf(open(data.folder))
    expect(refusal).toMatchObject({code, exitCode: 1})
    expect(refusal.message).toContain(words)
  }
  expect(readFileSync(data.folder.warehouse).equals(before)).toBe(true)
})

test('reading the history before the first walk says what to do', async () => {
  const refusal = await failureOf(openHistory(data.folder))
  expect(refusal).toMatchObject({code: 'HISTORY_MISSING'})
  expect(refusal.message).toContain('loantape sync')
  expect(existsSync(data.folder.warehouse)).toBe(false)
})

test('a history that lacks migrations gets them before it is read, and keeps its data', async () => {
  {
    await using db = await openDatabase({attach: [{path: data.folder.warehouse, alias: 'history'}]})
    await db.run(`create table history.main.migration (name varchar not null, sha256 varchar not null);
      create table history.main.kept as select 7 as value`)
  }
  await using history = await openHistory(data.folder)
  const deals = 'select count(*) as deals from history.raw.deal_version'
  expect(await history.all(anyRow, deals)).toEqual([{deals: '0'}])
  expect(await history.all(anyRow, 'from history.main.kept')).toEqual([{value: 7}])
})

test('a file without tables, left by a run whose disk failed, is filled like a new one', async () => {
  {
    await using _made = await openDatabase({attach: [{path: data.folder.warehouse, alias: 'warehouse'}]})
  }
  expect(existsSync(data.folder.warehouse)).toBe(true)
  await using db = await openWarehouse(data.folder)
  expect(await migrationsOf(db)).toHaveLength(MIGRATIONS.length)
})

test('a database that is not a history is refused', async () => {
  await using db = await openDatabase({attach: [{path: data.folder.warehouse, alias: 'other'}]})
  await db.run('create table other.main.thesis as select 1 as year')
  await db[Symbol.asyncDispose]()
  expect(await failureOf(openHistory(data.folder))).toMatchObject({code: 'WAREHOUSE_UNREADABLE'})
})

const ENVELOPE = `select value from history.raw.setting where name = 'envelope'`

test('while the source is asked, many can read the history at once, and the stage stays', async () => {
  await using db = await openWarehouse(data.folder)
  await writeSettings(db, {envelope: 'first'})
  await db.run('create temp table staged as select 7 as value')
  await db.closedWhile(async () => {
    await using one = await openHistory(data.folder)
    await using other = await openHistory(data.folder)
    for (const reader of [one, other]) {
      expect(await reader.all(anyRow, ENVELOPE)).toEqual([{value: 'first'}])
      await expect(reader.run('delete from history.raw.setting')).rejects.toThrow(/read-only/)
    }
    await db.run('insert into staged values (8)')
  })
  await writeSettings(db, {envelope: 'second'})
  expect(await db.all(anyRow, 'from staged')).toEqual([{value: 7}, {value: 8}])
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
    await using db = await openWarehouse(data.folder)
    await writeSettings(db, {envelope: 'first'})
  }
  const reader = await openHistory(data.folder)
  const writing = openWarehouse(data.folder).then(async (db) => {
    told.push('writes')
    await writeSettings(db, {envelope: 'second'})
    await db[Symbol.asyncDispose]()
  })
  await until(() => isHeld(`${data.folder.warehouseLock}.gate`))
  const later = openHistory(data.folder).then(async (db) => {
    told.push('reads')
    const rows = await db.all(anyRow, ENVELOPE)
    await db[Symbol.asyncDispose]()
    return rows
  })
  expect(told).toEqual([])
  await reader[Symbol.asyncDispose]()
  expect(await later).toEqual([{value: 'second'}])
  await writing
  expect(told).toEqual(['writes', 'reads'])
})

test('a writer that waits for readers too long is refused, and keeps what it has in memory', async () => {
  await (await openWarehouse(data.folder))[Symbol.asyncDispose]()
  await using _reader = await openHistory(data.folder)
  const refusal = await failureOf(openWarehouse(data.folder, undefined, {maxWaitMinutes: 0.001}))
  expect(refusal).toMatchObject({code: 'WAREHOUSE_LOCKED', exitCode: 4})
  expect(refusal.message).toContain('reading or writing')
})

const DATABASE_MODULE = join(import.meta.dirname, '../../src/store/database.ts')

/** Opens a file for writing, prints a word, and holds it until ended. */
const HOLD_FILE = `
  const {openDatabase} = await import(${JSON.stringify(DATABASE_MODULE)})
  await openDatabase({attach: [{path: process.argv[1], alias: 'held'}]})
  console.log('open')
  setInterval(() => undefined, 60_000)`

/** Another process that has a file open. */
async function holdFile(path: string): Promise<ChildProcess> {
  const holder = spawn(process.execPath, ['--input-type=module', '--eval', HOLD_FILE, path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  await once(holder.stdout!, 'data')
  return holder
}

test('a warehouse opened by another process is refused with its pid', async () => {
  const holder = await holdFile(data.folder.warehouse)
  try {
    const refusal = await failureOf(openWarehouse(data.folder, undefined, {maxWaitMinutes: 0.001}))
    expect(refusal).toMatchObject({code: 'WAREHOUSE_LOCKED', exitCode: 4})
    expect(refusal.message).toContain(`(pid ${holder.pid})`)
  } finally {
    holder.kill('SIGKILL')
    await once(holder, 'exit')
  }
})

test("a killed process's commits are there when the warehouse is reopened", async () => {
  {
    await using db = await openWarehouse(data.folder)
    await writeSettings(db, {envelope: 'before'})
  }
  const holder = await holdFile(data.folder.warehouse)
  holder.kill('SIGKILL')
  await once(holder, 'exit')
  await using db = await openWarehouse(data.folder)
  expect((await readSettings(db)).envelope).toBe('before')
})

const damages: [string, () => Promise<void> | void][] = [
  ['is not a database', () => writeFileSync(data.folder.warehouse, 'something else entirely\n'.repeat(1000))],
  [
    'is cut short',
    async () => {
      await (await openWarehouse(data.folder))[Symbol.asyncDispose]()
      truncateSync(data.folder.warehouse, 10_000)
    },
  ],
]

test.each(damages)('a warehouse file that %s is refused and left as it is', async (_, damage) => {
  await damage()
  const before = readFileSync(data.folder.warehouse)
  for (const open of [openWarehouse, openHistory]) {
    const refusal = await failureOf(open(data.folder))
    expect(refusal).toMatchObject({code: 'WAREHOUSE_UNREADABLE', exitCode: 1})
    expect(refusal.message).toContain(data.folder.warehouse)
  }
  expect(readFileSync(data.folder.warehouse).equals(before)).toBe(true)
})
