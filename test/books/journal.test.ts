import {spawnSync} from 'node:child_process'
import {cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {userInfo} from 'node:os'
import {join} from 'node:path'
import {fileURLToPath} from 'node:url'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {applyAct, openBooks as openForActs} from '../../src/accounting/acts.ts'
import {listBatches, listIssuedLines} from '../../src/accounting/issued.ts'
import {DEFAULT_MAPPING, initAccounting} from '../../src/accounting/mapping.ts'
import {closePeriod, listPeriods, remapPeriods, reopenPeriod} from '../../src/books/close-period.ts'
import {reissueBatch} from '../../src/books/issue.ts'
import {findRefusal} from '../../src/books/standing.ts'
import {buildRelease} from '../../src/build/build.ts'
import {CATALOGUE} from '../../src/core/errors.ts'
import type {RunStep} from '../../src/core/types.ts'
import {exportRelease, previewExport} from '../../src/outputs.ts'
import {pruneData} from '../../src/record/prune.ts'
import {goOn} from '../../src/record/record-compare.ts'
import {compareBooks, verifyAll} from '../../src/record/verify.ts'
import {takeFileLock} from '../../src/store/files.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {type Books, openBooks, setAccounts} from '../support/books.ts'
import {anyRow, readFiles, readManifest} from '../support/data.ts'
import {balancesOf, importBatches} from '../support/importer.ts'
import {failureOf} from '../support/lab.ts'
import {dyingAt, useShared} from '../support/set-up.ts'

const SQL = fileURLToPath(new URL('../../sql', import.meta.url))
const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url))

/** Two deals: one funded from the start, one funded on January 20; that day's release exists. */
const begun = await useShared(openBooks())
await begun.walk('2026-01-05', {a: {loan_amount: 500, status: 'funded'}, b: {loan_amount: 100}})
const funded = {loan_amount: 100, status: 'funded'}
await begun.walk('2026-01-20', {a: {loan_amount: 500, status: 'funded'}, b: funded})
await begun.readJournal('2026-01', '2026-01-21')

const closed = await useShared(openBooks(begun))
await closed.export('xero', '2026-01', '2026-01-21')
await closed.walk('2026-02-02', {a: {loan_amount: 500, status: 'funded'}, b: funded})
await closePeriod(closed.config, {period: '2026-01'}, closed.at('2026-02-03'))

/** After January was closed, `b` turned out to have had another amount in it; the release of February 5 exists. */
const corrected = await useShared(openBooks(closed))
await corrected.learnLate('2026-01-22', '2026-02-04', 'b', '150.00')
await corrected.readJournal('2026-01', '2026-02-05')

let books: Books
beforeEach(() => {
  books = openBooks(begun)
})
afterEach(() => books[Symbol.dispose]())

/** Replaces the books by empty ones, or a copy of others. */
function openOther(from?: Books): void {
  books[Symbol.dispose]()
  books = openBooks(from)
}

/** Replaces the books with a copy whose January was issued to Xero and closed on February 3. */
const openClosed = () => openOther(closed)

const walkOn = (day: string, amount: number) =>
  books.walk(day, {a: {loan_amount: 500, status: 'funded'}, b: {loan_amount: amount, status: 'funded'}})

/** What all batches of Xero leave in the receivable account at the end of each of these days. */
const receivableOn = (...days: string[]) =>
  days.map((day) => balancesOf(importBatches(books.folder.exports, 'xero'), day)['1200'])

const loseStateDb = () => {
  for (const end of ['', '-wal', '-shm']) rmSync(`${books.folder.stateDb}${end}`, {force: true})
}

test('an export issues what is new since the last one, and nothing if nothing is', async () => {
  const [first] = await books.export('xero', '2026-01', '2026-01-21')
  expect(first).toMatchObject({outcome: 'written', rows: 2, files: 1, period: '2026-01'})
  expect(readManifest(first?.dir ?? '')).toMatchObject({
    period_complete: false,
    supersedes: [],
    bridge: {
      journal: {entries: 2, amount: '600.00'},
      issued_before: {entries: 0, amount: '0.00'},
      booked: {entries: 1, amount: '100.00'},
      left_out: {opening: {entries: 1, amount: '500.00'}},
      reversed: {entries: 0, amount: '0.00'},
    },
  })
  expect(await books.export('xero', '2026-01', '2026-01-21')).toEqual([{...first, outcome: 'unchanged'}])
  const [tables] = await books.export('csv', '2026-01', '2026-01-21')
  expect(readManifest(tables?.dir ?? '')).toMatchObject({as_of: '2026-01-20', period_complete: false})
  await walkOn('2026-01-25', 130)
  const [second] = await books.export('xero', '2026-01', '2026-01-26')
  expect(second).toMatchObject({outcome: 'written', rows: 2})
  expect(second?.batch_id).not.toBe(first?.batch_id)
  expect(books.sumBatches('xero', '2026-01')).toEqual({1200: 13_000n, 1090: -13_000n})
  expect(await books.export('xero', '2026-01', '2026-01-26', true)).toMatchObject([
    {outcome: 'written', rows: 2},
  ])
  // An opening balance stays once it is booked.
  expect(await books.export('xero', '2026-01', '2026-01-26')).toMatchObject([{outcome: 'unchanged'}])
  expect(books.sumBatches('xero', '2026-01')).toEqual({1200: 63_000n, 1090: -63_000n})
})

