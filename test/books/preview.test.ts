import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {closePeriod} from '../../src/books/close-period.ts'
import {previewExport} from '../../src/export.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {type Books, openBooks} from '../support/books.ts'
import {anyRow} from '../support/data.ts'

let books: Books

beforeEach(async () => {
  books = openBooks()
  await books.walk('2026-01-05', {a: {loan_amount: 500, status: 'funded'}, b: {loan_amount: 100}})
  await books.walk('2026-01-20', {
    a: {loan_amount: 500, status: 'funded'},
    b: {loan_amount: 100, status: 'funded'},
  })
})

afterEach(() => books[Symbol.dispose]())

const preview = (profile: string, day: string, withOpening = false) =>
  previewExport(books.config, {profiles: [profile], period: '2026-01', withOpening}, books.at(day))

/** Everything ever issued, and every file handed out. */
function readIssued() {
  using stateDb = openStateDb(books.folder.stateDb)
  const tables = ['journal_batch', 'journal_file', 'issued_line'].map((name) =>
    stateDb.all(anyRow, `select * from ${name}`),
  )
  const {exports} = books.folder
  return {tables, files: existsSync(exports) ? readdirSync(exports, {recursive: true}).sort() : []}
}

test.each(['xero', 'intacct'])(
  'a preview for %s equals what the export then issues, and issues nothing itself',
  async (profile) => {
    const before = readIssued()
    const [shown, ...others] = await preview(profile, '2026-01-21')
    expect(others).toEqual([])
    expect(readIssued()).toEqual(before)
    const [batch] = await books.export(profile, '2026-01', '2026-01-21')
    expect(shown?.batch).toEqual({...batch, dir: ''})
    expect(shown?.accounts).toMatchObject([
      {account_code: '1090', debit: '0.00', credit: '100.00'},
      {account_code: '1200', lines: 1, debit: '100.00', credit: '0.00'},
    ])
    for (const {name, head} of shown?.files ?? []) {
      const written = readFileSync(join(batch?.dir ?? '', name), 'utf8')
      expect(written.split('\n').slice(0, 5).join('\n')).toBe(head)
    }
    expect(await preview(profile, '2026-01-21')).toMatchObject([{batch: {outcome: 'unchanged'}}])
  },
)

test('a preview of a closed month has its closed journal and later knowledge, and leaves no copy', async () => {
  await books.walk('2026-02-02', {
    a: {loan_amount: 500, status: 'funded'},
    b: {loan_amount: 100, status: 'funded'},
  })
  await closePeriod(books.config, {period: '2026-01'}, books.at('2026-02-03'))
  const before = readIssued()
  const shown = await preview('xero', '2026-02-03', true)
  expect(readIssued()).toEqual(before)
  const batches = await books.export('xero', '2026-01', '2026-02-03', true)
  expect(shown.map(({batch}) => batch)).toEqual(batches.map((batch) => ({...batch, dir: ''})))
  expect(shown[0]?.accounts.map(({account_code}) => account_code)).toContain('1200')
})

test('a month without movements has nothing to issue', async () => {
  using other = openBooks()
  await other.walk('2026-01-05', {a: {loan_amount: 500}})
  const shown = await previewExport(
    other.config,
    {profiles: ['xero'], period: '2026-01'},
    other.at('2026-01-06'),
  )
  expect(shown).toMatchObject([{batch: {outcome: 'empty'}, accounts: [], files: []}])
})
