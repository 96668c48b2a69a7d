import fs, {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import {syncBuiltinESMExports} from 'node:module'
import {join} from 'node:path'
import {afterEach, expect, test, vi} from 'vitest'
import {HOST} from '../../src/core/process.ts'
import {dialectSchema} from '../../src/export/dialect.ts'
import {type BatchRequest, writeBatch} from '../../src/export/table-files.ts'
import {beginFolder} from '../../src/store/files.ts'
import {createFolder, readFiles, readManifest} from '../support/data.ts'
import {publishTables} from '../support/releases.ts'
import {expectFailure, useShared} from '../support/set-up.ts'

const data = await useShared(createFolder())
const folder = data.folder
const release = await publishTables(folder)

afterEach(() => rmSync(folder.exports, {recursive: true, force: true}))

const write = (profile: BatchRequest['profile'] = 'csv', tables?: string[], from = release) =>
  writeBatch(folder, from, {profile, ...(tables && {tables})})

test('a batch holds every published table, and its manifest names the source and the content of every file', async () => {
  const batch = await write()
  expect(batch).toMatchObject({profile: 'csv', files: 3, rows: 4, outcome: 'written'})
  const {dir, batch_id} = batch
  expect(dir).toBe(join(folder.exports, 'csv', batch_id))
  const names = ['core.deal.csv', 'datapackage.json', 'manifest.json', 'mart.portfolio_summary.csv']
  expect(readdirSync(dir).sort()).toEqual(names)
  const manifest = readManifest(dir)
  expect(manifest).toMatchObject({
    schema_version: 1,
    batch_id,
    profile: 'csv',
    release_id: release.manifest.release_id,
    as_of: '2026-02-02',
    currency: 'USD',
    source: release.manifest.source,
    files: [
      {name: 'core.deal.csv', rows: 3, sum_amount: '600.30'},
      {name: 'mart.portfolio_summary.csv', rows: 1, columns: ['as_of', 'deals'], sum_amount: null},
      {name: 'datapackage.json', rows: 0, columns: []},
    ],
  })
  // Exact decimals, ISO instants, doubled quotes; null differs from the empty text.
  expect(readFileSync(join(dir, 'core.deal.csv'), 'utf8')).toBe(
    `deal_id,property_address,loan_amount,created_at,ltv,is_missing
deal_1,"1 ""Main"" St, Austin",100.10,2026-01-05T15:00:00.000001Z,0.5,true
deal_2,"",200.10,,,false
deal_3,,300.10,2026-01-07T00:00:00.000000Z,0.1,
`,
  )
})

test('only an exact number is summed, to the cent however large: doubles come to another sum in another order', async () => {
  const own = await publishTables(folder, {
    release_id: 'own',
    sql: `create schema release.core; create table release.core.own as
      select 'about 5' as loan_amount, 9999999999999999.99 as amount, 0.1::double as debit, date '2026-01-01' as credit
      from range(2)`,
  })
  for (const profile of ['csv', 'xlsx', 'parquet'] as const) {
    const [file] = readManifest((await write(profile, ['core.own'], own)).dir).files
    const [sums] = file.sheets ?? [file]
    expect(sums, profile).toMatchObject({
      sum_amount: '19999999999999999.98',
      sum_debit: null,
      sum_credit: null,
    })
  }
  const {dir} = await write('csv', ['core.own'], own)
  expect(readFileSync(join(dir, 'core.own.csv'), 'utf8')).toContain(
    'about 5,9999999999999999.99,0.1,2026-01-01',
  )
})

test("Parquet is byte for byte that of the release, whatever other profiles' options say", async () => {
  const {dir, batch_id} = await write('parquet')
  const dialect = dialectSchema.parse({lineEnding: 'crlf', spreadsheetSafe: true})
  const again = await writeBatch(folder, release, {profile: 'parquet', dialect})
  expect(again).toMatchObject({batch_id, outcome: 'unchanged'})
  const csv = await write()
  const divided = await writeBatch(folder, release, {profile: 'csv', partition: 'month'})
  expect(divided).toEqual({...csv, outcome: 'unchanged'})
  for (const {file} of release.manifest.tables)
    expect(readFileSync(join(dir, file)).equals(readFileSync(join(release.dir, file)))).toBe(true)
})

test('other tables, another release, a month or one that is not over make another batch, another order of tables does not', async () => {
  const all = await write()
  const one = await write('csv', ['core.deal'])
  expect(one).toMatchObject({files: 2, rows: 3})
  expect((await write('csv', ['mart.portfolio_summary', 'core.deal'])).batch_id).toBe(all.batch_id)
  const other = await write('csv', undefined, await publishTables(folder, {release_id: 'other'}))
  const months = ['2026-01', '2026-02'].map((period) => ({period, isComplete: true}))
  const batches = await Array.fromAsync([...months, {period: '2026-02', isComplete: false}], (period) =>
    writeBatch(folder, release, {profile: 'csv', period}),
  )
  expect(new Set([all, one, other, ...batches].map(({batch_id}) => batch_id)).size).toBe(6)
  const complete = [all, ...batches].map(({dir}) => readManifest(dir).period_complete)
  expect(complete).toEqual([null, true, true, false])
})

test('a batch is not written again unless it is gone or damaged, and then has the same bytes', async () => {
  const first = await write()
  const {dir} = first
  const before = readFiles(dir)
  expect(await write()).toEqual({...first, outcome: 'unchanged'})
  const [manifest, file] = [join(dir, 'manifest.json'), join(dir, 'core.deal.csv')]
  for (const damage of [
    () => rmSync(dir, {recursive: true}),
    () => rmSync(manifest),
    () => truncateSync(manifest, 100),
    () => rmSync(file),
    () => truncateSync(file, 10),
    () => writeFileSync(file, readFileSync(file, 'utf8').replace('100.10', '900.10')),
  ]) {
    damage()
    expect(await write(), String(damage)).toEqual(first)
    expect(readFiles(dir)).toEqual(before)
  }
})

test('a failed export leaves no batch, and a batch of that name as it was', async () => {
  const {dir, batch_id} = await write()
  truncateSync(join(dir, 'core.deal.csv'), 10)
  const broken = {...release, database: join(folder.root, 'nowhere.duckdb')}
  const failing = () => expect(write('csv', undefined, broken)).rejects.toThrow('nowhere.duckdb')
  await failing()
  expect(readdirSync(join(folder.exports, 'csv'))).toEqual([batch_id])
  expect(readFileSync(join(dir, 'core.deal.csv'))).toHaveLength(10)
  rmSync(dir, {recursive: true})
  await failing()
  expect(readdirSync(join(folder.exports, 'csv'))).toEqual([])
})

test('an export folder that cannot be written is refused by name', async () => {
  writeFileSync(folder.exports, 'a file where a folder should be')
  const words = `Folder '${folder.exports}' cannot be written (ENOTDIR).`
  await expectFailure(write(), 'NOT_WRITABLE', words)
  rmSync(folder.exports)

  mkdirSync(folder.exports)
  writeFileSync(join(folder.exports, 'xlsx'), '')
  await expectFailure(write('xlsx'), 'NOT_WRITABLE')
  expect(await write()).toMatchObject({outcome: 'written'})
})

const final = join(folder.exports, 'own/batch')

function place(dir: string, text: string): void {
  mkdirSync(dir, {recursive: true})
  writeFileSync(join(dir, 'a.csv'), text)
}

test.each([
  ['stays if it is whole', 'theirs'],
  ['is replaced if it is not', 'ours'],
])('a folder that another process finishes at that very moment %s', (_, expected) => {
  const sync = vi.spyOn(fs, 'fsyncSync')
  syncBuiltinESMExports()
  // Between our look at the final name and the move.
  for (const text of ['torn', 'theirs']) sync.mockImplementationOnce(() => place(final, text))
  {
    using batch = beginFolder(final)
    place(batch.dir, 'ours')
    batch.finish(() => {
      const found = existsSync(final) ? readFileSync(join(final, 'a.csv'), 'utf8') : 'none'
      return expected === 'theirs' && found === 'theirs'
    })
  }
  sync.mockRestore()
  syncBuiltinESMExports()
  expect(readFileSync(join(final, 'a.csv'), 'utf8')).toBe(expected)
  expect(readdirSync(join(folder.exports, 'own'))).toEqual(['batch'])
})

test('leftovers of dead exports are removed, work in progress of others is not', () => {
  const other = (pid: string | number) => join(folder.exports, `own/.writing-other@${HOST}-${pid}`)
  place(other('999999999'), 'dead')
  place(other(process.pid), 'dead, in a container of the same numbers')
  place(other(process.ppid), 'alive')
  // A name given by people.
  place(join(folder.exports, 'own/.writing-notes-999999999'), 'theirs')
  beginFolder(final)[Symbol.dispose]()
  expect(readdirSync(join(folder.exports, 'own'))).toEqual([
    '.writing-notes-999999999',
    `.writing-other@${HOST}-${process.ppid}`,
  ])
})