test('opening balances of a month before the first one that a profile gets are refused, not left out in silence', async () => {
  await walkOn('2026-02-03', 130)
  const late = await failureOf(books.export('xero', '2026-02', '2026-02-04', true))
  expect(late).toMatchObject({code: 'PERIOD_STATE', exitCode: 2})
  expect(late.message).toContain('belong to 2026-01, before 2026-02')
  await books.export('xero', '2026-01', '2026-02-04')
  expect(await books.export('xero', '2026-02', '2026-02-04', true)).toMatchObject([{period: '2026-01'}, {}])
  expect(books.sumBatches('xero', '')).toEqual({1200: 63_000n, 1090: -63_000n})
  const {terms} = await closePeriod(books.config, {period: '2026-01'}, books.at('2026-02-04'))
  expect(terms[0]).toMatchObject({term: 'opening', booked: '500.00', because: null})
})

test('what a dead command wrote down is not issued again by one that continued beside it', async () => {
  const january = {profiles: ['xero'], period: '2026-01', withOpening: false}
  const dying = {...books.at('2026-01-21'), ...dyingAt('act written')}
  await failureOf(exportRelease(books.config, january, dying))
  // This command compared the stores before the other one died.
  const beside = exportRelease(books.config, january, books.at('2026-01-21'))
  expect(await failureOf(beside)).toMatchObject({code: 'STORES_DISAGREE', exitCode: 2})
  expect(await books.export('xero', '2026-01', '2026-01-21')).toMatchObject([{outcome: 'written', rows: 2}])
  expect(await books.export('xero', '2026-01', '2026-01-21')).toMatchObject([{outcome: 'unchanged'}])
  expect(books.sumBatches('xero', '2026-01')).toEqual({1200: 10_000n, 1090: -10_000n})
})

test('a restarted history reverses nothing that was issued from the one before', async () => {
  await books.export('xero', '2026-01', '2026-01-21')
  for (const name of readdirSync(books.folder.root).filter((file) => /^warehouse\./.test(file)))
    rmSync(join(books.folder.root, name))
  await walkOn('2026-01-25', 100)
  const failure = await failureOf(books.export('xero', '2026-01', '2026-01-26'))
  expect(failure).toMatchObject({code: 'JOURNAL_HISTORY', exitCode: 2})
  expect(failure.message).toContain('it is another history, whose journal has nothing from before')
  expect(books.sumBatches('xero', '2026-01')).toEqual({1200: 10_000n, 1090: -10_000n})
})

test('a journal is issued only if its folder can be written; if its files then do not fit, the next export hands them over', async () => {
  const {exports} = books.folder
  const notWritable = {code: 'NOT_WRITABLE', exitCode: 2}
  writeFileSync(exports, 'a file where a folder should be')
  expect(await failureOf(books.export('xero', '2026-01', '2026-01-21'))).toMatchObject(notWritable)
  const {periods} = await listPeriods(books.config, books.at('2026-01-21'))
  expect(periods).toMatchObject([{batches: []}])
  rmSync(exports)

  const onStep = (step: RunStep) => {
    if (step === 'journal written') throw new Error('ENOSPC: no space left on device, write')
  }
  const request = {profiles: ['xero'], period: '2026-01'}
  const failure = await failureOf(exportRelease(books.config, request, books.at('2026-01-21', onStep)))
  const {stdout} = await books.run('export xero --period 2026-01 --preview', '2026-01-21', {}, [])
  expect(stdout).toContain('issued before, nothing new since')
  const [batch] = await books.export('xero', '2026-01', '2026-01-21')
  expect(batch).toMatchObject({outcome: 'written'})
  const {batch_id = ''} = batch ?? {}
  expect(failure).toMatchObject({
    code: 'DISK_FULL',
    problem: expect.stringMatching(
      `^Batch 'xero/${batch_id}' was issued, but .*; the next export of xero writes them. The disk .* full`,
    ),
    kept: 'It counts.',
  })
  rmSync(exports, {recursive: true})
  writeFileSync(exports, 'a file where a folder should be')
  const reissuing = async () => reissueBatch(books.config, batch_id, books.at('2026-01-21'))
  expect(await failureOf(reissuing())).toMatchObject(notWritable)
})

test('a new mapping of an open period reverses what was booked to the old accounts, if names tell accounts apart', async () => {
  const remap = async () => remapPeriods(books.config, {why: null}, books.at('2026-01-21'))
  expect((await failureOf(remap())).next).toBe('Export again: the difference to what was issued is booked.')
  const [first] = await books.export('xero', '2026-01', '2026-01-21')
  books.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1300', name: 'Funding  Clearing'}}})
  for (const profile of ['quickbooks', 'netsuite']) {
    const failure = await failureOf(books.export(profile, '2026-01', '2026-01-21'))
    expect(failure).toMatchObject({code: 'ACCOUNTING_MAPPING', exitCode: 2})
    expect(failure.message).toContain("'Funding  Clearing' (1300, 1090)")
  }
  const [second] = await books.export('xero', '2026-01', '2026-01-21')
  expect(readManifest(second?.dir ?? '')).toMatchObject({
    supersedes: [first?.batch_id],
    bridge: {
      issued_before: {entries: 0},
      booked: {entries: 1, amount: '100.00'},
      reversed: {entries: 1, amount: '100.00'},
    },
  })
  expect(books.sumBatches('xero', '2026-01')).toEqual({1300: 10_000n, 1090: -10_000n})
  books.map(DEFAULT_MAPPING)
  const [third] = await books.export('xero', '2026-01', '2026-01-21')
  books.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1400', name: 'Loans'}}})
  const [fourth] = await books.export('xero', '2026-01', '2026-01-21')
  expect(readManifest(fourth?.dir ?? '')).toMatchObject({supersedes: [third?.batch_id]})
})

