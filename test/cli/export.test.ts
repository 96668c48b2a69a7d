import {existsSync, readdirSync, readFileSync, rmSync} from 'node:fs'
import {join, parse} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {z} from 'zod'
import {openDatabase, quoteLiteral} from '../../src/store/database.ts'
import {digestFile} from '../../src/store/files.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, createLab, type Ended, type Lab, someDeals} from '../support/lab.ts'
import {readFailure, readJson} from './outcome.ts'

const ADDRESS = '12 "Old" Mill Rd, Unit 3,\nAustin, TX 78701'

const batchSchema = z.object({
  batches: z.array(z.object({profile: z.string(), dir: z.string(), files: z.number(), outcome: z.string()})),
})

const manifestSchema = z.object({
  release_id: z.string(),
  files: z.array(
    z.object({
      name: z.string(),
      sha256: z.string(),
      bytes: z.number(),
      rows: z.number(),
      columns: z.array(z.string()),
      sum_amount: z.string().nullable(),
    }),
  ),
})

let lab: Lab

beforeAll(async () => {
  lab = await createLab({tables: FEW_TABLES})
  lab.service.store.insert([
    ...someDeals(20),
    aDeal(21, {propertyAddress: ADDRESS, loanAmountCents: 123_45n}),
  ])
  await lab.sync('2026-02-02T23:30:00-05:00')
})

afterAll(() => lab[Symbol.asyncDispose]())

function readBatches(ended: Ended) {
  return batchSchema.parse(readJson(ended)).batches
}

function readManifest(dir: string) {
  return manifestSchema.parse(JSON.parse(readFileSync(join(dir, 'manifest.json'), 'utf8')))
}

async function digestFolder(dir: string): Promise<string[]> {
  return Promise.all(readdirSync(dir).map(async (file) => `${file} ${await digestFile(join(dir, file))}`))
}

test('an export written again is unchanged, and the same bytes when it is made anew', async () => {
  const copy = lab.copyFolder('elsewhere')
  const [here, there] = await Promise.all([
    lab.run(['export', 'csv', 'parquet', '--json']),
    lab.run(['export', 'csv', 'parquet', '--json'], {LOANTAPE_DATA_DIR: copy.root}),
  ])
  const [first, elsewhere] = [readBatches(here), readBatches(there)]
  expect(first.map(({profile, outcome}) => [profile, outcome])).toEqual([
    ['csv', 'written'],
    ['parquet', 'written'],
  ])
  const digests = await Promise.all(first.map(({dir}) => digestFolder(dir)))
  expect(await Promise.all(elsewhere.map(({dir}) => digestFolder(dir)))).toEqual(digests)

  const second = readBatches(await lab.run(['export', 'csv', 'parquet', '--json']))
  expect(second.map(({outcome}) => outcome)).toEqual(['unchanged', 'unchanged'])
  expect(second.map(({dir}) => dir)).toEqual(first.map(({dir}) => dir))
  expect(await Promise.all(second.map(({dir}) => digestFolder(dir)))).toEqual(digests)
})

test('every file of a batch is what its manifest says, read back by another reader', async () => {
  const batches = readBatches(await lab.run(['export', 'csv', 'parquet', '--json']))
  await using db = await openDatabase()
  for (const {dir, profile, files} of batches) {
    const manifest = readManifest(dir)
    expect(manifest.release_id).toBe(lab.currentReleaseId())
    expect(manifest.files.map(({name}) => name).sort()).toEqual(
      readdirSync(dir)
        .filter((name) => name !== 'manifest.json')
        .sort(),
    )
    expect(manifest.files).toHaveLength(files)
    for (const file of manifest.files) {
      expect(await digestFile(join(dir, file.name)), file.name).toBe(file.sha256)
      const path = quoteLiteral(join(dir, file.name))
      const reader = profile === 'csv' ? `read_csv(${path}, all_varchar = true)` : `read_parquet(${path})`
      const names = await db.all(
        z.object({column_name: z.string()}),
        `select column_name from (describe from ${reader})`,
      )
      expect(
        names.map(({column_name}) => column_name),
        file.name,
      ).toEqual(file.columns)
      const counted = await db.one(
        z.object({rows: z.coerce.number()}),
        `select count(*) as rows from ${reader}`,
      )
      expect(counted.rows, file.name).toBe(file.rows)
    }
    const deals = manifest.files.find(({name}) => parse(name).name === 'core.deal')
    expect(deals).toMatchObject({rows: 21, sum_amount: '7000123.45'})
  }
})

test('CSV quotes what RFC 4180 demands, line ends within an address included', async () => {
  const [batch] = readBatches(await lab.run(['export', 'csv', '--table', 'core.deal', '--json']))
  expect(batch?.files).toBe(1)
  const text = readFileSync(join(batch?.dir ?? '', 'core.deal.csv'), 'utf8')
  expect(text).toContain(
    'deal_000021,"12 ""Old"" Mill Rd, Unit 3,\nAustin, TX 78701",TX,78701,123.45,500000.00,',
  )
  expect(text.endsWith('\n')).toBe(true)
  expect(text).not.toContain('\r')
})

test('an unknown table or profile writes nothing, not even what was known', async () => {
  const folder = lab.copyFolder('unknown')
  rmSync(folder.exports, {recursive: true, force: true})
  const env = {LOANTAPE_DATA_DIR: folder.root}
  const failures = await Promise.all([
    lab.run(['export', 'csv', 'xml', '--json'], env),
    lab.run(['export', 'csv', '--table', 'core.deal', 'core.loan', '--json'], env),
  ])
  expect(failures.map((ended) => readFailure(ended).code)).toEqual(['UNKNOWN_NAME', 'UNKNOWN_NAME'])
  expect(existsSync(folder.exports)).toBe(false)
})

test('the nightly job syncs and exports', async () => {
  const folder = lab.copyFolder('nightly')
  const result = readJson(
    await lab.run(['run', 'nightly', '--json'], {
      LOANTAPE_DATA_DIR: folder.root,
      LOANTAPE_NOW: '2026-02-03T23:30:00-05:00',
    }),
  )
  expect(result).toMatchObject({
    job: 'nightly',
    outcome: 'done',
    steps: [
      {do: 'sync', result: {outcome: 'released'}},
      {
        do: 'export',
        result: [
          {profile: 'csv', outcome: 'written'},
          {profile: 'parquet', outcome: 'written'},
        ],
      },
    ],
  })
})
