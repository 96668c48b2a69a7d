import {chmodSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {findCurrentRelease} from '../../src/release/manifest.ts'
import type {DataFolder} from '../../src/warehouse/data-folder.ts'
import {openDatabase} from '../../src/warehouse/database.ts'
import {anyRow} from '../support/data.ts'
import {createLab, type Lab, someDeals} from '../support/lab.ts'
import {readJson} from './outcome.ts'

let lab: Lab

beforeAll(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(1000))
  await lab.walk('2026-02-02T23:30:00-05:00')
  lab.service.store.update('deal_000001', {status: 'underwriting'})
  await lab.sync('2026-02-03T23:30:00-05:00')
  await lab.run(['export', 'csv'])
})

afterAll(() => lab[Symbol.asyncDispose]())

/** What `doctor --deep` finds wrong in a folder, as `check: words`. */
async function findWrong(
  folder: DataFolder,
  options: readonly string[] = [],
  env: Record<string, string> = {},
): Promise<string[]> {
  const ended = await lab.run(['doctor', '--json', ...options], {LOANTAPE_DATA_DIR: folder.root, ...env})
  const {healthy, findings} = readJson(ended) as {
    healthy: boolean
    findings: {check: string; ok: boolean; words: string}[]
  }
  const wrong = findings.filter(({ok}) => !ok).map(({check, words}) => `${check}: ${words}`)
  expect(ended.code).toBe(healthy ? 0 : 1)
  expect(healthy).toBe(wrong.length === 0)
  return wrong
}

/** Flips one bit of a file, in its middle unless told where. */
function flipBit(path: string, at?: number): void {
  const bytes = readFileSync(path)
  const place = at ?? Math.floor(bytes.length / 2)
  bytes.writeUInt8(bytes.readUInt8(place) ^ 1, place)
  chmodSync(path, 0o644)
  writeFileSync(path, bytes)
}

/** A DuckDB file is three headers of 4 KiB, then blocks. */
const [HEADERS, BLOCK] = [3 * 4096, 256 * 1024]

/** Flips one bit in the middle of the block that holds the first values of a column. */
async function flipBitOf(path: string, table: string, column: string): Promise<void> {
  const {block} = await readOne(
    path,
    `select min(block_id) as block from pragma_storage_info('victim.${table}')
     where column_name = '${column}' and segment_type = 'VARCHAR' and block_id >= 0`,
  )
  flipBit(path, HEADERS + Number(block) * BLOCK + BLOCK / 2)
}

async function readOne(path: string, sql: string): Promise<Record<string, unknown>> {
  await using db = await openDatabase({attach: [{path, alias: 'victim', readOnly: true}]})
  return await db.one(anyRow, sql)
}

/** Runs SQL over a database file, attached as `victim`. */
async function spoil(path: string, sql: string): Promise<void> {
  chmodSync(path, 0o644)
  await using db = await openDatabase({attach: [{path, alias: 'victim'}]})
  await db.run(sql)
}

const currentOf = (folder: DataFolder) =>
  join(folder.releases, findCurrentRelease(folder)?.manifest.release_id ?? '')

test.concurrent('a sound folder is healthy, and so is an empty one', async () => {
  expect(await findWrong(lab.folder, ['--deep'])).toEqual([])
  const empty = join(lab.folder.root, '../doctor-empty')
  expect(await findWrong({...lab.folder, root: empty}, ['--deep'])).toEqual([])
})

test.concurrent('a target that a job names and nobody described is found before its night', async () => {
  const root = join(lab.folder.root, '../doctor-targets')
  const [jobs, targets] = [join(root, 'jobs'), join(root, 'targets.json')]
  mkdirSync(jobs, {recursive: true})
  const steps = [{do: 'export', profiles: ['csv'], deliver: ['bank']}]
  const job = {name: 'bank', schedule: '0 5 * * *', timeZone: 'UTC', catchUp: 'none', graceMinutes: 5, steps}
  writeFileSync(join(jobs, 'bank.mjs'), `export default ${JSON.stringify(job)}`)
  writeFileSync(targets, JSON.stringify({share: {kind: 'folder', path: root}}))
  const env = {LOANTAPE_JOBS_DIR: jobs}
  expect(await findWrong(lab.folder, [], env)).toEqual([
    expect.stringMatching(/^targets: .*LOANTAPE_TARGETS_FILE not set/),
  ])
  expect(await findWrong(lab.folder, [], {...env, LOANTAPE_TARGETS_FILE: targets})).toEqual([
    expect.stringMatching(/^targets: Target 'bank' is not in '.*': expected one of share/),
  ])
  writeFileSync(targets, JSON.stringify({bank: {kind: 'folder', path: root}}))
  expect(await findWrong(lab.folder, [], {...env, LOANTAPE_TARGETS_FILE: targets})).toEqual([])
})

test.concurrent('a page of the ledger that is damaged is found', async () => {
  const folder = lab.copyFolder('damaged-ledger')
  const bytes = readFileSync(folder.ledger)
  bytes.fill(0xff, 4096, 4296)
  writeFileSync(folder.ledger, bytes)
  expect(await findWrong(folder, ['--deep'])).toEqual([
    expect.stringMatching(
      /^ledger, every table: Ledger '.*ledger\.sqlite' is damaged: Tree .*latest backup back/,
    ),
  ])
})

