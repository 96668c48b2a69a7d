import {join} from 'node:path'
import {BIGINT, BOOLEAN, DATE, DECIMAL, TIMESTAMP, VARCHAR} from '@duckdb/node-api'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {z} from 'zod'
import type {ColumnValue} from '../../src/core/types.ts'
import {
  type Database,
  inTransaction,
  openDatabase,
  quoteLiteral,
  quoteName,
} from '../../src/store/database.ts'
import {appendRows} from '../../src/store/row-buffer.ts'
import {anyRow, createFolder, type TestFolder} from '../support/data.ts'

let data: TestFolder
let db: Database

beforeEach(async () => {
  data = createFolder()
  db = await openDatabase({attach: [{path: data.folder.warehouse, alias: 'file'}]})
})

afterEach(async () => {
  await db[Symbol.asyncDispose]()
  data[Symbol.dispose]()
})

test('counts and decimals are read as exact text, dates and timestamps as ISO text in UTC', async () => {
  expect(
    await db.one(
      anyRow,
      `select 9007199254740993 as count, 9999999999999999.99::decimal(18,2) as amount, date '2026-02-03' as day,
         timestamptz '2026-02-03 23:30:00.000001-05:00'::timestamp as instant, true as truth, null as nothing`,
    ),
  ).toEqual({
    count: '9007199254740993',
    amount: '9999999999999999.99',
    day: '2026-02-03',
    instant: '2026-02-04 04:30:00.000001',
    truth: true,
    nothing: null,
  })
})

test('a query without rows has no first one, and an unexpected row is refused', async () => {
  expect(await db.first(anyRow, 'select 1 where false')).toBeUndefined()
  await expect(db.one(z.object({count: z.string()}), 'select true as count')).rejects.toThrow(
    'expected string',
  )
})

test('closing waits for running statements', async () => {
  const other = await openDatabase()
  const work = Promise.allSettled([
    other.run('create table t as select sum(sin(i)) as s from range(1000000) r(i)'),
    other.one(anyRow, 'select count(*) as rows from range(3000000)'),
  ])
  await other[Symbol.asyncDispose]()
  expect(await work).toMatchObject([{status: 'fulfilled'}, {status: 'fulfilled', value: {rows: '3000000'}}])
})

test('what was attached, created or set in a closed database is absent from the next one', async () => {
  const describe = async () => {
    await using one = await openDatabase()
    return {
      databases: await one.all(anyRow, 'select database_name, path from duckdb_databases() order by all'),
      tables: await one.all(anyRow, 'select table_name from duckdb_tables()'),
      views: await one.all(anyRow, 'select view_name from duckdb_views() where not internal'),
      macros: await one.all(anyRow, 'select function_name from duckdb_functions() where not internal'),
      variables: await one.all(anyRow, 'from duckdb_variables()'),
      settings: await one.all(anyRow, 'select name, value from duckdb_settings() order by name'),
    }
  }
  const fresh = await describe()
  for (const lanes of [1, 2]) {
    await using used = await openDatabase({
      lanes,
      attach: [{path: join(data.folder.root, 'x.duckdb'), alias: 'x'}],
    })
    await used.run(`
      create or replace table x.t as select 1 as i; create table main.t as select 1 as i; create temp table u as select 1 as i;
      create view v as select 1 as i; create macro sum(n) as 1; create schema s; set variable as_of = 1; set threads = 2;
      set memory_limit = '20MB'; set temp_directory = ''; set search_path = 'x.main';
      set checkpoint_threshold = '1GB'; set disabled_compression_methods = 'fsst'`)
    await used[Symbol.asyncDispose]()
    await used[Symbol.asyncDispose]()
    expect(await describe()).toEqual(fresh)
    await using next = await openDatabase()
    await next.run('create table large as select range as n, uuid() as u from range(1000000) order by u')
  }
})

test('a statement that fails in a transaction leaves the next one usable', async () => {
  await db.run('create table file.t (i integer)')
  await expect(inTransaction(db, () => db.run('insert into file.nowhere values (1)'))).rejects.toThrow(
    'nowhere',
  )
  const insert = async () => {
    await db.run('insert into file.t values (2)')
    return 'done'
  }
  expect(await inTransaction(db, insert)).toBe('done')
  expect(await db.all(anyRow, 'from file.t')).toEqual([{i: 2}])
})

const types = [VARCHAR, BIGINT, DECIMAL(18, 2), TIMESTAMP, DATE, BOOLEAN, VARCHAR]
const target = {catalog: 'file', schema: 'main', table: 'typed', types}

beforeEach(() =>
  db.run(
    'create table file.typed (t varchar, i bigint, d decimal(18,2), ts timestamp, day date, b boolean, j json)',
  ),
)

test('rows of every type are appended unchanged, nulls included', async () => {
  const rows: ColumnValue[][] = [
    [
      'é\n"',
      9_007_199_254_740_993n,
      999_999_999_999_999_999n,
      1_770_000_000_000_001n,
      '2028-02-29',
      true,
      '{"a": 1}',
    ],
    ['', -1n, 0n, -1n, '1969-12-31', false, 'null'],
    [null, null, null, null, null, null, null],
  ]
  await appendRows(db, target, rows)
  expect(await db.all(anyRow, 'from file.typed')).toEqual([
    {
      t: 'é\n"',
      i: '9007199254740993',
      d: '9999999999999999.99',
      ts: '2026-02-02 02:40:00.000001',
      day: '2028-02-29',
      b: true,
      j: '{"a": 1}',
    },
    {t: '', i: '-1', d: '0.00', ts: '1969-12-31 23:59:59.999999', day: '1969-12-31', b: false, j: 'null'},
    {t: null, i: null, d: null, ts: null, day: null, b: null, j: null},
  ])
})

test.each([0, 2048, 2049, 5000])('%i rows are appended in order', async (count) => {
  const nothing = Array<null>(5).fill(null)
  const rows = Array.from({length: count}, (_, n): ColumnValue[] => [`row ${n}`, BigInt(n), ...nothing])
  await appendRows(db, target, rows)
  expect(
    await db.one(
      anyRow,
      `select count(*) as rows, max(i) as last, bool_and(t = 'row ' || i) and bool_and(i = rowid) as in_order from file.typed`,
    ),
  ).toEqual({rows: String(count), last: count ? String(count - 1) : null, in_order: count ? true : null})
})

test('rows appended in a failed transaction are gone', async () => {
  const work = inTransaction(db, async () => {
    await appendRows(db, target, [['a', 1n, null, null, null, null, null]])
    throw new Error('stop')
  })
  await expect(work).rejects.toThrow('stop')
  expect(await db.all(anyRow, 'from file.typed')).toEqual([])
})

test('texts and names are quoted whatever they contain', async () => {
  const awkward = `it's a "name"; drop table x --`
  expect(await db.one(anyRow, `select ${quoteLiteral(awkward)} as ${quoteName(awkward)}`)).toEqual({
    [awkward]: awkward,
  })
})

test('a file attached read-only cannot be written', async () => {
  await using source = await openDatabase({
    attach: [{path: `${data.folder.root}/other.duckdb`, alias: 'other'}],
  })
  await source.run('create table other.t as select 1 as i')
  await source[Symbol.asyncDispose]()
  await using reader = await openDatabase({
    attach: [{path: `${data.folder.root}/other.duckdb`, alias: 'other', readOnly: true}],
  })
  await expect(reader.run('insert into other.t values (2)')).rejects.toThrow(/read-only/)
})
