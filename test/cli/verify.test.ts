import {readdirSync, readFileSync, rmSync, truncateSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openDatabase} from '../../src/store/database.ts'
import {findCurrentRelease} from '../../src/store/release.ts'
import {anyRow, FEW_TABLES, flipBit} from '../support/data.ts'
import {createSeenLab} from '../support/lab.ts'
import {useShared} from '../support/set-up.ts'
import {expectRefused} from './outcome.ts'

const lab = await useShared(createSeenLab({tables: FEW_TABLES}))
await lab.run(['export', 'csv', 'parquet'])

/** Returns the damage that `verify` finds in a folder, as `path: words`. */
async function findDamage(folder: DataFolder): Promise<string[]> {
  const {code, stdout} = await lab.run(['verify', '--json'], {LOANTAPE_DATA_DIR: folder.root})
  const {outcome, problems} = JSON.parse(stdout) as {
    outcome: string
    problems: {path: string; problem: string; next?: string}[]
  }
  expect([code, outcome]).toEqual(problems.length > 0 ? [1, 'damaged'] : [0, 'whole'])
  return problems.map(({path, problem, next}) => `${path}: ${problem} ${next}`)
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

const removeAndBuild = (folder: DataFolder) => {
  rmSync(currentOf(folder), {recursive: true})
  return ['build']
}

/** How a folder is damaged, what is found then, and the command that repairs it, if one does. A release whose files have the right sizes must be removed first. */
type Damage = [
  damage: (folder: DataFolder) => unknown,
  found: RegExp[],
  mend?: (folder: DataFolder) => string[],
]
const DAMAGES: Record<string, Damage> = {
  'a file among the tapes that is none, and batches that are not what was written,': [
    ({tapes, exports}) => {
      writeFileSync(join(tapes, 'notes.txt'), '')
      const [csv = '', parquet = ''] = ['csv', 'parquet'].map((profile) =>
        join(exports, profile, readdirSync(join(exports, profile))[0] ?? ''),
      )
      flipBit(join(csv, 'core.deal.csv'))
      rmSync(join(csv, 'mart.run.csv'))
      rmSync(join(parquet, 'manifest.json'))
    },
    [
      /^tape\/notes\.txt: it is no tape\. Move it elsewhere\.$/,
      /^exports: File 'core\.deal\.csv' of batch 'csv\/.*' does not have the sha256 of its manifest\. Export its release again the same way: the files come out byte for byte the same\./,
      /^exports: File 'mart\.run\.csv' of batch '.*' is not there/,
      /^exports: Batch '.*' has no readable manifest/,
    ],
  ],
  'a damaged page of the state database': [
    ({stateDb}) => writeFileSync(stateDb, readFileSync(stateDb).fill(0xff, 4096, 4296)),
    [/^state\.sqlite: State database '.*state\.sqlite' is damaged: Tree .*restore its latest backup/],
  ],
  'a flipped bit in the warehouse': [
    ({warehouse}) => flipBitOf(warehouse, 'raw.deal_version', 'property_address'),
    [
      /^warehouse\.duckdb: Rows of table 'raw\.deal_version' in 'warehouse\.duckdb' .*checksum.*`loantape rebuild`/,
    ],
    () => ['rebuild', '--apply'],
  ],
  'a cut database of a release': [
    (folder) => truncateSync(join(currentOf(folder), 'portfolio.duckdb'), 1000),
    [/^current: File '.*portfolio\.duckdb' has 1,000 bytes: its manifest says [\d,]+\. Run `loantape build`/],
    () => ['build'],
  ],
  'a cut manifest of a release': [
    (folder) => truncateSync(join(currentOf(folder), 'manifest.json'), 100),
    [/^current: Manifest '.*manifest\.json': /],
    () => ['build'],
  ],
  'a missing table of a release': [
    (folder) => rmSync(join(currentOf(folder), 'core.deal.parquet')),
    [/^current: File '.*core\.deal\.parquet' is missing\. Run `loantape build`/],
    () => ['build'],
  ],
  'a flipped bit in a table and one in the database of a release': [
    (folder) => {
      flipBit(join(currentOf(folder), 'core.deal.parquet'))
      const database = join(currentOf(folder), 'portfolio.duckdb')
      return flipBitOf(database, 'core.deal_history', 'property_address')
    },
    [
      /^current: File 'core\.deal\.parquet' of release 2026-02-03-\w+ does not have the sha256 of its manifest\. Remove the release folder and run `loantape build`/,
      /^current: Table 'core\.deal_history' .* cannot be read .*checksum/,
    ],
    removeAndBuild,
  ],
  'a database of a release without its header': [
    async (folder) => {
      const path = join(currentOf(folder), 'portfolio.duckdb')
      writeFileSync(path, readFileSync(path).fill(0, 0, HEADERS))
      const asked = lab.run(['query', 'select 1', '--json'], {LOANTAPE_DATA_DIR: folder.root})
      await expectRefused(asked, 'RELEASE_DAMAGED', 'Remove the release folder', 1)
    },
    [
      /^current: Database '.*portfolio\.duckdb' does not open: .*not a valid DuckDB database file! Remove the release folder/,
    ],
    removeAndBuild,
  ],
}

test.each(Object.entries(DAMAGES))(
  '%s is found, and mended by the command that is named',
  async (what, [damage, found, mend]) => {
    const folder = lab.copyFolder(what)
    await damage(folder)
    const told = await findDamage(folder)
    for (const words of found) expect(told).toContainEqual(expect.stringMatching(words))
    if (!mend) return
    expect((await lab.run(mend(folder), {LOANTAPE_DATA_DIR: folder.root})).code).toBe(0)
    expect(await findDamage(folder)).toEqual([])
  },
)
