import {existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {type FileHandle, open} from 'node:fs/promises'
import {join} from 'node:path'
import {expect, test, vi} from 'vitest'
import {z} from 'zod'
import {writeBatch} from '../../src/export/table-files.ts'
import {openDatabase, quoteLiteral} from '../../src/store/database.ts'
import {createFolder, readManifest} from '../support/data.ts'
import {publishTables} from '../support/releases.ts'
import {expectFailure, useShared} from '../support/set-up.ts'

const data = await useShared(createFolder())
const release = await publishTables(data.folder, {
  sql: `
    create schema release.core;
    create table release.core.status_change as
    select * from (values
      ('d_1', date '2026-01-30', 10.10::decimal(18,2)),
      ('d_2', date '2026-01-31', 20.20),
      ('d_3', date '2026-02-01', 30.30)
    ) as t(deal_id, observed_on, amount);
    create table release.core.note as select unnest([date '2026-01-30', null]) as day, 1.00::decimal(18,2) as amount;
    create table release.core.movement as
    select * from (values
      ('d_1', date '2026-03-01', date '2026-01-30', date '2026-02-01'),
      ('d_2', date '2026-03-01', date '2026-02-02', date '2026-02-01')
    ) as t(deal_id, created_on, business_date, month);
    create table release.core.own as
    select date '2026-03-01' as business_date, date '2026-01-30' as day, 'a' as month, 'b' as partition_month;
    create table release.core.none as select date '2026-01-30' as day, 1 as a limit 0;
    create table release.core.plain as select 1 as a`,
})

const write = (partition?: 'month') => writeBatch(data.folder, release, {profile: 'parquet', partition})

test('by month, each table with a date has a file per month, which Hive readers put together again', async () => {
  const {dir} = await write('month')
  const {files} = readManifest(dir)
  const seen = files.map(({name, rows, sum_amount}: Record<string, unknown>) => [name, rows, sum_amount])
  expect(seen).toEqual([
    ['core.movement/partition_month=2026-01/core.movement.parquet', 1, null],
    ['core.movement/partition_month=2026-02/core.movement.parquet', 1, null],
    // pyarrow finds no type for a partition key without any value, and pandas no null of one.
    ['core.none.parquet', 0, null],
    ['core.note.parquet', 2, '2.00'],
    ['core.own/partition_partition_month=2026-01/core.own.parquet', 1, null],
    ['core.plain.parquet', 1, null],
    ['core.status_change/month=2026-01/core.status_change.parquet', 2, '30.30'],
    ['core.status_change/month=2026-02/core.status_change.parquet', 1, '30.30'],
  ])
  await using db = await openDatabase()
  const read = (line: string, table: string, options = '') => {
    const files = quoteLiteral(join(dir, table, '*/*.parquet'))
    const from = `read_parquet(${files}, hive_partitioning = true ${options})`
    return db.column(z.string(), `select ${line} as line from ${from} order by line`)
  }
  const months = await read(
    `distinct month || ': ' || count(*) over (partition by month)`,
    'core.status_change',
    ', hive_types = {month: varchar}',
  )
  expect(months).toEqual(['2026-01: 2', '2026-02: 1'])
  // The partition key of the path is not a column of the file.
  const keys = await read(`month || ' in ' || partition_month`, 'core.movement')
  expect(keys).toEqual(['2026-02-01 in 2026-01', '2026-02-01 in 2026-02'])
})

test('every file is zstd and names no release, so that of an unchanged table stays the same', async () => {
  for (const partition of [undefined, 'month'] as const) {
    const {dir} = await write(partition)
    await using db = await openDatabase()
    const read = (what: string) =>
      db.column(z.string(), `${what}(${quoteLiteral(join(dir, '**/*.parquet'))})`)
    expect(await read('select value::varchar from parquet_kv_metadata')).toEqual([])
    expect(await read('select distinct compression from parquet_metadata')).toEqual(['ZSTD'])
  }
})

test('every file and folder of a batch is on the disk before the batch gets its name', async () => {
  const {dir} = await write('month')
  rmSync(dir, {recursive: true})
  await using file = await open(import.meta.filename)
  const openFile: FileHandle = Object.getPrototypeOf(file)
  const {sync} = openFile
  const synced = new Set<number>()
  const spy = vi.spyOn(openFile, 'sync').mockImplementation(async function (this: FileHandle) {
    await sync.call(this)
    if (!existsSync(dir)) synced.add((await this.stat()).ino)
  })
  await write('month')
  spy.mockRestore()
  const written = readdirSync(dir, {recursive: true, encoding: 'utf8'})
  expect(written.length).toBeGreaterThan(8)
  expect(written.filter((name) => !synced.has(statSync(join(dir, name)).ino))).toEqual([])
})

test('a file of the release that has changed on the disk is refused, not handed out under a sum of its own', async () => {
  const path = join(release.dir, 'core.movement.parquet')
  const bytes = readFileSync(path)
  writeFileSync(path, bytes.with(100, bytes[100]! ^ 1))
  rmSync(data.folder.exports, {recursive: true})
  await expectFailure(write(), 'RELEASE_DAMAGED', `File '${path}' does not have the sha256 of its manifest`)
  writeFileSync(path, bytes)
  expect(readdirSync(join(data.folder.exports, 'parquet'))).toEqual([])
  expect(await write()).toMatchObject({outcome: 'written'})
})
