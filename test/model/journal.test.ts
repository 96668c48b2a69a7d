import {expect, test} from 'vitest'
import {
  type AccountMapping,
  DEFAULT_MAPPING,
  FIRST_PERIOD,
  type MappingVersion,
} from '../../src/contract/mapping.ts'
import {createAccountSeed} from '../../src/model/account-seed.ts'
import {aVersion, aWalk, buildRelease, builtInPlan, type History, noRow, type Row} from './history.ts'

const mapped: AccountMapping = {
  ...DEFAULT_MAPPING,
  receivable: {
    '*': {code: '1200', name: 'Loans'},
    bridge: {code: '1210', name: 'Loans:Bridge'},
    dscr: {code: '1220', name: 'Loans:DSCR'},
  },
}

const versions = (mapping: AccountMapping, ...later: MappingVersion[]): MappingVersion[] => [
  {since: FIRST_PERIOD, mapping, movesBalances: false},
  ...later,
]

const WALKED = ['2026-01-05', '2026-01-20', '2026-02-03', '2026-02-10', '2026-03-02']

/** A deal of 100.00 whose versions are told by what changes. */
function aDeal(...changes: (Row & {day: string})[]): History {
  let state: Row = {loan_amount: '100.00', loan_program: 'bridge', status: 'funded', property_value: null}
  const rows = changes.map((change) => {
    state = {...state, ...change}
    return aVersion({...state, day: change.day})
  })
  return {versions: rows, walks: WALKED.map((day) => aWalk({day}))}
}

/** Lines of a table of the release, shortened. */
async function book(
  history: History,
  mapping = versions(mapped),
  table = 'accounting.journal_line',
): Promise<string[]> {
  const {plan} = await builtInPlan()
  const seeds = [...plan.seeds.filter(({name}) => name !== 'account'), createAccountSeed(mapping)]
  await using db = await buildRelease(history, {asOf: '2026-03-31'}, {...plan, seeds})
  const rows = await db.all(
    noRow,
    `select concat_ws(' ', period, entry_date, event, coalesce(account_code, '?'), coalesce('dr ' || debit, 'cr ' || credit)) as line
     from ${table} order by entry_date, event, entry_id, line_no`,
  )
  return rows.map(({line}) => String(line))
}

const draft = {day: '2026-01-05', status: 'draft'}
const funding = {day: '2026-01-20', status: 'funded'}
const funded = ['2026-01 2026-01-20 funding 1210 dr 100.00', '2026-01 2026-01-20 funding 1090 cr 100.00']

test('a funding debits the receivable account of its program', async () => {
  expect(await book(aDeal(draft, funding))).toEqual(funded)
})

const laterEvents: [string, Row & {day: string}, string[]][] = [
  [
    'a larger amount books the difference',
    {day: '2026-02-03', loan_amount: '130.50'},
    ['2026-02 2026-02-03 increase 1210 dr 30.50', '2026-02 2026-02-03 increase 1090 cr 30.50'],
  ],
  [
    'a smaller amount books the difference the other way',
    {day: '2026-02-03', loan_amount: '70.00'},
    ['2026-02 2026-02-03 decrease 1090 dr 30.00', '2026-02 2026-02-03 decrease 1210 cr 30.00'],
  ],
  [
    'a reversal takes the amount and program before, dated when observed',
    {day: '2026-02-03', status: 'draft', loan_amount: '999.00', loan_program: 'dscr'},
    ['2026-02 2026-02-03 reversal 1090 dr 100.00', '2026-02 2026-02-03 reversal 1210 cr 100.00'],
  ],
  [
    'a deal that vanishes is reversed',
    {day: '2026-02-03', kind: 'vanished'},
    ['2026-02 2026-02-03 reversal 1090 dr 100.00', '2026-02 2026-02-03 reversal 1210 cr 100.00'],
  ],
  [
    'another program is a reclass of the amount before',
    {day: '2026-02-03', loan_program: 'dscr'},
    ['2026-02 2026-02-03 reclass 1220 dr 100.00', '2026-02 2026-02-03 reclass 1210 cr 100.00'],
  ],
  [
    'another program and amount are a reclass and a difference under the new program',
    {day: '2026-02-03', loan_program: 'dscr', loan_amount: '101.00'},
    [
      '2026-02 2026-02-03 increase 1220 dr 1.00',
      '2026-02 2026-02-03 increase 1090 cr 1.00',
      '2026-02 2026-02-03 reclass 1220 dr 100.00',
      '2026-02 2026-02-03 reclass 1210 cr 100.00',
    ],
  ],
  [
    'an end is not booked where the mapping names no account for it',
    {day: '2026-02-03', status: 'paid_off'},
    [],
  ],
]

test.each(laterEvents)('%s', async (_, change, lines) => {
  expect(await book(aDeal(draft, funding, change))).toEqual([...funded, ...lines])
})