test.concurrent('a flipped bit in history.duckdb is found, with the table and what to do', async () => {
  const folder = lab.copyFolder('flipped-history')
  await flipBitOf(folder.history, 'raw.deal_version', 'property_address')
  const wrong = await findWrong(folder, ['--deep'])
  expect(wrong).toContainEqual(
    expect.stringMatching(
      /^history, every column: Table 'raw\.deal_version' of 'history\.duckdb' cannot be read \(.*property_address.*\): .*checksum.* Remove history\.duckdb and run `loantape sync`/,
    ),
  )

  rmSync(folder.history)
  const env = {LOANTAPE_DATA_DIR: folder.root, LOANTAPE_NOW: '2026-02-04T23:30:00-05:00'}
  expect((await lab.run(['sync'], env)).code).toBe(0)
  expect(await findWrong(folder, ['--deep'])).toEqual([])
})

test.concurrent('a flipped bit in the warehouse is found before a sync trips over it', async () => {
  const folder = lab.copyFolder('flipped-warehouse')
  await flipBitOf(folder.warehouse, 'raw.deal_version', 'property_address')
  expect(await findWrong(folder, ['--deep'])).toEqual([
    expect.stringMatching(
      /^warehouse, every column: Table 'raw\.deal_version' of 'warehouse\.duckdb' .*checksum.*loantape restore --force/,
    ),
  ])
})

test.concurrent('a flipped bit in a release is found, and a build makes it again', async () => {
  const folder = lab.copyFolder('flipped-release')
  flipBit(join(currentOf(folder), 'core.deal.parquet'))
  const words =
    /^release: File 'core\.deal\.parquet' of release 2026-02-03-\w+ has not the manifest's sha256\. Remove the release folder and run `loantape build`/
  expect(await findWrong(folder)).toEqual([expect.stringMatching(words)])
  await flipBitOf(join(currentOf(folder), 'portfolio.duckdb'), 'core.deal_history', 'property_address')
  expect(await findWrong(folder, ['--deep'])).toContainEqual(
    expect.stringMatching(
      /^release, every column: Table 'core\.deal_history' of 'portfolio\.duckdb' .*checksum/,
    ),
  )

  rmSync(currentOf(folder), {recursive: true})
  expect(await findWrong(folder)).toEqual([
    expect.stringMatching(/^release: Link '.*current' points to no release/),
  ])
  expect((await lab.run(['build'], {LOANTAPE_DATA_DIR: folder.root})).code).toBe(0)
  expect(await findWrong(folder, ['--deep'])).toEqual([])
})

test.concurrent('a flipped bit in an exported CSV file is found', async () => {
  const folder = lab.copyFolder('flipped-export')
  const [batch = ''] = readdirSync(join(folder.exports, 'csv'))
  flipBit(join(folder.exports, 'csv', batch, 'core.deal.csv'))
  expect(await findWrong(folder, ['--deep'])).toEqual([
    `exports: File 'core.deal.csv' of batch 'csv/${batch}' has not the manifest's sha256. Export its release again the same way: the files come out byte for byte the same.`,
  ])
  expect(await findWrong(folder)).toEqual([])
})

test.concurrent('files of a batch that are missing are found, its manifest too', async () => {
  const folder = lab.copyFolder('lost-export')
  const [batch = ''] = readdirSync(join(folder.exports, 'csv'))
  rmSync(join(folder.exports, 'csv', batch, 'core.deal.csv'))
  expect(await findWrong(folder, ['--deep'])).toEqual([
    expect.stringMatching(/^exports: File 'core\.deal\.csv' of batch '.*' is not there/),
  ])
  rmSync(join(folder.exports, 'csv', batch, 'manifest.json'))
  expect(await findWrong(folder, ['--deep'])).toEqual([
    expect.stringMatching(/^exports: Batch '.*' has no manifest that can be read/),
  ])
})

test.concurrent('rows and certificates that were changed are found, each as a finding of its own', async () => {
  const folder = lab.copyFolder('changed')
  await spoil(
    folder.history,
    `insert into victim.raw.deal_version from victim.raw.deal_version where seq = 7;
     update victim.raw.walk set records = records + 1`,
  )
  await spoil(join(currentOf(folder), 'portfolio.duckdb'), 'update victim.mart.run set present_deals = 2')
  expect(await findWrong(folder, ['--deep'])).toEqual([
    expect.stringMatching(/^history, invariants: Numbers that are not 1, 2, … .*loantape sync/),
    expect.stringMatching(/^history, invariants: Versions that stand twice .*loantape sync/),
    expect.stringMatching(/^history, invariants: Certificates whose records do not add up.*loantape sync/),
    expect.stringMatching(/^release, totals: Control totals of table 'mart\.run'.*loantape build/),
  ])
})

test.concurrent('a base URL that is not the one the folder belongs to is found', async () => {
  const other = {LOANTAPE_BASE_URL: 'http://127.0.0.1:9'}
  expect(await findWrong(lab.copyFolder('pinned'), [], other)).toEqual([
    `source: Base URL 'http://127.0.0.1:9': this data folder belongs to '${lab.service.url}'. Use another folder with --data: each source has its own. Only where the same service has moved, with all of its deals, run \`loantape sync --accept source\` once.`,
  ])
})
