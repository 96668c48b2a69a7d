import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {parse} from 'csv-parse/sync'
import {assert, describe, expect, test} from 'vitest'
import {type AccountMapping, DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import type {IssuedLine} from '../../src/accounting/profiles.ts'
import {findJournalProfile, JOURNAL_NAMES, type JournalProfile} from '../../src/accounting/profiles.ts'
import {planIssue} from '../../src/books/journal-batch.ts'
import {fitText, formatJournalFiles, proveJournalFiles} from '../../src/books/journal-files.ts'
import {expectGolden} from '../support/golden.ts'
import {anEntry, issueFirst} from './journal-lines.ts'

const mapping: AccountMapping = {
  ...DEFAULT_MAPPING,
  entity: 'Acme Lending LLC',
  subsidiary: 'Parent : Acme',
  department: 'Lending',
  location: 'Austin',
  class: 'Bridge',
  tracking: [{name: 'Region', option: 'South'}],
}
const context = {batchId: '2026-02-0123456789ab', mapping}
const profiles = JOURNAL_NAMES.map((name): [string, JournalProfile] => [name, findJournalProfile(name)!])

const write = (profile: JournalProfile, lines: readonly IssuedLine[]) =>
  formatJournalFiles(profile, lines, context)

/** A small journal: quotes and accents in a memo, a large amount, and a later batch that reverses one entry. */
const journal = [
  ...anEntry(1),
  ...anEntry(2, {
    amount: '9999999999.99',
    entry_date: '2026-02-27',
    memo: 'Increase deal_2, 3 “Châlet” Ln, Łódź –\tTX',
  }),
]
const corrected = planIssue(anEntry(1), issueFirst(journal), '2026-03-01')

const proveSpoilt = (profile: JournalProfile, spoil: (text: string) => string) =>
  proveJournalFiles(
    profile,
    write(profile, issueFirst(journal)).map((file) => ({...file, text: spoil(file.text)})),
  )

describe.each(profiles)('%s', (name, profile) => {
  test('writes what its importer accepts, a memo of any length cut to its limit', () => {
    const [file] = write(profile, issueFirst(journal))
    expectGolden(`journal/${name}.csv`, file?.text ?? '')
    const [correction] = write(profile, corrected)
    expectGolden(`journal/${name}-reversal.csv`, correction?.text ?? '')
    const long = write(profile, issueFirst(anEntry(1, {memo: `Funding deal_1 (${'x'.repeat(5000)})`})))
    expect(long[0]?.text).toContain(context.batchId)
    for (const one of [file, correction, ...long]) proveJournalFiles(profile, one ? [one] : [])
  })

  test('splits between entries at the limits of lines and bytes, and every part stands alone', () => {
    const lines = issueFirst(Array.from({length: 11}, (_, index) => anEntry(index + 1)).flat())
    const whole = write({...profile, limits: {...profile.limits, rows: Infinity}}, lines)
    expect(whole.map((file) => file.name)).toEqual([`${name}_${context.batchId}.csv`])
    const limited = {...profile, limits: {...profile.limits, rows: 10}}
    const files = write(limited, lines)
    const names = [1, 2, 3].map((part) => `${name}_${context.batchId}_part0${part}of03.csv`)
    expect(files.map((file) => file.name)).toEqual(names)
    expect(files.map((file) => file.lines.length)).toEqual([10, 10, 2])
    proveJournalFiles(limited, files)
    const rows = files.flatMap(({text}) => parse(text, {from: 2}))
    expect(rows).toHaveLength(lines.length)
    // As many bytes as two entries have.
    const [{bytes} = {bytes: 0}] = write(profile, lines.slice(0, 4))
    const short = {...profile, limits: {...profile.limits, bytes}}
    const parts = write(short, lines.slice(0, 10))
    expect(parts.map((file) => file.rows)).toEqual([4, 4, 2])
    proveJournalFiles(short, parts)
  })

  const spoilt: [string, (text: string) => string][] = [
    ['one cent less', (text) => text.replace('1234.56', '1234.55')],
    ['an amount without cents', (text) => text.replaceAll('1234.56', '1234')],
    ['a thousands separator', (text) => text.replaceAll('1234.56', '"1,234.56"')],
    ['a missing line', (text) => text.split('\n').toSpliced(2, 1).join('\n')],
    ['a missing entry', (text) => text.split('\n').toSpliced(1, 2).join('\n')],
    ['another number', (text) => text.replaceAll('LT2602-000000000001', 'LT2602-000000000003')],
    ['a repeated number', (text) => text.replaceAll('LT2602-000000000002', 'LT2602-000000000001')],
    ['another account', (text) => text.replace(/1210|Loans receivable:Bridge/, '9999')],
    ['another date', (text) => text.replace(/02\/03\/2026|03 Feb 2026/, (date) => date.replace('03', '04'))],
    ['a date in another format', (text) => text.replace(/02\/03\/2026|03 Feb 2026/, '2026-02-03')],
    ['an altered header', (text) => text.replace(/^([^\n]*?)([A-Z])/, '$1X$2')],
    ['a byte order mark', (text) => `\uFEFF${text}`],
    ['a line end within a cell', (text) => text.replace('Main St', 'Main\r\nSt')],
    ['a space around a cell', (text) => text.replace('\n', '\n ')],
  ]

  test('the proof notices what would not import', () => {
    for (const [what, spoil] of spoilt)
      expect(() => proveSpoilt(profile, spoil), what).toThrow(/would not import/)
  })
})

const misshapen: [string, string, (text: string) => string][] = [
  ['intacct', 'a missing line number', (text) => text.replace(',,,,2,', ',,,,3,')],
  ['intacct', 'a journal on the second line', (text) => text.replace('\n,,,,2,', '\nGJ,,,,2,')],
  ['intacct', 'a date on the second line', (text) => text.replace('\n,,,,2,', '\n,02/03/2026,,,2,')],
  ['intacct', 'no description', (text) => text.replace(/"Funding[^"]*",LT/, ',LT')],
  ['xero', 'two narrations in one entry', (text) => text.replace('Funding deal_1,', 'Funding deal_9,')],
  [
    'netsuite',
    'separated lines of one entry',
    (text) => {
      const [head, one, two, three, ...rest] = text.split('\n')
      return [head, one, three, two, ...rest].join('\n')
    },
  ],
]

test('the proof notices what only one profile has', () => {
  for (const [name, what, spoil] of misshapen)
    expect(() => proveSpoilt(findJournalProfile(name)!, spoil), what).toThrow(/would not import/)
})

const tooMuch: [string, string, Parameters<typeof anEntry>[1]][] = [
  ['quickbooks', 'Account Name', {account_name: 'x'.repeat(505)}],
  ['xero', 'AccountCode', {account_code: '12345678901'}],
  ['netsuite', 'digits', {amount: '10000000000.00'}],
  ['quickbooks', 'digits', {amount: '100000000000.00'}],
  [
    'netsuite',
    "'a.b' in Journal Entry - Line: Account: expected printable characters",
    {account_name: 'a\tb'},
  ],
  ['intacct', "deal deal_1.*'12–10' in ACCT_NO: expected", {account_code: '12–10'}],
  ['intacct', '25 characters in ACCT_NO', {account_code: '1'.repeat(25)}],
]

test('a profile refuses what exceeds its limits, and an entry that does not balance', () => {
  for (const [name, words, fields] of tooMuch) {
    const profile = findJournalProfile(name)!
    const files = write(profile, issueFirst(anEntry(1, fields)))
    expect(() => proveJournalFiles(profile, files)).toThrow(new RegExp(`${name}_.*${words}`))
  }
  const intacct = findJournalProfile('intacct')!
  const long = {...context, mapping: {...mapping, journal: 'GENJ1'}}
  const files = formatJournalFiles(intacct, issueFirst(anEntry(1)), long)
  expect(() => proveJournalFiles(intacct, files)).toThrow('5 characters in JOURNAL: expected at most 4')
  const [debit, credit] = issueFirst(anEntry(1))
  const lines = [debit!, {...credit!, credit: '1234.57'}]
  for (const [, profile] of profiles)
    expect(() => proveJournalFiles(profile, write(profile, lines))).toThrow(/not in balance/)
})

test('docs/accounting.md says how much a file of each profile and its cells hold', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/accounting.md'), 'utf8')
  for (const [name, {limits}] of profiles) {
    const lines = limits.rows === Infinity ? '' : `${limits.rows.toLocaleString('en-US')} lines`
    const row = `| \`${name}\` | ${lines || '|'}`
    const said = page.split('\n').find((line) => line.startsWith(row))
    assert(said, `docs/accounting.md has no row of limits that begins with ${row}`)
    const digits = limits.digits === Infinity ? [] : [limits.digits]
    for (const most of [...Object.values(limits.cells), ...digits])
      expect(said).toContain(` ${most.toLocaleString('en-US')}`)
    expect(said.includes('ASCII')).toBe(limits.characters === 'ascii')
  }
})

test('text is fitted: one line of the characters that the importer takes, cut with a mark', () => {
  const fit = (text: string, longest = 80) => [
    fitText(text, longest, 'ascii'),
    fitText(text, longest, 'printable'),
  ]
  expect(fit(' Cafe\u0301\n“Łódź” — 5\u200b% 漢 ´')).toEqual(['Cafe "Lodz" - 5% ?', 'Café “Łódź” — 5% 漢 ´'])
  expect(fit('12½ Đorđe’s Rd, ⅓ × 4′')).toEqual(["12 1/2 Dorde's Rd, 1/3 x 4'", '12½ Đorđe’s Rd, ⅓ × 4′'])
  expect(fit('大阪市北区 \ud800\ue000')).toEqual(['?????', '大阪市北区'])
  expect(fit('x'.repeat(81))).toEqual(Array(2).fill(`${'x'.repeat(77)}...`))
  expect(fit('🏠 4 𠮷, ♥')).toEqual(['? 4 ?, ?', '? 4 ?, ♥'])
})
