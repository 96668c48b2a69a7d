import {copyFileSync} from 'node:fs'
import {join} from 'node:path'
import {BIGINT, BOOLEAN, DATE, DECIMAL, ENUM, INTEGER, TIMESTAMP, VARCHAR} from '@duckdb/node-api'
import {expect, test} from 'vitest'
import {z} from 'zod'
import type {ColumnValue} from '../../src/core/types.ts'
import {
  type Cut,
  type Database,
  inLanes,
  inTransaction,
  openDatabase,
  quoteLiteral,
  quoteName,
  trimStatement,
  withinLimits,
} from '../../src/store/database.ts'
import {appendRows} from '../../src/store/row-buffer.ts'
import {anyRow, changeBlocks, createFolder} from '../support/data.ts'
import {useShared} from '../support/set-up.ts'

const data = await useShared(createFolder())
const db = await useShared(openDatabase({attach: [{path: data.folder.warehouse, alias: 'file'}]}))

test('closing waits for running statements', async () => {
  const other = await openDatabase()
  const work = Promise.allSettled([
    other.run('create table t as select sum(sin(i)) as s from range(1000000) r(i)'),
    other.one(anyRow, 'select count(*) as rows from range(3000000)'),
  ])
  await other[Symbol.asyncDispose]()
  expect(await work).toMatchObject([{status: 'fulfilled'}, {status: 'fulfilled', value: {rows: '3000000'}}])
})

test('a reader has the engine of the last one, unless a statement failed, and nothing of its session', async () => {
  const open = (alias: string) => openDatabase({attach: [{path: ':memory:', alias}], isReader: true})
  const seen = `select {
    session: [getvariable('v'), current_setting('search_path'), current_setting('TimeZone')],
    files: (select list(database_name order by database_name) from duckdb_databases() where not internal),
    tables: (select list(table_name) from duckdb_tables())}`
  {
    await using first = await open('a')
    await first.run(`set variable v = 1; create temp table t as select 1; create table memory.marks_the_engine as select 1;
      set search_path = 'a.main'; set TimeZone = 'Asia/Tokyo'`)
  }
  const clean = {session: [null, '', 'UTC'], files: ['b', 'memory']}
  {
    await using second = await open('b')
    expect(await second.value(z.unknown(), seen)).toEqual({...clean, tables: ['marks_the_engine']})
    await expect(second.run('from nothing')).rejects.toThrow('nothing')
  }
  await using third = await open('b')
  expect(await third.value(z.unknown(), seen)).toEqual({...clean, tables: null})
})

test('of two files that were the same, both are named if one has changed', async () => {
  const whole = join(data.folder.root, 'whole.duckdb')
  const changed = join(data.folder.root, 'changed.duckdb')
  {
    await using db = await openDatabase({attach: [{path: whole, alias: 'whole'}]})
    await db.run('create table whole.t as select hash(range) as a from range(100000); checkpoint whole')
  }
  copyFileSync(whole, changed)
  await changeBlocks(changed)
  await using db = await openDatabase({
    attach: [whole, changed].map((path, index) => ({path, alias: `f${index}`, readOnly: true})),
  })
  await expect(db.run('select sum(a % 7) from f1.t')).rejects.toMatchObject({
    code: 'RELEASE_DAMAGED',
    problem: expect.stringMatching(
      /^File '[^']*(whole|changed)\.duckdb' or '[^']*(?!\1)(whole|changed)\.duckdb' is damaged: /,
    ),
  })
})