test('an end is booked where the mapping names its account', async () => {
  const mapping = {...mapped, ended: {code: '1080', name: 'Payoffs'}}
  expect(
    (await book(aDeal(draft, funding, {day: '2026-02-03', status: 'paid_off'}), versions(mapping))).slice(2),
  ).toEqual(['2026-02 2026-02-03 ended 1080 dr 100.00', '2026-02 2026-02-03 ended 1210 cr 100.00'])
})

test('what was funded at the first walk is an opening balance, not journal', async () => {
  const history = aDeal({day: '2026-01-05', status: 'funded'})
  expect(await book(history)).toEqual([])
  expect(await book(history, versions(mapped), 'accounting.opening_line')).toEqual([
    '2026-01 2026-01-05 opening 1210 dr 100.00',
    '2026-01 2026-01-05 opening 1090 cr 100.00',
  ])
})

test('programs that share an account are no reclass; a program without one has no account', async () => {
  const history = aDeal(draft, funding, {day: '2026-02-03', loan_program: 'other'})
  const shared = {...mapped, receivable: {'*': {code: '1200', name: 'Loans'}}}
  expect((await book(history, versions(shared))).slice(2)).toEqual([])
  const {'*': _, ...named} = mapped.receivable
  expect((await book(history, versions({...mapped, receivable: named}))).slice(2)).toEqual([
    '2026-02 2026-02-03 reclass ? dr 100.00',
    '2026-02 2026-02-03 reclass 1210 cr 100.00',
  ])
})

test('a later mapping books later periods, and moves balances only when told to', async () => {
  const history = aDeal(
    draft,
    funding,
    {day: '2026-02-10', loan_amount: '150.00'},
    {day: '2026-03-02', status: 'draft'},
  )
  const other = {...mapped, receivable: {'*': {code: '1300', name: 'Other'}}}
  const from = (movesBalances: boolean) => versions(mapped, {since: '2026-03', mapping: other, movesBalances})
  const before = [
    ...funded,
    '2026-02 2026-02-10 increase 1210 dr 50.00',
    '2026-02 2026-02-10 increase 1090 cr 50.00',
  ]
  const after = ['2026-03 2026-03-02 reversal 1090 dr 150.00', '2026-03 2026-03-02 reversal 1300 cr 150.00']
  expect(await book(history, from(false))).toEqual([...before, ...after])
  expect(await book(history, from(true))).toEqual([
    ...before,
    '2026-03 2026-03-01 reclass 1300 dr 150.00',
    '2026-03 2026-03-01 reclass 1210 cr 150.00',
    ...after,
  ])
})

test('a second move takes balances from where the first one left them', async () => {
  const account = (code: string) => ({...mapped, receivable: {'*': {code, name: code}}})
  const mapping = versions(
    mapped,
    {since: '2026-02', mapping: account('1300'), movesBalances: true},
    {since: '2026-03', mapping: account('1400'), movesBalances: true},
  )
  expect((await book(aDeal(draft, funding), mapping)).slice(2)).toEqual([
    '2026-02 2026-02-01 reclass 1300 dr 100.00',
    '2026-02 2026-02-01 reclass 1210 cr 100.00',
    '2026-03 2026-03-01 reclass 1400 dr 100.00',
    '2026-03 2026-03-01 reclass 1300 cr 100.00',
  ])
})

test('an entry is readable and keeps its id when other things become known', async () => {
  const {plan} = await builtInPlan()
  const read = async (history: History) => {
    await using db = await buildRelease(history, {}, plan)
    return await db.all(
      noRow,
      `select entry_id, memo from accounting.journal_line where line_no = 1 order by entry_date`,
    )
  }
  const [first] = await read(aDeal(draft, {...funding, property_address: '12  Main St,\nAustin, TX 78701'}))
  expect(first?.entry_id).toMatch(/^LT2601-[0-9a-f]{12}$/)
  expect(first?.memo).toBe('Funding deal_1, 12 Main St, Austin (bridge)')
  const [again] = await read(aDeal(draft, funding, {day: '2026-02-03', loan_amount: '7.00'}))
  expect(again?.entry_id).toBe(first?.entry_id)
})

test('a funding date learnt in another month is booked in the month it was observed in', async () => {
  const {plan} = await builtInPlan()
  const bookWith = async (fundedOn: string) => {
    const seed = {
      name: 'funded_on',
      file: 'funded_on.csv',
      text: fundedOn,
      types: {funded_on: 'date'},
      rowsSql: `(values ('deal_1', '${fundedOn}')) as funded_on(deal_id, funded_on)`,
    }
    const seeds = [...plan.seeds.filter(({name}) => name !== 'funded_on'), seed]
    await using db = await buildRelease(aDeal(draft, {...funding, day: '2026-02-10'}), {}, {...plan, seeds})
    return await db.all(noRow, `select distinct period, entry_date from accounting.journal_line`)
  }
  expect(await bookWith('2026-02-06')).toEqual([{period: '2026-02', entry_date: '2026-02-06'}])
  expect(await bookWith('2026-01-30')).toEqual([{period: '2026-02', entry_date: '2026-02-01'}])
})
