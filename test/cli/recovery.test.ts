import {spawnSync} from 'node:child_process'
import {cpSync, rmSync, writeFileSync} from 'node:fs'
import {fileURLToPath} from 'node:url'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {trueUp} from '../../src/books/true-up.ts'
import type {WireRecord} from '../../src/core/types.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {openBooks} from '../support/books.ts'
import {balancesOf, importBatches} from '../support/importer.ts'
import {failureOf} from '../support/lab.ts'
import {useShared} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url))

const DEALS = Array.from({length: 20}, (_, index) => `d${index + 1}`)

/** Gives all deals a status and the amounts 1,000.01, 2,000.01, … */
const inStatus = (status: string, changes: Record<string, WireRecord> = {}): Record<string, WireRecord> =>
  Object.fromEntries(
    DEALS.map((id, index) => [id, {status, loan_amount: (index + 1) * 1000 + 0.01, ...changes[id]}]),
  )

/** The sum of 20 deals of 1,000.01 to 20,000.01, in cents. */
const FUNDED = 21_000_020n

/** The books on January 30, the state to restore, and on January 31, when all deals are funded and booked. */
const before = await useShared(openBooks())
await before.walk('2026-01-30', inStatus('draft'))
const exported = await useShared(openBooks(before))
let books = exported

const run = (args: string, day: string) => books.run(args, day)

/** Runs a command line on a day and parses its JSON. */
const say = async (args: string, day: string) => readJson(await run(args, day))

await books.walk('2026-01-31', inStatus('funded'))
expect(await say('export xero --period 2026-01', '2026-02-01')).toMatchObject({
  batches: [{outcome: 'written', rows: 40}],
})

beforeEach(() => {
  books = openBooks(exported)
})

afterEach(() => books[Symbol.dispose]())

/** Sums cents by account of everything ever issued to Xero. */
const handedOut = () => books.sumBatches('xero', '')

/** Puts the warehouse of January 30 in place of the present one. */
function loseJanuary31(): void {
  cpSync(before.folder.warehouse, books.folder.warehouse)
}

const expectNotBooked = (args: string, day: string) =>
  expectRefused(run(args, day), 'JOURNAL_HISTORY', '`loantape period true-up`')

test('deals booked before a recovery are not booked again after it, and a true-up reconciles both', async () => {
  loseJanuary31()
  await books.walk('2026-02-01', inStatus('funded'))
  const refused = ['export xero --period 2026-02', 'export xero --period 2026-01', 'period close 2026-01']
  for (const args of refused) await expectNotBooked(args, '2026-02-02')
  for (const told of ['doctor', 'period list', 'status'])
    expect((await run(told, '2026-02-02')).stdout).toContain('lacks what batch ')
  expect(await say('period true-up', '2026-02-02')).toMatchObject({
    outcome: 'dry_run',
    profiles: [{profile: 'xero', deals: 20, amount: '0.00', differences: [], batch: null}],
  })
  await expectNotBooked('export xero --period 2026-02', '2026-02-02')
  const {exports, stateDb} = books.folder
  rmSync(exports, {recursive: true})
  writeFileSync(exports, '')
  {
    using state = openStateDb(stateDb)
    // As if the export had been killed before it wrote its batch.
    state.run('update journal_batch set is_handed_over = 0')
  }
  await expectRefused(run('period true-up --issue', '2026-02-02'), 'NOT_WRITABLE', exports)
  rmSync(exports)
  const issued = {outcome: 'issued', profiles: [{batch: null}]}
  expect(await say('period true-up --issue', '2026-02-02')).toMatchObject(issued)
  expect(handedOut()).toEqual({1200: FUNDED, 1090: -FUNDED})
  expect(await say('period true-up', '2026-02-02')).toMatchObject({outcome: 'unchanged'})
  const {batches} = await say('export xero --period 2026-02', '2026-02-02')
  expect(batches).not.toMatchObject([{outcome: 'written'}])
  expect(handedOut()).toEqual({1200: FUNDED, 1090: -FUNDED})
  expect(await say('period close 2026-01', '2026-02-02')).toMatchObject({outcome: 'closed'})
  const unchanged = {batches: [{outcome: 'unchanged'}]}
  expect(await say('export xero --period 2026-01', '2026-02-02')).toMatchObject(unchanged)
  await books.walk('2026-02-03', inStatus('funded', {d1: {loan_amount: 1500.01}}))
  const written = {batches: [{outcome: 'written', rows: 2}]}
  expect(await say('export xero --period 2026-02', '2026-02-04')).toMatchObject(written)
  expect(handedOut()).toEqual({1200: FUNDED + 50_000n, 1090: -FUNDED - 50_000n})
})

