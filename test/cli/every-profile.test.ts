import {readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {Workbook} from '@cj-tech-master/excelts'
import {parse} from 'csv-parse/sync'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {JOURNAL_NAMES} from '../../src/accounting/profiles.ts'
import {verifyBatches} from '../../src/export/batch.ts'
import {PROFILE_NAMES} from '../../src/export/table-files.ts'
import {openDatabase, quoteLiteral} from '../../src/store/database.ts'
import {digestFile} from '../../src/store/files.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {BOOK_TABLES, setAccounts} from '../support/books.ts'
import {anyRow, readManifest} from '../support/data.ts'
import {aDeal, DAY_1, type Ended, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const FORMULA = '=HYPERLINK("http://x")'
const NOW = '2026-03-02T12:00:00-05:00'

const readBatches = (ended: Ended) =>
  readJson(ended).batches as {profile: string; dir: string; outcome: string}[]

/** Ten deals, and one whose address is a formula. All are funded within a month that is over. */
const lab = await useLab({
  tables: `${BOOK_TABLES} +mart.funded_rollforward +mart.funded_rollforward_deal +mart.data_quality +risk.state`,
})
/** A table whose rows may share their grain. */
const {path: sqlDir} = lab.beside.use(
  writeSqlFolder({
    'risk/state.sql':
      "-- States.\n-- grain: state\n-- state: of a deal\n-- check: not_null(state)\nselect 'TX' as state from core.deal\n",
  }),
)
const {store} = lab.service
store.insert([...someDeals(10), aDeal(11, {property_address: FORMULA, loan_amount_cents: 100_01n})])
await lab.walk(DAY_1)
for (const {id} of someDeals(11)) store.update(id, {status: 'funded'})
await lab.walk('2026-02-20T23:30:00-05:00', {accept: ['change']})
await lab.sync('2026-03-01T23:30:00-05:00', {config: {sqlDir}})
/** A copy of the folder from before anybody chose accounts. */
const unset = lab.copyFolder('unset')
const runThere = (args: string, env: Record<string, string> = {}) =>
  lab.run([...args.split(' '), '--json'], {LOANTAPE_NOW: NOW, LOANTAPE_SQL_DIR: sqlDir, ...env})
await runThere('accounting init')
setAccounts(lab.folder)
const batches = readBatches(await runThere(`export ${PROFILE_NAMES.join(' ')} --period 2026-02`))

test('nothing is issued or closed under accounts that nobody chose, nor under a template, which is written once', async () => {
  const run = (args: string, env: Record<string, string> = {}) =>
    runThere(args, {LOANTAPE_DATA_DIR: unset.root, ...env})
  const expectRefusals = async (code: string, words: string, ok: boolean, said: RegExp) => {
    for (const args of ['export xero --period 2026-02', 'period close 2026-02'])
      await expectRefused(run(args), code, words)
    const {findings} = readJson(await run('doctor')) as {findings: {check: string}[]}
    expect(findings).toContainEqual({check: 'accounts', ok, words: expect.stringMatching(said)})
  }
  await expectRefusals(
    'ACCOUNTING_NONE',
    '`loantape accounting init`',
    true,
    /^none: .*`loantape accounting init`/,
  )

  const file = join(unset.root, 'accounting.json')
  const nowhere = {LOANTAPE_ACCOUNTING_FILE: join(unset.root, 'no/accounting.json')}
  await expectRefused(run('accounting init', nowhere), 'OUT_PLACE', 'cannot be written (ENOENT)')
  expect(readJson(await run('accounting init'))).toEqual({file, programs: ['bridge_30yr']})
  const before = readFileSync(file, 'utf8')
  expect(JSON.parse(before)).toMatchObject({
    receivable: {bridge_30yr: {code: '<1200>'}, '*': {code: '<1200>'}},
    ended: {foreclosed: {code: '<1500>', name: '<Real estate owned>'}},
  })
  await expectRefused(run('accounting init'), 'OUT_PLACE')
  expect(readFileSync(file, 'utf8')).toBe(before)
  const left = "accounting.json': receivable.bridge_30yr, receivable.*, clearing"
  await expectRefusals('ACCOUNTING_PLACEHOLDER', left, false, /angle brackets/)
})

const dirOf = (profile: string) => batches.find((batch) => batch.profile === profile)?.dir ?? ''

const manifestOf = (profile: string) => readManifest(dirOf(profile))

test('every profile writes a batch for the month, and each manifest is right', async () => {
  expect(batches.map(({profile, outcome}) => [profile, outcome])).toEqual(
    PROFILE_NAMES.map((name) => [name, 'written']),
  )
  expect(await verifyBatches(lab.folder)).toMatchObject({faults: []})
  for (const name of PROFILE_NAMES)
    expect(manifestOf(name)).toMatchObject({profile: name, period: '2026-02', period_complete: true})
  for (const name of JOURNAL_NAMES)
    expect(manifestOf(name)).toMatchObject({
      files: [{rows: 22, sum_debit: '3500100.01', sum_credit: '3500100.01'}],
      bridge: {booked: {entries: 11, amount: '3500100.01'}, left_out: {opening: {entries: 0}}},
    })
})

test('every file of a batch is what its manifest says, read back by another reader', async () => {
  await using db = await openDatabase()
  for (const [profile, reader] of [
    ['csv', (path: string) => `read_csv(${path}, all_varchar = true)`],
    ['parquet', (path: string) => `read_parquet(${path})`],
  ] as const) {
    const dir = dirOf(profile)
    const files: {name: string; rows: number; columns: string[]; sha256: string}[] = manifestOf(profile).files
    expect([...files.map(({name}) => name), 'manifest.json'].sort()).toEqual(readdirSync(dir).sort())
    for (const {name, rows, columns, sha256} of files) {
      expect(await digestFile(join(dir, name)), name).toBe(sha256)
      if (name.endsWith('.json')) continue
      const from = reader(quoteLiteral(join(dir, name)))
      expect(await db.all(anyRow, `from ${from}`), name).toHaveLength(rows)
      expect(await db.column(z.string(), `select column_name from (describe from ${from})`)).toEqual(columns)
    }
    expect(files).toContainEqual(expect.objectContaining({rows: 11, sum_amount: '3500100.01'}))
  }
})

test('datapackage.json names a key where the release is checked for one, and none that rows may share', async () => {
  const {resources} = JSON.parse(readFileSync(join(dirOf('csv'), 'datapackage.json'), 'utf8'))
  const keyOf = (table: string) =>
    resources.find(({name}: {name: string}) => name === table).schema.primaryKey
  expect(keyOf('core.deal')).toEqual(['deal_id'])
  expect(keyOf('mart.funded_rollforward_deal')).toEqual(['month', 'deal_id', 'version', 'term'])
  expect(keyOf('mart.run')).toEqual(['recorded_at'])
  // Most metrics have no field.
  expect(keyOf('mart.data_quality')).toBeUndefined()
  expect(keyOf('risk.state')).toBeUndefined()
})

test('an address that is a formula stays what it is, and no spreadsheet calculates it', async () => {
  const readCsv = (dir: string) =>
    parse(readFileSync(join(dir, 'core.deal.csv'), 'utf8'), {columns: true}).at(-1)
  expect(readCsv(dirOf('csv'))).toMatchObject({property_address: FORMULA})

  await using db = await openDatabase()
  const path = quoteLiteral(join(dirOf('parquet'), 'core.deal.parquet'))
  const row = z.object({property_address: z.string()})
  expect(await db.all(row, `select property_address from ${path} where deal_id = 'deal_000011'`)).toEqual([
    {property_address: FORMULA},
  ])

  for (const name of JOURNAL_NAMES) {
    const [file] = manifestOf(name).files
    const cells: string[][] = parse(readFileSync(join(dirOf(name), file.name), 'utf8'))
    const telling = cells.flat().filter((cell) => cell.includes(FORMULA))
    expect(telling.length, name).toBeGreaterThan(0)
    for (const cell of telling) expect(cell).toMatch(/^(LT\S+ )?Funding deal_000011, =HYPERLINK/)
  }

  const book = new Workbook()
  await book.xlsx.readFile(join(dirOf('xlsx'), 'loantape-2026-02-28.xlsx'))
  const cell = book.getWorksheet('core.deal')!.getRow(12).getCell(2)
  expect([cell.value, cell.formula]).toEqual([FORMULA, undefined])

  const args = 'export csv --table core.deal --period 2026-02 --spreadsheet-safe'
  const [safe] = readBatches(await runThere(args))
  expect(readCsv(safe?.dir ?? '')).toMatchObject({property_address: `'${FORMULA}`})
})
