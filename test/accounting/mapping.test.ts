import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {
  type AccountMapping,
  DEFAULT_MAPPING,
  findReceivable,
  hasSameReceivables,
  parseMapping,
} from '../../src/accounting/mapping.ts'

const ROOT = join(import.meta.dirname, '../..')
const TRACKED = {name: 'a', option: 'b'}
const LONG = 'x'.repeat(101)
const smallest = {receivable: {'*': {code: '1', name: 'Loans'}}, clearing: {code: '2', name: 'Clearing'}}

const parse = (mapping: unknown) =>
  parseMapping(typeof mapping === 'string' ? mapping : JSON.stringify(mapping), 'books/accounting.json')

const refused: [string, unknown, string][] = [
  [
    'names a program twice',
    JSON.stringify(smallest).replace('{"*"', `{"*":${JSON.stringify(smallest.clearing)},"*"`),
    'receivable.*: expected each name once',
  ],
  [
    'names a program that no parsed object keeps',
    JSON.stringify(smallest).replace('"*"', '"__proto__"'),
    '__proto__: expected another name',
  ],
  ['has an empty code', {...smallest, clearing: {code: '', name: 'C'}}, 'clearing.code: expected a value'],
  ['has spaces around a name', {...smallest, class: ' A'}, 'class: expected no spaces around'],
  ['has a line end in a name', {...smallest, location: 'A\nB'}, 'location: expected no line ends'],
  ['has a long name', {...smallest, ended: {code: '3', name: LONG}}, 'ended.name: expected at most 100'],
  [
    'has one for an ending',
    {...smallest, ended: {sold: {code: '3', name: LONG}}},
    'ended.sold.name: expected',
  ],
  ['has no account for an ending', {...smallest, ended: {sold: 'nowhere'}}, 'ended.sold: '],
  ['has no account for endings', {...smallest, ended: 'nowhere'}, 'ended: '],
  ['has an account for endings without a name', {...smallest, ended: {code: '3'}}, 'ended.name: '],
  ['has an account for endings without a code', {...smallest, ended: {name: 'Ended'}}, 'ended.code: '],
  [
    'has three tracking categories',
    {...smallest, tracking: Array(3).fill(TRACKED)},
    'tracking: expected at most two',
  ],
  [
    'names one account twice',
    {...smallest, clearing: {code: '1', name: 'Cash'}},
    "clearing.name: 'Cash', but account 1 is 'Loans' above",
  ],
  [
    'books an ending to the account it comes from',
    {...smallest, ended: {paid_off: smallest.receivable['*']}},
    'ended.paid_off.code: 1 is a receivable account',
  ],
  [
    'books fundings to the account they come from',
    {...smallest, clearing: smallest.receivable['*']},
    'clearing.code: 1 is a receivable account',
  ],
]

test('a mapping that cannot be used is refused, naming file and field', () => {
  for (const [what, mapping, words] of refused) {
    expect(() => parse(mapping), what).toThrow("Account mapping 'books/accounting.json'")
    expect(() => parse(mapping), what).toThrow(words)
  }
})

test('accounts are enough: everything else has a default, and a parsed mapping can be parsed again', () => {
  expect(parse(smallest)).toMatchObject({
    journal: 'GJ',
    currency: 'USD',
    tax_rate: 'Tax Exempt',
    tracking: [],
  })
  const ended = {code: '3', name: 'Ended'}
  const one = parse({...smallest, ended})
  expect(Object.values(one.ended)).toEqual(Array(6).fill(ended))
  expect(parse(one)).toEqual(one)
  const elsewhere = parse({...smallest, ended: 'elsewhere'})
  expect(new Set(Object.values(elsewhere.ended))).toEqual(new Set(['elsewhere']))
  const each = {sold: ended, other: 'elsewhere'}
  expect(parse({...smallest, ended: each}).ended).toEqual(each)
})

test('a sub-account has the names of the accounts above it in front, each of at most 100 characters', () => {
  const named = (parts: number[], code = '3') =>
    parse({...smallest, clearing: {code, name: parts.map((length) => 'x'.repeat(length)).join(':')}})
  expect(named([100, 100, 100, 100, 100]).clearing.name).toHaveLength(504)
  for (const parts of [
    [20, 101],
    [20, 20, 20, 20, 20, 401],
  ])
    expect(() => named(parts)).toThrow('clearing.name: expected at most 100 characters')
})

test('a program without its own account is booked to that of all others, if there is one', () => {
  const receivablesOf = (codes: Record<string, string>): AccountMapping => ({
    ...DEFAULT_MAPPING,
    receivable: Object.fromEntries(
      Object.entries(codes).map(([program, code]) => [program, {code, name: code}]),
    ),
  })
  const all = receivablesOf({'*': '1200'})
  expect(hasSameReceivables(all, receivablesOf({'*': '1200', bridge: '1200'}))).toBe(true)
  expect(hasSameReceivables(all, receivablesOf({'*': '1200', bridge: '1210'}))).toBe(false)
  expect(hasSameReceivables(all, receivablesOf({bridge: '1200'}))).toBe(false)
  const found = ['bridge', 'dscr', null].map(
    (program) => findReceivable(receivablesOf({bridge: '1'}), program)?.code,
  )
  expect(found).toEqual(['1', undefined, undefined])
  expect(findReceivable(all, null)?.code).toBe('1200')
})

test('docs/accounting.md shows the default and explains every field', () => {
  const page = readFileSync(join(ROOT, 'docs/accounting.md'), 'utf8')
  const shown = /```json\n([\s\S]*?)```/.exec(page)?.[1] ?? ''
  expect(parseMapping(shown, 'docs/accounting.md')).toEqual(DEFAULT_MAPPING)
  for (const field of [...Object.keys(DEFAULT_MAPPING), 'opening'])
    expect(page).toMatch(new RegExp(`\\| \`${field}\` \\| \\S.*[.] \\|`))
})