test('an amount that changed and a deal never funded after a recovery are issued by deal and account', async () => {
  loseJanuary31()
  const changes = {d1: {loan_amount: 1300.01}, d2: {status: 'approved'}}
  await books.walk('2026-02-01', inStatus('funded', changes))
  const profiles = [{profile: 'xero', deals: 20, amount: '2300.01', differences: {length: 4}}]
  expect(await say('period true-up', '2026-02-02')).toMatchObject({period: '2026-01', profiles})
  let issued: unknown
  const world = books.at('2026-02-02', (step) => {
    if (step !== 'journal planned') return
    const args = [MAIN, 'period', 'true-up', '--issue', '--json']
    const env = {...process.env, LOANTAPE_DATA_DIR: books.folder.root, LOANTAPE_NOW: '2026-02-02T17:00:00Z'}
    issued = JSON.parse(String(spawnSync(process.execPath, args, {env}).stdout))
  })
  const failure = await failureOf(trueUp(books.config, {isIssued: true, why: null}, world))
  expect(failure).toMatchObject({code: 'JOURNAL_STALE', exitCode: 4})
  expect(issued).toMatchObject({outcome: 'issued', profiles})
  const now = FUNDED + 30_000n - 200_001n
  expect(handedOut()).toEqual({1200: now, 1090: -now})
  await books.walk('2026-02-04', inStatus('approved'))
  await run('export xero --period 2026-02', '2026-02-05')
  expect(handedOut()).toEqual({})
})

test('a true-up of a closed month is dated the first day of the first open month', async () => {
  await books.walk('2026-02-05', inStatus('funded'))
  expect((await run('period close 2026-01', '2026-02-06')).code).toBe(0)
  loseJanuary31()
  await books.walk('2026-02-07', inStatus('approved'))
  const issued = await say('period true-up --issue', '2026-02-08')
  expect(issued).toMatchObject({period: '2026-02', profiles: [{deals: 20, batch: {rows: 40}}]})
  const imported = importBatches(books.folder.exports, 'xero')
  expect(balancesOf(imported, '2026-01-31')).toEqual({1200: FUNDED, 1090: -FUNDED})
  expect(balancesOf(imported, '2026-02-01')).toEqual({})
})

test('a month closed under a clock that was ahead holds back all journals until it is reopened', async () => {
  // Otherwise what is booked from now on would be dated after months to come.
  await books.walk('2026-03-05', inStatus('funded'))
  for (const month of ['2026-01', '2026-02']) await say(`period close ${month}`, '2026-03-05')
  cpSync(exported.folder.warehouse, books.folder.warehouse)
  for (const args of ['export xero --period 2026-01', 'period true-up'])
    await expectRefused(run(args, '2026-02-01'), 'PERIOD_STATE', '`loantape period reopen 2026-02 ')
  for (const told of ['doctor', 'period list', 'status'])
    expect((await run(told, '2026-02-01')).stdout).toContain(
      "Period '2026-02' is closed, but ends on 2026-02-28",
    )
  await say('period reopen 2026-02 --why ahead', '2026-02-01')
  expect(await say('export xero --period 2026-01', '2026-02-01')).toMatchObject({batches: [{rows: 40}]})
})

test('a month closed before a recovery but not issued is issued as closed, and the difference follows', async () => {
  books[Symbol.dispose]()
  books = openBooks(before)
  await books.walk('2026-01-31', inStatus('funded'))
  expect(await say('period close 2026-01', '2026-02-01')).toMatchObject({outcome: 'closed'})
  loseJanuary31()
  await books.walk('2026-02-01', inStatus('funded', {d1: {loan_amount: 1300.01}}))
  await expectNotBooked('export xero --period 2026-01', '2026-02-02')
  expect((await run('period true-up --issue', '2026-02-02')).code).toBe(0)
  for (const period of ['2026-01', '2026-02']) {
    expect(await say(`export xero --period ${period}`, '2026-02-02')).toHaveProperty('batches')
  }
  expect(handedOut()).toEqual({1200: FUNDED + 30_000n, 1090: -FUNDED - 30_000n})
})

