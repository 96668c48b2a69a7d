import {readdirSync, readFileSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {Workbook} from '@cj-tech-master/excelts'
import {expect, test} from 'vitest'
import {writeBatch} from '../../src/export/table-files.ts'
import {writeQueryBook, writeXlsx} from '../../src/export/xlsx.ts'
import {openDatabase} from '../../src/store/database.ts'
import {createFolder, readManifest} from '../support/data.ts'
import {aManifest, publishTables} from '../support/releases.ts'
import {expectFailure, useShared} from '../support/set-up.ts'

const TABLES = `
  create schema release.core;
  create schema release.mart;
  create table release.core.deal as
  select * from (values
    ('deal_1', '=HYPERLINK("http://x")', 1234567.80::decimal(18,2), 0.614::double, 61.4::double, date '2026-01-05',
      timestamp '2026-01-05 15:00:00.000001', true, 9007199254740993::bigint),
    ('deal_2', ' & <b> ' || chr(10) || 'x', -0.01, null, null, null, null, false, 7),
    ('deal_3', null, 9999999999999999.99, 1.0, 100.0, date '1900-02-28', timestamp '2026-07-05 15:00:00', null, null)
  ) as t(deal_id, property_address, loan_amount, ltv, share_pct, created_on, created_at, is_missing, deals);
  create table release.mart.line as select 7::bigint as line_no, 5.00::decimal(18,2) as debit, 4.00::decimal(18,2) as credit;
  create table release.mart.long as select i::bigint as i from range(25) as t(i)`

const data = await useShared(createFolder())
const about = {'core.deal': {description: 'The deals: each once. More is said elsewhere.', columns: {}}}
const part = (deals: number) => ({deals, amount: `${deals}.50`})
const source = {
  ...aManifest().source,
  ...{complete: false, records: 9, distinct: 8, amount_total: '8.00'},
  ...{kept_quarantined: part(1), kept_missing: part(2), adjusted: part(-4), present: part(7)},
}
const release = await publishTables(data.folder, {
  ...{sql: TABLES, about, source},
  observed_until: '2026-02-01',
})

const write = (from = release) => writeBatch(data.folder, from, {profile: 'xlsx'})

async function openBook(dir: string): Promise<Workbook> {
  const book = new Workbook()
  await book.xlsx.readFile(join(dir, readdirSync(dir).find((name) => name.endsWith('.xlsx')) ?? ''))
  return book
}

function valuesOf(book: Workbook, name: string) {
  const sheet = book.getWorksheet(name)!
  return sheet.getRows(1, sheet.rowCount)!.map(({values}) => (values as unknown[]).slice(1))
}

/** A text with characters that are escaped. */
const rich = (text: string) => ({richText: [{text}]})

test('cells are typed and formatted, a formula is a text, and the header is frozen and filtered', async () => {
  const book = await openBook((await write()).dir)
  const none = undefined
  const day = new Date('2026-01-05')
  const [winter, summer] = [new Date('2026-01-05T15:00:00Z'), new Date('2026-07-05T15:00:00Z')]
  expect(valuesOf(book, 'core.deal').slice(1)).toEqual([
    ['deal_1', '=HYPERLINK("http://x")', 1234567.8, 0.614, 61.4, day, winter, true, '9007199254740993'],
    ['deal_2', rich(' & <b> \nx'), -0.01, none, none, none, none, false, 7],
    ['deal_3', none, '9999999999999999.99', 1, 100, '1900-02-28', summer],
  ])
  const sheet = book.getWorksheet('core.deal')!
  expect(sheet.getCell('B2').formula).toBeUndefined()
  const formats = ['#,##0.00', '0.0%', '0.0"%"', 'yyyy-mm-dd', 'yyyy-mm-dd hh:mm:ss', '#,##0']
  expect([3, 4, 5, 6, 7, 9].map((column) => sheet.getRow(2).getCell(column).numFmt)).toEqual(formats)
  expect(sheet.views).toMatchObject([{state: 'frozen', ySplit: 1}])
  expect(sheet.autoFilter).toBe('A1:I4')
  expect(book.getWorksheet('mart.line')!.getCell('A2').numFmt).toBe('0')
  expect(sheet.getColumn(2).width).toBeGreaterThan(20)
})

test('a text that a spreadsheet would decode or XML not hold is escaped, a number it would round is a text, a double neither', async () => {
  const published = await publishTables(data.folder, {
    release_id: 'odd',
    sql: `create schema release.core; create table release.core.deal as select
      '_x0041_ _xyz_ __x000d_' as "_x0041_", 'Net' as b,
      '1234567890123.45'::decimal(18,2) as loan_amount, '12345678901234.56'::decimal(18,2) as amount,
      (1 / 3)::double as ltv, 'nan'::double as share_pct, 1e300::double as c,
      'a' || chr(13) || chr(10) || '_x0041' || chr(1) || 'x0041_' || chr(65534) || chr(127) || chr(27) || ' ' as d, ['_x0041_'] as e,
      0.001234567890123::decimal(18,15) as f, timestamp '9999-12-31 23:59:59.999999' as g,
      timestamp '2026-02-28 23:59:59.7' as h, 123.4::decimal(38,30) as i, date '1900-03-01' as j,
      date '20000-06-01' as k`,
  })
  const [head, row] = valuesOf(await openBook((await write(published)).dir), 'core.deal')
  expect(head?.[0]).toEqual(rich('_x005F_x0041_'))
  expect(row).toEqual([
    rich('_x005F_x0041_ _xyz_ __x005F_x000d_'),
    ...['Net', 1234567890123.45, '12345678901234.56', 1 / 3, 'NaN', 1e300],
    rich('a_x000D_\n_x005F_x0041_x0001_x0041__xFFFE__x007F__x001B_ '),
    rich('[_x005F_x0041_]'),
    ...[0.001234567890123, '9999-12-31 23:59:59.999999', new Date('2026-02-28T23:59:59Z'), 123.4],
    ...[new Date('1900-03-01'), '20000-06-01'],
  ])
})

test('the first sheet and the manifest say what the workbook contains and what each sheet totals', async () => {
  const {dir, files, rows} = await write()
  const manifest = readManifest(dir)
  expect({files, rows}).toEqual({files: 1, rows: 29})
  expect(manifest.files[0].sheets).toMatchObject([
    {table: 'core.deal', rows: 3, sum_amount: '10000000001234567.78'},
    {table: 'mart.line', sum_debit: '5.00', sum_credit: '4.00'},
    {table: 'mart.long', rows: 25, columns: ['i'], sum_amount: null},
  ])
  const link = (name: string) => ({text: name, hyperlink: `#'${name}'!A1`})
  const none = undefined
  expect(valuesOf(await openBook(dir), 'Summary')).toEqual([
    ['Loan portfolio as of 2026-02-02'],
    [],
    ['As of', new Date('2026-02-02')],
    ['Observed until', new Date('2026-02-01')],
    ['Known at (UTC)', '2026-02-02 23:30:00'],
    ['Release', release.manifest.release_id],
    ['Time zone of business dates', 'America/New_York'],
    ['Currency', 'USD'],
    ['Walk', 'w_1, incomplete'],
    ['Checks', '4 passed, 1 warned'],
    ['Made by', 'loantape 1.0.0'],
    [],
    ['From the source to the portfolio', 'Deals', 'Amount'],
    ['Deals of the walk', 8, 8],
    ['plus kept, their record is in quarantine', 1, 1.5],
    ['plus kept, missing from the walk', 2, 2.5],
    ['plus observed outside the walk', -4, -4.5],
    ['Present deals', 7, 7.5],
    [],
    ['Sheet', 'Rows', 'Amount', 'Debit', 'Credit', 'What it holds'],
    [link('core.deal'), 3, '10000000001234567.78', none, none, 'The deals'],
    [link('mart.line'), 1, none, 5, 4],
    [link('mart.long'), 25],
    [],
    ['Amount is the sum of the column loan_amount or amount. Instants in the sheets are UTC, to the second.'],
  ])
})

test('a table with more rows than a sheet holds continues on the next, header included; a folder that takes no file fails it', async () => {
  await using db = await openDatabase({attach: [{path: release.database, alias: 'release', readOnly: true}]})
  const dir = data.folder.root
  await writeXlsx({db, source: release, tables: ['mart.long'], dir}, 11)
  const book = await openBook(dir)
  const names = ['mart.long', 'mart.long (2)', 'mart.long (3)']
  expect(book.worksheets.map(({name}) => name)).toEqual(['Summary', ...names])
  const [first = [], second = [], third = []] = names.map((name) => valuesOf(book, name).flat())
  expect([first.length, second.length, third.length]).toEqual([11, 11, 6])
  const numbers = Array.from({length: 25}, (_, index) => index)
  expect([first, second, third].flat().filter((value) => value !== 'i')).toEqual(numbers)
  // Instead of waiting forever.
  const nowhere = writeXlsx({db, source: release, tables: ['core.deal'], dir: join(dir, 'no')})
  await expectFailure(nowhere, 'ENOENT')
})

test('tables whose names a sheet cannot tell apart get separate sheets, and a text no cell can hold is refused', async () => {
  const long = 'mart.a_table_with_a_name_of_too_many_'
  const publish = (note: string) =>
    publishTables(data.folder, {
      release_id: `names ${note.replace(/\W/g, '')}`,
      sql: `create schema release.mart; create table release.${long}x as select 1 as a;
        create table release.${long}y as select ${note} as note`,
    })
  const book = await openBook((await write(await publish("repeat('x', 32767)"))).dir)
  const names = book.worksheets.map(({name}) => name)
  expect(new Set(names).size).toBe(3)
  expect(names.every((name) => name.length <= 31)).toBe(true)
  // A character beyond U+FFFF counts twice.
  for (const [note, length] of [
    ["repeat('x', 32768)", 32_768],
    ["repeat('😀', 20000)", 40_000],
  ] as const) {
    const words = `Column 'note' of table '${long}y' holds a text of ${length} characters`
    await expectFailure(write(await publish(note)), 'EXPORT_CELL', words)
  }
})

test('the same release has the same bytes, whenever it is written', async () => {
  const {dir} = await write()
  const path = join(dir, 'loantape-2026-02-02.xlsx')
  const bytes = readFileSync(path)
  // Only the times of the archive's entries could differ, so they are fixed.
  expect(bytes.readUInt32LE(10)).toBe(0x00210000)
  rmSync(dir, {recursive: true})
  await write()
  expect(readFileSync(path).equals(bytes)).toBe(true)
})

test('the rows of a query get their own sheet, as many as it holds, interest with up to three decimals', async () => {
  await using db = await openDatabase()
  const path = join(data.folder.root, 'rows.xlsx')
  const write = (rows: number) => {
    const from = `(select 10.375::decimal(6,3) as coupon_pct, '=a' as b, 1 as n from range(${rows}))`
    return writeQueryBook(db, {path, title: 'query', from}, release.manifest, 11)
  }
  for (const rows of [0, 10]) {
    await write(rows)
    const book = new Workbook()
    await book.xlsx.readFile(path)
    expect(book.worksheets.map(({name}) => name)).toEqual(['query'])
    expect(valuesOf(book, 'query')).toEqual([
      ['coupon_pct', 'b', 'n'],
      ...Array(rows).fill([10.375, '=a', 1]),
    ])
    const formats = ['A2', 'C2'].map((cell) => book.getWorksheet('query')!.getCell(cell).numFmt)
    if (rows > 0) expect(formats).toEqual(['0.0##"%"', '#,##0'])
  }
  await expect(write(11)).rejects.toThrow('more than 10 rows, the most a worksheet holds')
})