test('a file names every account as accounting.json does now: two that exchange their names get what is theirs', async () => {
  // The importer finds an account by the digits that its name ends with.
  const map = (receivable: string, clearing: string) =>
    books.map({
      ...DEFAULT_MAPPING,
      receivable: {'*': {code: '1200', name: receivable}},
      clearing: {code: '1090', name: clearing},
    })
  const read = (batch = '') =>
    books
      .readBatches('quickbooks', '2026-01')
      [batch]?.map(({account, cents}) => `${account}: ${cents}`)
      .sort()
  map('Account 1', 'Account 2')
  const [first] = await books.export('quickbooks', '2026-01', '2026-01-21')
  expect(read(first?.batch_id)).toEqual(['1: 10000', '2: -10000'])
  map('Account 2', 'Account 1')
  await books.learnLate('2026-01-20', '2026-01-22', 'b', '130.00')
  const [second] = await books.export('quickbooks', '2026-01', '2026-01-22')
  const reversed = ['1: 10000', '2: -10000']
  const booked = ['1: -13000', '1: 3000', '2: -3000', '2: 13000']
  expect(read(second?.batch_id)).toEqual([...reversed, ...booked].sort())
  await walkOn('2026-02-02', 130)
  await closePeriod(books.config, {period: '2026-01'}, books.at('2026-02-03'))
  map('Account 3', 'Account 4')
  const [late] = await books.export('netsuite', '2026-01', '2026-02-03')
  expect(JSON.stringify(readFiles(late?.dir ?? ''))).toMatch(/Account 3.*Account 4|Account 4.*Account 3/)
})

test('an export says which account has another name than before, until a batch has it and is handed over', async () => {
  const say = async (day: string) =>
    (await books.run('export quickbooks --period 2026-01', day, {}, [])).stdout
  expect(await say('2026-01-21')).not.toContain('1200')
  books.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1200', name: 'Mortgages'}}})
  const words =
    /nothing new since\n.*\n {2}account 1200 is 'Mortgages' now, 'Loans receivable' before: .* another code/
  for (const _ of ['now', 'again']) expect(await say('2026-01-21')).toMatch(words)
  await walkOn('2026-01-25', 130)
  const dying = {...books.at('2026-01-26'), ...dyingAt('journal issued')}
  const request = {profiles: ['quickbooks'], period: '2026-01'}
  await expect(exportRelease(books.config, request, dying)).rejects.toThrow('died')
  expect(await say('2026-01-26')).toContain("1200 is 'Mortgages' now")
  expect(await say('2026-01-26')).not.toContain('1200')
})

test('months that are closed together end as they were closed, in whatever order they are exported', async () => {
  openOther()
  const walkAll = (day: string, ...[a, b, c]: [amount: number, status: string][]) => {
    const dealOf = ([loan_amount, status]: [number, string] = [1, 'draft']) => ({loan_amount, status})
    return books.walk(day, {a: dealOf(a), b: dealOf(b), c: dealOf(c)})
  }
  await walkAll('2026-01-05')
  await walkAll('2026-01-20', [100, 'funded'], [7, 'draft'], [50, 'funded'])
  await walkAll('2026-01-28', [100, 'funded'], [7, 'draft'], [80, 'funded'])
  await walkAll('2026-02-10', [130, 'funded'], [7, 'draft'], [80, 'funded'])
  for (const month of ['2026-01', '2026-02']) await books.export('xero', month, '2026-02-11')
  await walkAll('2026-02-15', [130, 'funded'], [7, 'funded'], [80, 'paid_off'])
  await walkAll('2026-03-02', [130, 'funded'], [7, 'funded'], [80, 'funded'])
  // What is learnt about January undoes entries issued for January and February.
  await books.learnLate('2026-01-25', '2026-03-03', 'a', '150.00')
  await books.learnLate('2026-01-25', '2026-03-03', 'c', '60.00')
  await walkAll('2026-04-02', [130, 'funded'], [7, 'funded'], [80, 'funded'])
  const months = ['2026-01', '2026-02', '2026-03']
  for (const period of months) await closePeriod(books.config, {period}, books.at('2026-04-03'))
  await buildRelease(books.config, {}, books.at('2026-04-03'))
  const ends = [...months, '2026-04'].map((month) => `${month}-31`)
  using asClosed = openBooks(books)
  for (const order of [months, months.toReversed()]) {
    openOther(asClosed)
    for (const month of order) await books.export('xero', month, '2026-04-03')
    expect(receivableOn(...ends), order.join()).toEqual([23_000n, 13_700n, 21_700n, 21_700n])
  }
})

test('an export issues what other months were closed with before what became known since, so that none stands as closed and as corrected', async () => {
  openOther()
  const walkBoth = (day: string, a: number, b = 'draft') =>
    books.walk(day, {a: {loan_amount: a, status: 'funded'}, b: {loan_amount: 7, status: b}})
  await books.walk('2026-01-05', {a: {loan_amount: 100}, b: {loan_amount: 7}})
  await walkBoth('2026-01-20', 100)
  await walkBoth('2026-02-10', 130)
  using begunBoth = openBooks(books)
  await books.export('xero', '2026-01', '2026-02-11')
  // January is closed with 110 and corrected to 150 afterwards, before anybody exported it again.
  await books.learnLate('2026-01-21', '2026-02-11', 'a', '110.00')
  await closePeriod(books.config, {period: '2026-01'}, books.at('2026-02-12'))
  await books.learnLate('2026-01-22', '2026-02-13', 'a', '150.00')
  const exported = async (month: string, day: string) =>
    (await books.export('xero', month, day)).map(({period}) => period)
  expect(await exported('2026-02', '2026-02-14')).toEqual(['2026-01', '2026-01', '2026-02'])
  expect(receivableOn('2026-01-31', '2026-02-28')).toEqual([11_000n, 13_000n])

  openOther(begunBoth)
  for (const month of ['2026-01', '2026-02']) await books.export('xero', month, '2026-02-11')
  await walkBoth('2026-02-15', 130, 'funded')
  await walkBoth('2026-03-02', 130, 'funded')
  for (const period of ['2026-01', '2026-02'])
    await closePeriod(books.config, {period}, books.at('2026-03-03'))
  await books.learnLate('2026-01-25', '2026-03-03', 'a', '150.00')
  expect(await exported('2026-01', '2026-03-04')).toEqual(['2026-01', '2026-02', '2026-02'])
  expect(receivableOn('2026-02-28', '2026-03-01')).toEqual([13_700n, 13_700n])

  openOther(begunBoth)
  const state = (like: string) => books.seed('status', `status,like\nbought,${like}\n`)
  state('funded')
  await walkBoth('2026-02-15', 130, 'bought')
  await walkBoth('2026-03-02', 130, 'bought')
  for (const month of ['2026-01', '2026-02']) await books.export('xero', month, '2026-03-03')
  state('approved')
  for (const period of ['2026-01', '2026-02'])
    await closePeriod(books.config, {period}, books.at('2026-03-03'))
  state('funded')
  expect(await exported('2026-01', '2026-03-04')).toEqual(['2026-02', '2026-02', '2026-01'])
  expect(receivableOn('2026-02-28', '2026-03-01')).toEqual([13_000n, 13_700n])
})

