import {existsSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {centsOf} from '../../src/core/money.ts'
import {type Books, openBooks} from '../support/books.ts'
import {readManifest} from '../support/data.ts'
import {balancesOf, importBatches, PROFILE_NAMES} from '../support/importer.ts'
import {useShared} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

/** How six loans end in February, each with its amount; the status `matured` has no stated meaning. */
const ENDED: [status: string, amount: number][] = [
  ['paid_off', 2_121_063.75],
  ['sold', 100_000.01],
  ['refinanced', 20_000.02],
  ['foreclosed', 3000.03],
  ['charged_off', 400.04],
  ['matured', 50.05],
]

const STATUSES = `status:canonical,class,sort_order:bigint,ending:canonical?
draft,pipeline,10,
funded,funded,90,
paid_off,ended_funded,110,paid_off
sold,ended_funded,120,sold
refinanced,ended_funded,130,refinanced
foreclosed,ended_funded,140,foreclosed
charged_off,ended_funded,150,charged_off
matured,ended_funded,160,
`

/** `deal_1` to `deal_6` are the loans above, `deal_7` stays funded, `deal_8` was funded at the first walk. */
const deals = (statusOf: (index: number) => string) =>
  Object.fromEntries([
    ...[...ENDED, ['', 7.77] as const].map(([, amount], index) => [
      `deal_${index + 1}`,
      {loan_amount: amount, status: statusOf(index)},
    ]),
    ['deal_8', {loan_amount: 0.88, status: 'funded'}],
  ])
const endedAt = (index: number) => ENDED[index]?.[0] ?? 'funded'

let books: Books

const begun = await useShared(openBooks())
begun.seed('status', STATUSES)
const statuses = [() => 'draft', () => 'funded', endedAt]
for (const [index, day] of ['2026-01-05', '2026-01-20', '2026-02-10'].entries())
  await begun.walk(day, deals(statuses[index]!))
await begun.walk('2026-03-02', deals(endedAt))

beforeEach(() => {
  books = openBooks(begun)
})

afterEach(() => books[Symbol.dispose]())

/** An account whose name ends with its number, so that every importer finds it. */
const account = (code: string, name: string) => ({code, name: `${name} ${code}`})

/** Writes accounting.json as an accountant does, with these lines for `ended`. */
function map(ended?: unknown): void {
  const receivable = {'*': account('1200', 'Loans receivable')}
  const mapping = {receivable, clearing: account('1090', 'Funding clearing'), ended}
  writeFileSync(join(books.folder.root, 'accounting.json'), JSON.stringify(mapping))
}

const run = (args: string, form: string[] = ['--json'], today = '2026-03-03') =>
  books.run(args, today, {LOANTAPE_SQL_DIR: join(books.folder.root, 'sql')}, form)

type Term = Record<'term' | 'amount' | 'booked' | 'unbooked' | 'because' | 'difference', string>
interface Told {
  terms: Term[]
  batches: {outcome: string; dir: string; terms: Term[]}[]
}
/** Runs a command line and parses its JSON. */
const tell = async (args: string) => readJson(await run(args)) as object as Told

/**
 * Closes and exports a month. Closing and each export must state the same terms, and each term must add up.
 *
 * @returns the terms
 */
async function closeAndExport(month: string, profiles = ['xero']): Promise<Term[]> {
  const {terms} = await tell(`period close ${month}`)
  for (const profile of profiles) {
    const [batch] = (await tell(`export ${profile} --period ${month}`)).batches
    expect(batch?.terms, profile).toEqual(terms)
    if (batch?.outcome !== 'written') continue
    expect(readManifest(batch.dir).bridge.terms).toEqual(terms)
  }
  for (const {amount, booked, unbooked, difference} of terms) {
    expect(difference).toBe('0.00')
    expect(centsOf(booked) + centsOf(unbooked)).toBe(centsOf(amount))
  }
  return terms
}

/** Expects these balances in cents in the importers' books, beside what was funded in January. */
function expectBooked(balances: Record<string, bigint>, profiles = ['xero']): void {
  const funded = 224_452_167n
  for (const profile of profiles) {
    const held = balancesOf(importBatches(books.folder.exports, profile))
    const ended = Object.values(balances).reduce((sum, cents) => sum + cents, 0n)
    expect(held, profile).toEqual({...balances, 1090: -funded, 1200: funded - ended})
  }
}

test('each ending is booked to its account, to the cent, in the books of every importer', async () => {
  const cash = account('1000', 'Cash')
  map({
    paid_off: cash,
    sold: cash,
    refinanced: account('1080', 'Payoff clearing'),
    foreclosed: account('1500', 'Real estate owned'),
    charged_off: account('1290', 'Allowance'),
    other: account('1099', 'Suspense'),
  })
  expect(await closeAndExport('2026-01', PROFILE_NAMES)).toMatchObject([
    {term: 'opening', amount: '0.88', booked: '0.00', because: 'opening balance'},
    {term: 'originated', amount: '2244521.67', booked: '2244521.67', because: null},
  ])
  const terms = await closeAndExport('2026-02', PROFILE_NAMES)
  expect(terms.map(({term, booked}) => [term, booked])).toEqual([
    ['paid_off', '2121063.75'],
    ['sold', '100000.01'],
    ['refinanced', '20000.02'],
    ['foreclosed', '3000.03'],
    ['charged_off', '400.04'],
    ['ended_other', '50.05'],
  ])
  expectBooked(
    {1000: 222_106_376n, 1080: 2_000_002n, 1500: 300_003n, 1290: 40_004n, 1099: 5_005n},
    PROFILE_NAMES,
  )
  const {stdout} = await run('export xero --period 2026-01', [])
  expect(stdout, 'how to book it').toContain('opening balance: --with-opening')
  expect((await run('export xero --period 2026-01 --with-opening')).code).toBe(0)
  const [opened] = (await tell('export xero --period 2026-01')).batches
  expect(opened?.terms[0]).toMatchObject({term: 'opening', booked: '0.88', unbooked: '0.00', because: null})
})

test('an ending without an account stops export and close by name and writes nothing', async () => {
  map({paid_off: account('1000', 'Cash'), sold: 'elsewhere'})
  expect((await run('period close 2026-01')).code).toBe(0)
  for (const args of ['period close 2026-02', 'export xero --period 2026-02']) {
    const words = 'endings charged_off, foreclosed, other, refinanced.'
    await expectRefused(run(args), 'ACCOUNTING_UNMAPPED', words)
  }
  expect(existsSync(join(books.folder.exports, 'xero'))).toBe(false)
  // The return of a loan is booked from the account of its ending.
  const back = (index: number) => (index < 4 ? endedAt(index) : 'funded')
  await books.walk('2026-03-03', deals(back))
  const exporting = run('export xero --period 2026-03', ['--json'], '2026-03-04')
  const words = 'in the journal of 2026-03: endings charged_off, other.'
  await expectRefused(exporting, 'ACCOUNTING_UNMAPPED', words)
})

test('amounts booked by another system are named, and booked once the accountant takes them over', async () => {
  map('elsewhere')
  await closeAndExport('2026-01')
  const terms = await closeAndExport('2026-02')
  expect(terms.map(({because}) => because)).toEqual(Array(6).fill('booked elsewhere'))
  expectBooked({})
  const {stdout} = await run('export xero --period 2026-02', [])
  expect(stdout).toContain('xero: nothing to book in 2026-02')
  expect(stdout).toMatch(/^paid_off +-?2,121,063\.75 +0\.00 +-?2,121,063\.75 +booked elsewhere +0\.00$/m)

  // The accounts of a closed month stay; after reopening, one account takes every ending.
  map(account('1900', 'Ended loans'))
  const [batch] = (await tell('export xero --period 2026-02')).batches
  expect(batch).toMatchObject({
    outcome: 'empty',
    terms: expect.arrayContaining([expect.objectContaining({term: 'sold', unbooked: '100000.01'})]),
  })
  await run('period reopen 2026-02 --why servicing-moved')
  await closeAndExport('2026-02')
  expectBooked({1900: 224_451_390n})
})
