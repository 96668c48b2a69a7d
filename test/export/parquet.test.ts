import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {z} from 'zod'
import {writeBatch} from '../../src/export/batch.ts'
import {openDatabase, quoteLiteral} from '../../src/store/database.ts'
import type {Release} from '../../src/store/release.ts'
import {createFolder, type TestFolder} from '../support/data.ts'
import {publishTables} from '../support/releases.ts'

let data: TestFolder
let release: Release

beforeAll(async () => {
  data = createFolder()
  release = await publishTables(data.folder, {
    sql: `
      create schema release.core;
      create table release.core.status_change as
      select * from (values
        ('d_1', date '2026-01-30', 10.10::decimal(18,2)),
        ('d_2', date '2026-01-31', 20.20),
        ('d_3', date '2026-02-01', 30.30),
        ('d_4', null, 40.40)
      ) as t(deal_id, observed_on, amount);
      create table release.core.movement as
      select * from (values
        ('d_1', date '2026-01-30', date '2026-02-01'),
        ('d_2', date '2026-02-02', date '2026-02-01')
      ) as t(deal_id, business_date, "Month");
      create table release.core.own as select date '2026-01-30' as day, 'a' as month, 'b' as partition_month;
      create table release.core.plain as select 1 as a`,
  })
})

afterAll(() => data[Symbol.dispose]())

const write = (partition?: 'month') =>
  writeBatch(data.folder, release, {profile: 'parquet', options: {...(partition && {partition})}})

test('by month, each table with a date has a file per month, with control totals for each', async () => {
  const {dir} = await write('month')
  const {files} = JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8'))
  const seen = files.map(({name, rows, sum_amount}: Record<string, unknown>) => [name, rows, sum_amount])
  expect(seen).toEqual([
    ['core.movement/partition_month=2026-01/core.movement.parquet', 1, null],
    ['core.movement/partition_month=2026-02/core.movement.parquet', 1, null],
    ['core.own/partition_partition_month=2026-01/core.own.parquet', 1, null],
    ['core.plain.parquet', 1, null],
    ['core.status_change/month=2026-01/core.status_change.parquet', 2, '30.30'],
    ['core.status_change/month=2026-02/core.status_change.parquet', 1, '30.30'],
    ['core.status_change/month=__HIVE_DEFAULT_PARTITION__/core.status_change.parquet', 1, '40.40'],
  ])
})

test('the months together are the table for Hive readers, whose key is no column of the file', async () => {
  const {dir} = await write('month')
  await using db = await openDatabase()
  const months = z.object({month: z.string().nullable(), rows: z.string()})
  const path = quoteLiteral(join(dir, 'core.status_change/*/*.parquet'))
  expect(
    await db.all(
      months,
      `select month, count(*) as rows from read_parquet(${path}, hive_partitioning = true, hive_types = {month: varchar})
       group by month order by month nulls last`,
    ),
  ).toEqual([
    {month: '2026-01', rows: '2'},
    {month: '2026-02', rows: '1'},
    {month: null, rows: '1'},
  ])
  const moved = quoteLiteral(join(dir, 'core.movement/*/*.parquet'))
  const both = `select "Month"::varchar as "Month", partition_month
    from read_parquet(${moved}, hive_partitioning = true) order by partition_month`
  expect(await db.all(z.object({Month: z.string(), partition_month: z.string()}), both)).toEqual([
    {Month: '2026-02-01', partition_month: '2026-01'},
    {Month: '2026-02-01', partition_month: '2026-02'},
  ])
})

test.each([undefined, 'month'] as const)(
  'every file is zstd and names no release, so that of an unchanged table stays the same (partition %s)',
  async (partition) => {
    const {dir} = await write(partition)
    await using db = await openDatabase()
    const text = z.object({value: z.string()})
    const path = quoteLiteral(join(dir, '**/*.parquet'))
    expect(await db.all(text, `select value::varchar as value from parquet_kv_metadata(${path})`)).toEqual([])
    expect(await db.all(text, `select distinct compression as value from parquet_metadata(${path})`)).toEqual(
      [{value: 'ZSTD'}],
    )
  },
)
