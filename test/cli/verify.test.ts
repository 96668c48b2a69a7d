import {chmodSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openDatabase} from '../../src/store/database.ts'
import {findCurrentRelease} from '../../src/store/release.ts'
import {anyRow, FEW_TABLES} from '../support/data.ts'
import {createSeenLab} from '../support/lab.ts'
import {useShared} from '../support/set-up.ts'

const lab = await useShared(createSeenLab({tables: FEW_TABLES}))
await lab.run(['export', 'csv'])

/** What `verify` finds damaged in a folder, as `path: words`. */
async function findDamage(folder: DataFolder): Promise<string[]> {
  const {code, stdout} = await lab.run(['verify', '--json'], {LOANTAPE_DATA_DIR: folder.root})
  const {outcome, problems} = JSON.parse(stdout) as {
    outcome: string
    problems: {path: string; problem: string; next?: string}[]
  }
  expect([code, outcome]).toEqual(problems.length > 0 ? [1, 'damaged'] : [0, 'whole'])
  return problems.map(({path, problem, next}) => `${path}: ${problem} ${next}`)
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
const [HEADERS, BLOCK] = [3 * 4096, 64 * 1024]

/** Flips one bit in the middle of the block with a column's first values. */
async function flipBitOf(path: string, table: string, column: string): Promise<void> {
  const db = await openDatabase({attach: [{path, alias: 'victim', readOnly: true}]})
  const {block} = await db.one(
    anyRow,
    `select min(block_id) as block from pragma_storage_info('victim.${table}')
     where column_name = '${column}' and segment_type = 'VARCHAR' and block_id >= 0`,
  )
  await db[Symbol.asyncDispose]()
  flipBit(path, HEADERS + Number(block) * BLOCK + BLOCK / 2)
}

const currentOf = (folder: DataFolder) =>
  join(folder.releases, findCurrentRelease(folder)?.manifest.release_id ?? '')

test('a sound folder is whole, and so is an empty one', async () => {
  expect(await findDamage(lab.folder)).toEqual([])
  const empty = join(lab.folder.root, '../verify-empty')
  expect(await findDamage({...lab.folder, root: empty})).toEqual([])
})

test('a damaged page of the state database is found', async () => {
  const folder = lab.copyFolder('damaged-state database')
  const bytes = readFileSync(folder.stateDb)
  bytes.fill(0xff, 4096, 4296)
  writeFileSync(folder.stateDb, bytes)
  expect(await findDamage(folder)).toEqual([
    expect.stringMatching(
      /^state\.sqlite: State database '.*state\.sqlite' is damaged: Tree .*restore its latest backup/,
    ),
  ])
})

test('a flipped bit in the warehouse is found before a sync fails on it, and a rebuild repairs it', async () => {
  const folder = lab.copyFolder('flipped-warehouse')
  await flipBitOf(folder.warehouse, 'raw.deal_version', 'property_address')
  expect(await findDamage(folder)).toContainEqual(
    expect.stringMatching(
      /^warehouse\.duckdb: Rows of table 'raw\.deal_version' in 'warehouse\.duckdb' .*checksum.*`loantape rebuild`/,
    ),
  )
  expect((await lab.run(['rebuild', '--apply'], {LOANTAPE_DATA_DIR: folder.root})).code).toBe(0)
  expect(await findDamage(folder)).toEqual([])
})

test('a flipped bit in a release is found, and a build repairs it', async () => {
  const folder = lab.copyFolder('flipped-release')
  flipBit(join(currentOf(folder), 'core.deal.parquet'))
  const words =
    /^current: File 'core\.deal\.parquet' of release 2026-02-03-\w+ does not have the sha256 of its manifest\. Remove the release folder and run `loantape build`/
  expect(await findDamage(folder)).toEqual([expect.stringMatching(words)])
  await flipBitOf(join(currentOf(folder), 'portfolio.duckdb'), 'core.deal_history', 'property_address')
  expect(await findDamage(folder)).toContainEqual(
    expect.stringMatching(/^current: Table 'core\.deal_history' .* cannot be read .*checksum/),
  )

  rmSync(currentOf(folder), {recursive: true})
  expect((await lab.run(['build'], {LOANTAPE_DATA_DIR: folder.root})).code).toBe(0)
  expect(await findDamage(folder)).toEqual([])
})

test('a flipped bit in an exported CSV file is found, and so are missing files, even the manifest', async () => {
  const [batch = ''] = readdirSync(join(lab.folder.exports, 'csv'))
  const dir = join(lab.folder.exports, 'csv', batch)
  flipBit(join(dir, 'core.deal.csv'))
  expect(await findDamage(lab.folder)).toEqual([
    `exports: File 'core.deal.csv' of batch 'csv/${batch}' does not have the sha256 of its manifest. Export its release again the same way: the files come out byte for byte the same.`,
  ])
  rmSync(join(dir, 'core.deal.csv'))
  expect(await findDamage(lab.folder)).toEqual([
    expect.stringMatching(/^exports: File 'core\.deal\.csv' of batch '.*' is not there/),
  ])
  rmSync(join(dir, 'manifest.json'))
  expect(await findDamage(lab.folder)).toEqual([
    expect.stringMatching(/^exports: Batch '.*' has no readable manifest/),
  ])
})