test('a true-up books opening balances for those profiles alone that had booked any', async () => {
  books[Symbol.dispose]()
  books = openBooks()
  const deals = (loan_amount: number) => ({a: {status: 'funded', loan_amount}})
  await books.walk('2026-01-05', deals(100))
  using restored = openBooks(books)
  await books.walk('2026-01-10', deals(130))
  await run('export xero --period 2026-01 --with-opening', '2026-01-11')
  await run('export intacct --period 2026-01', '2026-01-11')
  cpSync(restored.folder.warehouse, books.folder.warehouse)
  await books.walk('2026-01-12', deals(100))
  const profiles = [{profile: 'intacct'}, {profile: 'xero'}].map((one) => ({...one, deals: 1}))
  expect(await say('period true-up --issue', '2026-01-13')).toMatchObject({outcome: 'issued', profiles})
  expect(books.sumBatches('intacct', '')).toEqual({})
  expect(handedOut()).toEqual({1200: 100_00n, 1090: -100_00n})
})

test('a loan that a true-up leaves as it was booked until it was seen again stands once on every day, though its month is reopened', async () => {
  await books.walk('2026-02-05', inStatus('funded'))
  expect((await run('period close 2026-01', '2026-02-06')).code).toBe(0)
  await run('export quickbooks --period 2026-01', '2026-02-06')
  const found = openBooks(books)
  loseJanuary31()
  await books.walk('2026-02-07', inStatus('funded'))
  const ends = () => {
    const imported = importBatches(books.folder.exports, 'xero')
    return ['2026-01-31', '2026-02-01', '2026-02-28'].map((day) => balancesOf(imported, day)['1200'])
  }
  books.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1200', name: 'Mortgages'}}})
  const none = [{batch: null}, {batch: null}]
  expect(await say('period true-up --issue', '2026-02-08')).toMatchObject({profiles: none})
  expect(ends()).toEqual([FUNDED, FUNDED, FUNDED])
  const {stdout} = await books.run('export quickbooks --period 2026-01', '2026-02-08', {}, [])
  expect(stdout, 'no file has the name').toContain("account 1200 is 'Mortgages' now")
  expect((await books.run('period reopen 2026-01', '2026-02-08', {}, ['--why', 'to look'])).code).toBe(0)
  await say('export xero --period 2026-02', '2026-02-08')
  expect(ends()).toEqual([FUNDED, FUNDED, FUNDED])
  // The tapes that were lost are found.
  cpSync(found.folder.warehouse, books.folder.warehouse)
  found[Symbol.dispose]()
  await say('period true-up --issue', '2026-02-09')
  await say('export xero --period 2026-02', '2026-02-09')
  expect(ends()).toEqual([FUNDED, FUNDED, FUNDED])
})

test('what is learnt late of a loan that a true-up left as it was booked holds from its day on, in whatever month that is', async () => {
  books[Symbol.dispose]()
  books = openBooks()
  const deals = (loan_amount: number) => ({a: {status: 'funded', loan_amount}})
  await books.walk('2026-01-05', deals(100))
  using restored = openBooks(books)
  await books.walk('2026-02-10', deals(150))
  for (const month of ['01', '02'])
    await run(`export xero --period 2026-${month} --with-opening`, '2026-02-11')
  cpSync(restored.folder.warehouse, books.folder.warehouse)
  await books.walk('2026-03-03', deals(160))
  await say('period true-up --issue', '2026-03-04')
  const exportAll = async () => {
    await say('export xero --period 2026-03', '2026-03-05')
    const imported = importBatches(books.folder.exports, 'xero')
    return ['01-31', '02-15', '02-28', '03-31'].map((day) => balancesOf(imported, `2026-${day}`)['1200'])
  }
  expect(await exportAll()).toEqual([100_00n, 150_00n, 150_00n, 160_00n])
  await books.learnLate('2026-02-20', '2026-03-05', 'a', '90')
  expect(await exportAll()).toEqual([100_00n, 150_00n, 90_00n, 160_00n])
  await books.learnLate('2026-01-20', '2026-03-05', 'a', '80')
  expect(await exportAll()).toEqual([80_00n, 80_00n, 90_00n, 160_00n])
})

test('a true-up brings no month from before the first one of its profile, nor does the next export', async () => {
  const changed = (loan_amount: number) => inStatus('funded', {d1: {loan_amount}})
  await books.walk('2026-02-10', changed(1500.01))
  await run('export intacct --period 2026-02', '2026-02-11')
  cpSync(exported.folder.warehouse, books.folder.warehouse)
  await books.walk('2026-03-03', changed(1600.01))
  await say('period true-up --issue', '2026-03-04')
  await say('export intacct --period 2026-03', '2026-03-04')
  expect(books.sumBatches('intacct', '')).toEqual({1200: 60_000n, 1090: -60_000n})
})