test('an export issues closed months that were left out, oldest first, from the first one of its profile on', async () => {
  openClosed()
  await walkOn('2026-02-20', 130)
  await walkOn('2026-03-20', 160)
  await walkOn('2026-04-02', 160)
  for (const period of ['2026-02', '2026-03']) {
    // What is to be issued as it was closed keeps its dates.
    const {not_issued} = await closePeriod(books.config, {period}, books.at('2026-04-03'))
    expect(not_issued).toEqual([])
  }
  await buildRelease(books.config, {}, books.at('2026-04-03'))
  const exported = async (profile: string) =>
    (await books.export(profile, '2026-03', '2026-04-03')).map(({period}) => period)
  expect(await exported('netsuite')).toEqual(['2026-03'])
  expect(await exported('xero')).toEqual(['2026-02', '2026-03'])
  expect(receivableOn('2026-01-31', '2026-02-28', '2026-03-31')).toEqual([10_000n, 13_000n, 16_000n])
  const {periods} = await listPeriods(books.config, books.at('2026-04-03'))
  const listed = periods.map(({not_issued}) => not_issued.map(({profile}) => profile))
  expect(listed).toEqual([['netsuite'], ['netsuite'], [], []])
})

test('closing says which corrections of earlier months would now be dated after the month', async () => {
  openOther(corrected)
  await walkOn('2026-03-02', 130)
  const close = async (day: string) => (await books.run('period close 2026-02', day, {}, [])).stdout
  expect(await close('2026-03-03')).toContain(
    'Not yet issued of 2026-01: xero 1 entry, 50.00. What became known of 2026-01 since its closing is now dated after 2026-02: to date it in 2026-02, reopen 2026-02, export 2026-01, close 2026-02 again.',
  )
  const why = ['--why', 'a late correction']
  expect((await books.run('period reopen 2026-02', '2026-03-03', {}, why)).code).toBe(0)
  await books.export('xero', '2026-01', '2026-03-03')
  expect(await close('2026-03-03')).not.toContain('Not yet issued')
  expect(receivableOn('2026-02-01')).toEqual([15_000n])
})

test('a closed period keeps dates and bytes; later knowledge is dated in the open period', async () => {
  openOther(corrected)
  const before = books.readBatches('xero', '2026-01')
  const [late] = await books.export('xero', '2026-01', '2026-02-05')
  const {[late?.batch_id ?? '']: told, ...others} = books.readBatches('xero', '2026-01')
  expect(others).toEqual(before)
  const memo = expect.stringMatching(/, of 2026-01-22$/)
  expect(told).toMatchObject([
    {date: '2026-02-01', account: '1200', cents: 5000n, memo},
    {date: '2026-02-01', account: '1090', cents: -5000n, memo},
  ])
  const listed = await listPeriods(books.config, books.at('2026-02-05'))
  expect(listed).toMatchObject({
    periods: [{period: '2026-01', state: 'closed', closed: {loans: 2, amount: '600.00'}}, {state: 'open'}],
  })
  // After ten years there are 120 registers: a list of months reads none of them.
  using stateDb = openStateDb(books.folder.stateDb)
  stateDb.run(`update closed_period set register = x'', lines = x''`)
  expect(await listPeriods(books.config, books.at('2026-02-05'))).toEqual(listed)
})

test('a reopened period is booked again, in whatever month is exported: what was dated after it comes back; all that was done to it is kept', async () => {
  openOther(corrected)
  // The first funding of the day takes the place of the one issued.
  await books.learnLate('2026-01-20', '2026-02-05', 'b', '130.00')
  await books.export('xero', '2026-01', '2026-02-06')
  const ends = ['2026-01-31', '2026-02-01', '2026-03-31']
  expect(receivableOn(...ends)).toEqual([10_000n, 15_000n, 15_000n])
  reopenPeriod(books.config, {period: '2026-01', why: 'late invoice'}, books.at('2026-02-07'))
  await books.run('build', '2026-02-07')
  const said = await books.run('period list', '2026-02-07', {}, [])
  expect(said.stdout).toContain('2026-01: not yet issued: xero 4 entries, 310.00')
  await walkOn('2026-02-10', 160)
  await books.export('xero', '2026-02', '2026-02-11')
  expect(receivableOn(...ends)).toEqual([15_000n, 15_000n, 16_000n])
  expect(await books.export('xero', '2026-01', '2026-02-11')).toMatchObject([{outcome: 'unchanged'}])
  await closePeriod(books.config, {period: '2026-01', why: 'booked'}, books.at('2026-02-12'))
  const {events} = await listPeriods(books.config, books.at('2026-02-12'))
  const [who, at] = [userInfo().username, (day: string) => `${day}T17:00:00.000Z`]
  expect(events).toEqual([
    {period: '2026-01', action: 'close', at: at('2026-02-03'), who, why: null},
    {period: '2026-01', action: 'reopen', at: at('2026-02-07'), who, why: 'late invoice'},
    {period: '2026-01', action: 'close', at: at('2026-02-12'), who, why: 'booked'},
  ])
})