test('rows are appended in order and read as exact text, nulls included; those of a failed transaction are gone', async () => {
  const types = [VARCHAR, BIGINT, DECIMAL(18, 2), TIMESTAMP, DATE, BOOLEAN, VARCHAR]
  const target = {table: 'typed', types}
  await db.run(
    'create temp table typed (t varchar, i bigint, d decimal(18,2), ts timestamp, day date, b boolean, j json)',
  )
  const [count, amount, instant] = [9_007_199_254_740_993n, 999_999_999_999_999_999n, 1_770_000_000_000_001n]
  const rows: ColumnValue[][] = [
    ['é\n"', count, amount, instant, '2028-02-29', true, '{"a": 1}'],
    ['', -1n, 0n, -1n, '1969-12-31', false, 'null'],
    [null, null, null, null, null, null, null],
  ]
  const failing = inTransaction(db, async () => {
    await appendRows(db, target, rows)
    await db.run('insert into file.nowhere values (1)')
  })
  await expect(failing).rejects.toThrow('nowhere')
  await inTransaction(db, () => appendRows(db, target, rows))
  expect(await db.all(anyRow, 'from temp.typed')).toEqual([
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

  const inOrder = `select count(*) as rows, bool_and(t = 'row ' || i and i = rowid) as is_in_order from temp.typed`
  for (const length of [0, 2048, 2049, 5000]) {
    await db.run('create or replace temp table typed as from temp.typed limit 0')
    const many = Array.from({length}, (_, n) => [`row ${n}`, BigInt(n), null, null, null, null, null])
    await appendRows(db, target, many)
    expect(await db.one(anyRow, inOrder)).toEqual({rows: `${length}`, is_in_order: length ? true : null})
  }
})

test('a value that does not fit its column is refused, and so are all rows appended with it', async () => {
  await db.run(
    `create temp table narrow (i integer, w enum ('a', 'b'), d decimal(18,2), day date, t varchar)`,
  )
  const types = [INTEGER, ENUM(['a', 'b']), DECIMAL(18, 2), DATE, VARCHAR]
  const good: ColumnValue[] = [1, 'b', 100n, '2026-02-03', 'text']
  const wrong: ColumnValue[] = [2 ** 31, 'c', 2n ** 63n, '2026-13-01', 1]
  for (const [index, value] of wrong.entries()) {
    const append = appendRows(db, {table: 'narrow', types}, [good, good.with(index, value)])
    await expect(append).rejects.toThrow('does not fit')
  }
  const percent = appendRows(db, {table: 'narrow', types: [DECIMAL(6, 3)]}, [[7125n]])
  await expect(percent).rejects.toThrow('columns of type DECIMAL(6,3) are not written')
  await appendRows(db, {table: 'narrow', types}, [good, good.map(() => null)])
  expect(await db.all(anyRow, 'from temp.narrow')).toEqual([
    {i: 1, w: 'b', d: '1.00', day: '2026-02-03', t: 'text'},
    {i: null, w: null, d: null, day: null, t: null},
  ])
})

test('texts and names are quoted whatever they contain', async () => {
  const awkward = `it's a "name"; drop table x --`
  expect(await db.one(anyRow, `select ${quoteLiteral(awkward)} as ${quoteName(awkward)}`)).toEqual({
    [awkward]: awkward,
  })
})

const ENDLESS = 'select count(*) from range(10000000) as a, range(10000000) as b where a.range + b.range = -1'
const unlimited = {limitMs: 60_000, signal: new AbortController().signal}
const explain = (cut: Cut) => new Error(`cut: ${cut}`)

test('a statement that opens a thousand quotes or comments and closes none is read once', () => {
  const marks = Array.from({length: 60_000}, (_, index) => `$a${index}$`).join(' ')
  for (const sql of [`select ${marks} ;`, `select 1 ${'/* '.repeat(80_000)}`.trim(), `select x$y$z from t`])
    expect(trimStatement(sql)).toBe(sql.replace(/ \/.*/, ''))
})

test('work that takes too long is interrupted, in its first statement or later, and the connection stays usable', async () => {
  const endlessWorks = [
    () => db.run(ENDLESS),
    async () => {
      for (;;) await db.run('select 1')
    },
  ]
  for (const work of endlessWorks)
    await expect(withinLimits(db, {...unlimited, limitMs: 20}, work, explain)).rejects.toThrow('cut: time')
  await expect(withinLimits(db, unlimited, () => db.run('select 1'), explain)).resolves.toBeUndefined()
})

test('the running statement is interrupted when the process is asked to stop', async () => {
  const stopping = new AbortController()
  const limits = {...unlimited, signal: stopping.signal}
  const work = withinLimits(db, limits, () => db.run(ENDLESS), explain)
  setImmediate(() => stopping.abort(new Error('SIGTERM')))
  await expect(work).rejects.toThrow('cut: stopped')
  await expect(withinLimits(db, limits, () => db.run('select 1'), explain)).rejects.toThrow('cut: stopped')
})

test('a piece begins once those it waits for have ended, as many at once as there are connections', async () => {
  const waits: Record<string, string[]> = {a: [], b: ['a'], c: ['a'], d: ['b', 'c']}
  const runInLanes = async (lanes: number, pieces: string[]) => {
    await using wide = await openDatabase({lanes})
    const said: string[] = []
    const work = async (name: string, lane: Database) => {
      said.push(`${name} begins`)
      await lane.run('select count(*) from range(500000) r(i) where sin(i) > 2')
      said.push(`${name} ends`)
      return name
    }
    expect(await inLanes(wide, pieces, work, (name) => waits[name] ?? [])).toEqual(pieces)
    return said
  }
  const diamond = Object.keys(waits)
  const said = await runInLanes(2, diamond)
  expect(said.slice(0, 4)).toEqual(['a begins', 'a ends', 'b begins', 'c begins'])
  expect(said.slice(-2)).toEqual(['d begins', 'd ends'])
  expect(await runInLanes(1, diamond)).toEqual(diamond.flatMap((name) => [`${name} begins`, `${name} ends`]))
  expect(await runInLanes(3, [])).toEqual([])
})

test('after a failure nothing new begins, and running pieces are interrupted', async () => {
  await using wide = await openDatabase({lanes: 2})
  const begun: string[] = []
  const work = async (name: string, lane: Database) => {
    begun.push(name)
    await lane.run(name === 'endless' ? ENDLESS : 'select 1')
    throw new Error(`${name} failed`)
  }
  await expect(inLanes(wide, ['endless', 'short', 'third'], work)).rejects.toThrow('short failed')
  expect(begun).toEqual(['endless', 'short'])
  expect(await inLanes(wide, [1, 2, 3], async (piece) => piece * 2)).toEqual([2, 4, 6])
})