test('of two equal entries of a month, the export that books one in an earlier month reverses it', async () => {
  await books.export('xero', '2026-01', '2026-01-21')
  await walkOn('2026-02-10', 130)
  await walkOn('2026-02-12', 160)
  const [february] = await books.export('xero', '2026-02', '2026-02-13')
  await books.learnLate('2026-01-25', '2026-02-14', 'b', '130.00')
  const batches = await books.export('xero', '2026-01', '2026-02-15')
  const [one, none] = [{entries: 1, amount: '30.00'}, {entries: 0}]
  expect(batches.map(({dir}) => readManifest(dir))).toMatchObject([
    {period: '2026-01', supersedes: [], bridge: {booked: one, reversed: none}},
    {period: '2026-02', supersedes: [february?.batch_id], bridge: {booked: none, reversed: one}},
  ])
  expect(books.sumBatches('xero', '')).toEqual({1200: 16_000n, 1090: -16_000n})
})

test('opening balances found later belong to a profile that booked any, whichever month they are of', async () => {
  openOther()
  const deals = (amount: number, status = 'funded') => ({
    a: {loan_amount: '9999999999999999.99', status: 'funded'},
    b: {loan_amount: '9999999999999999.99', status: 'funded'},
    late: {loan_amount: amount, status},
  })
  await books.walk('2026-01-05', deals(-5))
  // Their sum has more digits than the amount of any deal.
  expect(await books.export('xero', '2026-01', '2026-01-06', true)).toMatchObject([
    {rows: 4, terms: [{term: 'opening', booked: '19999999999999999.98', unbooked: '0.00'}]},
  ])
  await books.walk('2026-02-10', deals(50))
  await books.walk('2026-03-10', deals(50, 'paid_off'))
  await buildRelease(books.config, {}, books.at('2026-03-11'))
  expect(await books.export('intacct', '2026-02', '2026-03-11')).toMatchObject([{outcome: 'empty'}])
  for (const outcome of ['written', 'unchanged']) {
    const {periods} = await listPeriods(books.config, books.at('2026-03-11'))
    expect(periods[1]?.not_issued).toHaveLength(outcome === 'written' ? 1 : 0)
    const terms = [{term: 'found', booked: '50.00', because: null}]
    expect(await books.export('xero', '2026-02', '2026-03-11')).toMatchObject([{outcome, terms}])
  }
  await books.export('xero', '2026-03', '2026-03-11')
  expect(books.sumBatches('xero', '')).toEqual({
    1080: 50_00n,
    1090: -19999999999999999_98n - 50_00n,
    1200: 19999999999999999_98n,
  })
})

test('a profile first exported after later knowledge gets the closed journal first, even if the present release cannot be built', async () => {
  openClosed()
  const early = await books.export('intacct', '2026-01', '2026-02-03')
  const asClosed = readFiles(early[0]?.dir ?? '')
  // Forgets that anything was exported.
  {
    using stateDb = openStateDb(books.folder.stateDb)
    stateDb.db.exec('delete from issued_line; delete from journal_file; delete from journal_batch')
  }
  rmSync(books.folder.exports, {recursive: true})
  rmSync(books.folder.releases, {recursive: true})
  await books.learnLate('2026-01-22', '2026-02-04', 'b', '150.00')
  const batches = await books.export('intacct', '2026-01', '2026-02-05')
  expect(batches.map(({rows}) => rows)).toEqual([2, 2])
  expect(readFiles(batches[0]?.dir ?? '')).toEqual(asClosed)
  books.seed('status', 'state\nfunded\n')
  const {code, kept} = await failureOf(books.export('xero', '2026-01', '2026-02-05'))
  const [issued] = Object.keys(books.readBatches('xero', '2026-01'))
  expect([code, kept]).toEqual(['SEED_FILE', `These batches were written, and they count: xero/${issued}.`])
  expect(books.sumBatches('xero', '')).toEqual({1200: 10_000n, 1090: -10_000n})
})

test('an issued batch that is lost is found by verify, and comes back by --reissue or the next export, byte for byte', async () => {
  openClosed()
  const [batch] = await books.export('xero', '2026-01', '2026-02-03')
  const {dir = '', batch_id = ''} = batch ?? {}
  const before = readFiles(dir)
  const verify = async () => (await verifyAll(books.config, books.at('2026-02-03'))).problems
  await pruneData({...books.config, batchesKept: 1}, {isDryRun: false}, books.at('2026-02-03'))
  expect(await verify()).toEqual([])

  rmSync(books.folder.exports, {recursive: true})
  expect(await verify()).toEqual([
    {
      path: 'exports',
      problem: `Batch 'xero/${batch_id}' was issued, but is missing.`,
      next: expect.stringContaining(`loantape export --reissue ${batch_id}`),
    },
  ])
  rmSync(books.folder.releases, {recursive: true})
  const reissued = reissueBatch(books.config, batch_id, books.at('2026-02-04'))
  expect(reissued).toMatchObject([{dir, batch_id, outcome: 'written'}])
  expect(readFiles(dir)).toEqual(before)

  const manifest = join(dir, 'manifest.json')
  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace('"xero"', '"xera"'))
  expect(await verify()).toMatchObject([{problem: expect.stringContaining('manifest.json is another')}])
  rmSync(manifest)
  mkdirSync(manifest)
  expect(await verify()).toMatchObject([{problem: expect.stringContaining('has no readable manifest')}])
  rmSync(manifest, {recursive: true})
  const file = join(dir, `xero_${batch_id}.csv`)
  writeFileSync(file, readFileSync(file, 'utf8').replace('100.00', '900.00'))
  expect(await books.export('xero', '2026-01', '2026-02-03')).toMatchObject([{outcome: 'unchanged'}])
  expect(readFiles(dir)).toEqual(before)
  using stateDb = openStateDb(books.folder.stateDb)
  stateDb.run(`update journal_file set content = x'00'`)
  const unread = {
    problem: expect.stringContaining('its files in the state database cannot be read'),
    next: CATALOGUE.STATE_UNREADABLE.next,
  }
  expect(await verify()).toMatchObject([unread])
  const reissuing = () => reissueBatch(books.config, batch_id, books.at('2026-02-04'))
  expect(reissuing).toThrow(expect.objectContaining({code: 'STATE_UNREADABLE', ...unread}))
})

test('an act takes effect as a whole or not at all, also in the copy that a preview is made in', async () => {
  await books.export('netsuite', '2026-01', '2026-01-21')
  const issued = readIssued()
  using stateDb = openStateDb(books.folder.stateDb)
  const lines = listIssuedLines(stateDb, 'netsuite', {period: '2026-01'})
  const again = {...listBatches(stateDb)[0]!, batch_id: '2026-01-other', lines, files: []}
  const batches = [{...again, profile: 'intacct'}, again]
  expect(() => applyAct(stateDb, {act: 'batch issued', at: '', batches})).toThrow('issued already')
  expect(readIssued()).toEqual(issued)
})

test('a batch of thousands of lines is on its tape in parts, and comes back from there whole', async () => {
  await books.export('netsuite', '2026-01', '2026-01-21', true)
  {
    using acting = openForActs(books.config, books.at('2026-01-21'))
    const batch = {...listBatches(acting.stateDb)[0]!, profile: 'intacct', files: []}
    const line = listIssuedLines(acting.stateDb, 'netsuite')[0]!
    const lines = Array.from({length: 12_000}, (_, number) => ({...line, journal_no: `LT-${number}`}))
    acting.perform(() => ({act: 'batch issued', at: '', batches: [{...batch, lines}]}))
  }
  expect(compareBooks(books.config)).toEqual([])
  const {tables} = readIssued()
  loseStateDb()
  expect(await books.export('netsuite', '2026-01', '2026-01-21')).toMatchObject([{outcome: 'unchanged'}])
  expect(readIssued().tables).toEqual(tables)
})

test('after an act was given up with its tape, a state database lost later is refused: nothing is issued twice', async () => {
  await books.export('xero', '2026-01', '2026-01-21')
  rmSync(books.folder.tapes, {recursive: true})
  await goOn(books.config, 'a disk died', books.at('2026-01-21'))
  expect(await books.export('xero', '2026-01', '2026-01-21')).toMatchObject([{outcome: 'unchanged'}])
  loseStateDb()
  rmSync(books.folder.exports, {recursive: true})
  const failure = await failureOf(books.export('xero', '2026-01', '2026-01-21'))
  expect(failure).toMatchObject({code: 'STORES_DISAGREE', exitCode: 2})
  expect(failure.message).toContain('state.sqlite: it lacks 1 act')
  await goOn(books.config, 'the state database, too', books.at('2026-01-21'))
  expect(await books.export('xero', '2026-01', '2026-01-21')).toMatchObject([{outcome: 'written'}])
})

test('after a restore the last batches in it are named, and batches given up are to be deleted in the books', async () => {
  const {root, exports} = books.folder
  const [saved, kept] = [join(root, '../saved'), join(root, '../exports')]
  const issue = async (day: string, amount: number) => {
    await walkOn(day, amount)
    const [batch] = await books.export('quickbooks', '2026-01', '2026-01-25')
    return `quickbooks/${batch?.batch_id}`
  }
  const say = async (line: string) => (await books.run(line, '2026-01-25', {}, [])).stdout
  await issue('2026-01-22', 120)
  const last = await issue('2026-01-23', 130)
  await say(`backup ${saved}`)
  const lost = await issue('2026-01-24', 140)
  cpSync(exports, kept, {recursive: true})
  rmSync(root, {recursive: true})
  expect(await say(`restore ${saved}`)).toContain(`Last journal batch in it: ${last}.`)
  cpSync(kept, exports, {recursive: true})
  const warning = `Delete what your books imported of ${lost}: what it held is issued again.`
  expect(await say('tape go-on --why died')).toContain(warning)
  expect(await say('period true-up')).toContain(warning)
})

test('a stop while others hold the warehouse is not shown as a reason why nothing can be issued', async () => {
  openClosed()
  using _held = await takeFileLock(books.folder.warehouseLock, 'write', 0)
  using stateDb = openStateDb(books.folder.stateDb)
  const world = {...books.at('2026-02-03'), signal: AbortSignal.abort()}
  expect(await failureOf(findRefusal(stateDb, books.folder, world))).toMatchObject({code: 'INTERRUPTED'})
})

/** Reads everything ever issued, and every file handed out. */
function readIssued() {
  using stateDb = openStateDb(books.folder.stateDb)
  const tables = ['journal_batch', 'journal_file', 'issued_line'].map((name) =>
    stateDb.all(anyRow, `select * from ${name}`),
  )
  const {exports} = books.folder
  return {tables, files: existsSync(exports) ? readdirSync(exports, {recursive: true}).sort() : []}
}

test('a preview equals what the export then issues, of an open and of a closed month, and issues nothing itself', async () => {
  const compare = async (profile: string, day: string, withOpening: boolean) => {
    const before = readIssued()
    const request = {profiles: [profile], period: '2026-01', withOpening}
    const shown = await previewExport(books.config, request, books.at(day))
    expect(readIssued()).toEqual(before)
    const batches = await books.export(profile, '2026-01', day, withOpening)
    expect(shown.map(({batch}) => batch)).toEqual(batches.map((batch) => ({...batch, dir: ''})))
    for (const {name, head} of shown[0]?.files ?? []) {
      const written = readFileSync(join(batches[0]?.dir ?? '', name), 'utf8')
      expect(written.split('\n').slice(0, 5).join('\n')).toBe(head)
    }
    return shown
  }
  expect(await compare('intacct', '2026-01-21', false)).toMatchObject([
    {
      batch: {outcome: 'written'},
      accounts: [
        {account_code: '1090', debit: '0.00', credit: '100.00'},
        {account_code: '1200', lines: 1, debit: '100.00', credit: '0.00'},
      ],
      files: [{}],
    },
  ])
  openOther(corrected)
  expect(await compare('netsuite', '2026-02-05', true)).toHaveLength(2)
  const february = {profiles: ['netsuite'], period: '2026-02'}
  const nothing = await previewExport(books.config, {...february}, books.at('2026-02-05'))
  expect(nothing).toMatchObject([{batch: {outcome: 'empty'}, accounts: [], files: []}])
})

test('a closed period keeps its mapping; balances move only with remap, once, however many months were closed since', async () => {
  openClosed()
  const remap = (day: string) => remapPeriods(books.config, {why: 'forgotten'}, books.at(day))
  expect(() => remap('2026-02-03')).toThrow(/nothing to move/)
  books.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1300', name: 'Other'}}})
  expect(await books.export('xero', '2026-01', '2026-02-03')).toMatchObject([{outcome: 'unchanged'}])
  expect(await books.export('netsuite', '2026-02', '2026-02-03')).toMatchObject([
    {outcome: 'empty', batch_id: ''},
  ])
  await walkOn('2026-02-10', 130)
  await walkOn('2026-03-02', 130)
  await closePeriod(books.config, {period: '2026-02'}, books.at('2026-03-03'))
  await buildRelease(books.config, {}, books.at('2026-03-03'))
  expect(await books.export('xero', '2026-03', '2026-03-03')).toMatchObject([
    {period: '2026-02', outcome: 'written'},
    {period: '2026-03', outcome: 'empty'},
  ])
  const listOpen = async () =>
    (await listPeriods(books.config, books.at('2026-03-03'))).periods[2]?.not_issued
  expect(await listOpen()).toEqual([])
  expect(remap('2026-03-03')).toEqual({outcome: 'remapped', period: '2026-03'})
  expect(await listOpen()).toMatchObject([{profile: 'xero', entries: null}])
  await buildRelease(books.config, {}, books.at('2026-03-03'))
  expect(await listOpen()).toMatchObject([{profile: 'xero', entries: 2}])
  expect(remap('2026-03-03').outcome).toBe('unchanged')
  await books.export('xero', '2026-03', '2026-03-03')
  expect(books.sumBatches('xero', '2026-03')).toEqual({1300: 60_000n, 1200: -60_000n})
})

test('whatever a program is called, accounting init names it, and it can have an account of its own', async () => {
  openOther()
  const programs = ['Bridge', 'Bridge ', 'line\nend', 'code', 'name', '__proto__', 'x'.repeat(8192)]
  const deals = (status: string) =>
    Object.fromEntries(programs.map((loan_program, at) => [`d${at}`, {loan_amount: 1, loan_program, status}]))
  const file = join(books.folder.root, 'accounting.json')
  rmSync(file)
  await books.walk('2026-01-05', deals('draft'))
  await books.walk('2026-01-20', deals('funded'))
  await buildRelease(books.config, {}, books.at('2026-01-21'))
  const own = programs.filter((name) => name !== '__proto__')
  const named = await initAccounting(books.config)
  expect(named.programs.sort()).toEqual(own.toSorted())
  setAccounts(books.folder)
  const {receivable, ...others} = JSON.parse(readFileSync(file, 'utf8'))
  expect(receivable).toMatchObject(Object.fromEntries(own.map((name) => [name, {code: '1200'}])))
  const accounts = own.map((name, at) => [name, {code: `120${at + 1}`, name: `Loans ${at + 1}`}] as const)
  books.map({...others, receivable: {...receivable, ...Object.fromEntries(accounts)}})
  await books.export('xero', '2026-01', '2026-01-21')
  const codes = ['1200', ...accounts.map(([, {code}]) => code)]
  expect(books.sumBatches('xero', '')).toEqual({
    1090: -7_00n,
    ...Object.fromEntries(codes.map((code) => [code, 1_00n])),
  })
})

test('a program that becomes known in a closed period can be mapped once that is reopened', async () => {
  openOther()
  const mapped = {...DEFAULT_MAPPING, receivable: {bridge: {code: '1210', name: 'Bridge'}}}
  books.map(mapped)
  const deal = (status: string) => ({a: {loan_amount: 100, loan_program: 'bridge', status}})
  await books.walk('2026-01-05', deal('draft'))
  await books.walk('2026-01-20', deal('funded'))
  await books.walk('2026-02-02', deal('funded'))
  await closePeriod(books.config, {period: '2026-01'}, books.at('2026-02-03'))
  await books.learnLate('2026-01-22', '2026-02-04', 'a', '100.00', 'dscr')
  const receivable = {...mapped.receivable, dscr: {code: '1220', name: 'DSCR'}}
  books.map({...mapped, receivable})
  const preview = previewExport(books.config, {profiles: ['xero'], period: '2026-01'}, books.at('2026-02-05'))
  expect((await failureOf(preview)).kept).toBe('Nothing was issued or closed.')
  const failure = await failureOf(books.export('xero', '2026-01', '2026-02-05'))
  expect(failure).toMatchObject({code: 'ACCOUNTING_UNMAPPED'})
  const [issued] = Object.keys(books.readBatches('xero', '2026-01'))
  expect(failure.kept).toBe(`These batches were written, and they count: xero/${issued}.`)
  expect(failure.message).toContain('journal of 2026-01: programs "dscr".')
  expect(failure.message).toContain('loantape period reopen 2026-01 --why')
  expect(books.sumBatches('xero', '2026-01')).toEqual({1210: 10_000n, 1090: -10_000n})
  reopenPeriod(books.config, {period: '2026-01', why: 'dscr was not named'}, books.at('2026-02-05'))
  await books.export('xero', '2026-01', '2026-02-05')
  expect(books.sumBatches('xero', '2026-01')).toMatchObject({1220: 10_000n, 1090: -10_000n})
})

test('tables of a closed period are those it was closed with', async () => {
  openClosed()
  const request = {profiles: ['csv'], tables: ['accounting.loan_register'], period: '2026-01'}
  const [before] = await exportRelease(books.config, request, books.at('2026-02-03'))
  expect(readManifest(before?.dir ?? '')).toMatchObject({
    as_of: '2026-01-31',
    period: '2026-01',
    period_complete: true,
    files: [{rows: 2, sum_amount: '600.00'}, {name: 'datapackage.json'}],
  })
  await books.learnLate('2026-01-22', '2026-02-04', 'b', '150.00')
  books.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1300', name: 'Other'}}})
  const sqlDir = join(books.folder.root, 'sql')
  const model = 'accounting/loan_register.sql'
  mkdirSync(join(sqlDir, 'accounting'), {recursive: true})
  writeFileSync(
    join(sqlDir, model),
    readFileSync(join(SQL, model), 'utf8').replace('\nwhere', '\nwhere false and'),
  )
  const [after] = await exportRelease({...books.config, sqlDir}, request, books.at('2026-02-05'))
  expect(after).toEqual({...before, outcome: 'unchanged'})
  const bytes = readFiles(before?.dir ?? '')
  for (const lost of [books.folder.releases, books.folder.exports]) rmSync(lost, {recursive: true})
  // Months that an earlier version closed have their terms in another order.
  using stateDb = openStateDb(books.folder.stateDb)
  stateDb.run(
    `update closed_period set terms = (select json_group_array(json(value) order by key desc) from json_each(terms))`,
  )
  expect(await exportRelease(books.config, request, books.at('2026-02-05'))).toEqual([before])
  expect(readFiles(before?.dir ?? '')).toEqual(bytes)
  for (const lost of [books.folder.releases, sqlDir]) rmSync(lost, {recursive: true})
  books.seed('funded_on', 'deal_id,funded_on:date\nb,2026-01-10\n')
  const failure = await failureOf(exportRelease(books.config, request, books.at('2026-02-05')))
  expect(failure).toMatchObject({code: 'PERIOD_STATE', exitCode: 2})
  expect(failure.message).toContain('another journal or loan register')
  expect(readFiles(before?.dir ?? '')).toEqual(bytes)
})

/** Exports January to Xero; calls `interfere` once, when the batch is first planned. */
function exportWhile(interfere: () => void) {
  let isDone = false
  const world = books.at('2026-02-05', (step) => {
    if (step !== 'journal planned' || isDone) return
    isDone = true
    interfere()
  })
  return exportRelease(books.config, {profiles: ['xero'], period: '2026-01'}, world)
}

test('what another export issues meanwhile is neither issued twice nor reversed', async () => {
  const env = {LOANTAPE_DATA_DIR: books.folder.root, LOANTAPE_NOW: '2026-01-21T17:00:00Z'}
  const batches = await exportWhile(() => {
    const args = [MAIN, 'export', 'xero', '--period', '2026-01', '--with-opening']
    const {status, stderr} = spawnSync(process.execPath, args, {env: {...process.env, ...env}})
    expect(status, String(stderr)).toBe(0)
  })
  expect(batches).toMatchObject([{outcome: 'unchanged'}])
  expect(books.sumBatches('xero', '2026-01')).toEqual({1200: 60_000n, 1090: -60_000n})
})

test('a journal whose period is reopened meanwhile is not issued', async () => {
  openOther(corrected)
  const exporting = exportWhile(() => {
    reopenPeriod(books.config, {period: '2026-01', why: 'meanwhile'}, books.at('2026-02-05'))
  })
  // A job tries again by itself.
  expect(await failureOf(exporting)).toMatchObject({code: 'JOURNAL_STALE', exitCode: 4})
  expect(books.sumBatches('xero', '2026-01')).toEqual({1200: 10_000n, 1090: -10_000n})
})

test('nothing is issued or closed under accounts that were changed while it was read', async () => {
  const other = {...DEFAULT_MAPPING, receivable: {'*': {code: '1300', name: 'Other'}}}
  const stale = {code: 'JOURNAL_STALE', message: expect.stringContaining('accounting.json')}
  expect(await failureOf(exportWhile(() => books.map(other)))).toMatchObject(stale)
  expect(readIssued().tables.flat()).toEqual([])
  await walkOn('2026-02-02', 100)
  const onProgress = ({step}: {step: string}) => void (step === 'preparing' && books.map(DEFAULT_MAPPING))
  const closing = closePeriod(books.config, {period: '2026-01'}, {...books.at('2026-02-03'), onProgress})
  expect(await failureOf(closing)).toMatchObject(stale)
  expect((await listPeriods(books.config, books.at('2026-02-03'))).events).toEqual([])
})
