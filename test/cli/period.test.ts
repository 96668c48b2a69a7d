import {execFileSync} from 'node:child_process'
import {readdirSync, rmSync, symlinkSync, truncateSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {closePeriod} from '../../src/books/close-period.ts'
import {JOURNAL_STEPS} from '../../src/core/types.ts'
import {exportRelease} from '../../src/outputs.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import {compareBooks} from '../../src/record/verify.ts'
import {openBooks} from '../support/books.ts'
import {writeJobFile} from '../support/jobs.ts'
import {failureOf} from '../support/lab.ts'
import {dyingAt, useShared} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

/** January and February are walked and January is closed; it is March 3. */
const books = await useShared(openBooks())
const deals = (amount: number, status: string) => ({
  a: {loan_amount: amount, status, loan_program: 'bridge'},
})
await books.walk('2026-01-05', deals(100, 'draft'))
await books.walk('2026-01-20', deals(100, 'funded'))
await books.walk('2026-02-10', deals(130, 'funded'))
await books.walk('2026-03-02', deals(130, 'funded'))
await closePeriod(books.config, {period: '2026-01'}, books.at('2026-03-03'))
// Every copy has the release of February.
await books.readJournal('2026-02', '2026-03-03')

const run = (args: string, env: Record<string, string> = {}) => books.run(args, '2026-03-03', env)

const refusals: [args: string, code: string, words: string][] = [
  ['period close 2026-13', 'USAGE', "'2026-13'"],
  ['period close 2026-01', 'PERIOD_CLOSED', 'closed already'],
  ['period close 2026-03', 'PERIOD_STATE', 'expected 2026-02'],
  ['period close 2026-05', 'PERIOD_STATE', '2026-01 (the first walk) to 2026-03'],
  ['period close 2025-12', 'PERIOD_RANGE', "'2025-12'"],
  ['period reopen 2026-02 --why x', 'PERIOD_STATE', 'not closed'],
  ['period reopen 2026-01 --why ', 'USAGE', '--why'],
  ['period reopen 2026-01', 'USAGE', '--why'],
  ['period remap', 'PERIOD_STATE', 'up to 2026-01 was booked to'],
  ['export xero', 'UNKNOWN_NAME', '--period YYYY-MM'],
  ['export sage --period 2026-02', 'UNKNOWN_NAME', 'quickbooks, xero'],
  ['export csv --period 2026-02 --as-of 2026-02-03', 'USAGE', '--as-of'],
  ['export', 'USAGE', 'expected a profile'],
  ['export --reissue 2026-02-x', 'UNKNOWN_NAME', "'2026-02-x'"],
  ['export --reissue x --period 2026-02', 'USAGE', "cannot be used with option '--period <month>'"],
  ['export xero --period 2026-02 --table core.deal', 'USAGE', '--table'],
  ['export csv --with-opening', 'USAGE', 'with quickbooks, xero'],
  ['export parquet --line-ending lf', 'USAGE', 'with csv'],
  ['export constructor', 'UNKNOWN_NAME', 'expected one of csv'],
  ['export xero --reissue x', 'USAGE', 'no profile'],
]

test('a closing or an export that cannot be is refused', async () => {
  for (const [args, code, words] of refusals) await expectRefused(run(args), code, words)
})

test('books are what the acts on the tapes make of them, even after months are closed, exported and reopened', async () => {
  using copy = openBooks(books)
  const env = {LOANTAPE_DATA_DIR: copy.folder.root}
  await copy.export('xero', '2026-01', '2026-03-03')
  expect(compareBooks(copy.config)).toEqual([])
  copy.map({...DEFAULT_MAPPING, receivable: {'*': {code: '1300', name: 'Other'}}})
  for (const args of ['close 2026-02', 'remap', 'reopen 2026-02 --why again']) {
    if (args.startsWith('reopen'))
      await expectRefused(
        run('period reopen 2026-01 --why x', env),
        'PERIOD_STATE',
        'while 2026-02 is closed',
      )
    expect((await run(`period ${args}`, env)).code).toBe(0)
    expect(compareBooks(copy.config)).toEqual([])
  }
  for (const profile of ['netsuite', 'quickbooks', 'intacct'])
    for (const month of ['2026-01', '2026-02']) await copy.export(profile, month, '2026-03-03')
  // What was to be moved in March is moved in February, now the first open month.
  expect(copy.sumBatches('intacct', '2026-02')).toMatchObject({1300: 13_000n, 1200: -10_000n})
  for (const end of ['', '-wal', '-shm']) rmSync(`${copy.folder.stateDb}${end}`, {force: true})
  await bringUpToDate(copy.config, copy.at('2026-03-03'))
  expect(compareBooks(copy.config)).toEqual([])
})

test('a month that has ended but is not observed to its end cannot be closed; closing says what is unreadable', async () => {
  using late = openBooks(books)
  const env = {LOANTAPE_DATA_DIR: late.folder.root, LOANTAPE_NOW: '2026-04-03T17:00:00Z'}
  const closed = {outcome: 'closed', period: '2026-02', entries: 1, loans: 1, amount: '130.00'}
  expect(readJson(await run('period close 2026-02', env))).toMatchObject(closed)
  // Before the day's cutoff.
  const early = {...env, LOANTAPE_NOW: '2026-04-01T05:30:00-04:00'}
  await expectRefused(run('period close 2026-03', early), 'PERIOD_STATE', 'today counts as 2026-03-31')
  const words =
    'it ends on 2026-03-31, today counts as 2026-04-03, and the last complete walk counts for 2026-03-02'
  await expectRefused(run('period close 2026-03', env), 'PERIOD_STATE', words)
  // A version of one deal is not a walk.
  await late.learnLate('2026-04-01', '2026-04-02', 'a', '130.00')
  await expectRefused(run('period close 2026-03', env), 'PERIOD_STATE', words)
  await late.walk('2026-04-02', {...deals(130, 'funded'), b: {loan_amount: -5}})
  const {stdout} = await late.run('period close 2026-03', '2026-04-03', {}, [])
  expect(stdout).toContain('No complete walk saw its last day; a later one did.')
  expect(stdout).toContain('Quarantine: 1 record waits; `loantape quarantine reasons` shows it.')
})

test('a mapping that cannot be read is refused at once, by name and field', async () => {
  using copy = openBooks(books)
  const file = join(copy.folder.root, 'accounting.json')
  const expectUnread = (args: string, words: string[], env: Record<string, string> = {}) =>
    expectRefused(run(args, {LOANTAPE_DATA_DIR: copy.folder.root, ...env}), 'ACCOUNTING_MAPPING', words)
  writeFileSync(file, JSON.stringify({...DEFAULT_MAPPING, clearing: undefined}))
  await expectUnread('export xero --period 2026-02', ['clearing: ', `'${file}'`])
  const elsewhere = {LOANTAPE_ACCOUNTING_FILE: 'nowhere.json'}
  await expectUnread('build', ["'nowhere.json': cannot be read (ENOENT)"], elsewhere)
  truncateSync(file, 1e9)
  await expectUnread('build', ['cannot be read (longer than 64 MiB)'])
  rmSync(file)
  execFileSync('mkfifo', [file])
  await expectUnread('build', ['cannot be read (a pipe)'])
  rmSync(file)
  symlinkSync('nowhere', file)
  await expectUnread('build', ['cannot be read (ENOENT)'])
})

test("a program without an account, or a batch beyond its importer's limits, stops an export", async () => {
  using copy = openBooks(books)
  const tell = (args: string, day = '2026-03-03') => copy.run(args, day)
  const {'*': any, ...others} = DEFAULT_MAPPING.receivable
  const exporting = 'export xero --period 2026-02'
  const dscrAlone = {...DEFAULT_MAPPING, receivable: {...others, dscr: any!}}
  copy.map(dscrAlone)
  await expectRefused(tell(exporting), 'ACCOUNTING_UNMAPPED', 'journal of 2026-02: programs "bridge".')
  copy.map({...DEFAULT_MAPPING, clearing: {code: '1090-FUNDING', name: 'Clearing'}})
  const tooLong = '12 characters in *AccountCode: expected at most 10'
  await expectRefused(tell(exporting), 'JOURNAL_FILE', tooLong, 3)
  expect(readJson(await tell('period list'))).toMatchObject({periods: [{}, {batches: []}, {}]})
  // The program that it was booked under counts, though no deal has it now.
  copy.map(dscrAlone)
  await copy.walk('2026-03-03', {a: {loan_amount: 130, status: 'funded', loan_program: 'dscr'}})
  await tell('build', '2026-03-04')
  const {stdout} = await tell('doctor', '2026-03-04')
  expect(stdout).toContain('Without an account: programs \\"bridge\\".')
})

test('a loan under a status without a class is neither taken off the books nor closed until the status has one', async () => {
  using copy = openBooks(books)
  copy.seed('status', 'status,like\n')
  const env = {LOANTAPE_SQL_DIR: copy.config.sqlDir ?? ''}
  const tell = (args: string) => copy.run(args, '2026-04-02', env)
  using gone = openBooks(copy)
  for (const day of ['2026-03-05', '2026-03-06']) await gone.walk(day, {})
  await gone.walk('2026-03-31', deals(130, 'in workout'))
  const exporting = 'export xero --period 2026-03'
  const back = gone.run(exporting, '2026-04-02')
  await expectRefused(back, 'ACCOUNTING_UNMAPPED', "with the status 'in workout'")

  await copy.walk('2026-03-05', deals(130, 'extended'))
  await copy.walk('2026-03-31', deals(130, 'extended'))
  expect((await tell('period close 2026-02')).code).toBe(0)
  const words = ["Deal 'a' left the funded book in 2026-03 with the status 'extended'", '`extended,funded`']
  for (const args of [exporting, `${exporting} --preview`, 'period close 2026-03'])
    await expectRefused(tell(args), 'ACCOUNTING_UNMAPPED', words)
  copy.seed('status', 'status,like\nextended,funded\n')
  const closed = {entries: 0, loans: 1, amount: '130.00', last_day_walked_at: '2026-03-31T23:30:00Z'}
  expect(readJson(await tell('period close 2026-03'))).toMatchObject(closed)
  copy.seed('status', 'status,like\nextended,approved\n')
  expect(readJson(await tell(exporting))).toMatchObject({
    batches: [{outcome: 'written', terms: [{term: 'reversed', booked: '130.00'}]}],
  })
})

test('of two closings at once one closes the month, and the other is told so', async () => {
  using copy = openBooks(books)
  const closings = [1, 2].map(() => closePeriod(copy.config, {period: '2026-02'}, copy.at('2026-03-03')))
  const refused = (await Promise.allSettled(closings)).filter(({status}) => status === 'rejected')
  expect(refused).toMatchObject([{reason: {code: 'PERIOD_CLOSED'}}])
  const {events} = readJson(await copy.run('period list', '2026-03-03')) as {events: object[]}
  expect(events).toHaveLength(2)
})

test('entries not yet issued are listed by profile and month, closed months included', async () => {
  using copy = openBooks(books)
  const tell = (args: string, env = {}) => copy.run(args, '2026-03-03', env)
  const listed = async (env = {}) => readJson(await tell('status', env)).not_issued
  await copy.export('xero', '2026-01', '2026-03-03')
  await tell('build')
  const february = {profile: 'xero', period: '2026-02', entries: 1, amount: '30.00'}
  expect(await listed()).toEqual([february])
  const {receivable} = DEFAULT_MAPPING
  copy.map({...DEFAULT_MAPPING, receivable: {...receivable, a: receivable['*']!}})
  expect(await listed()).toEqual([february])
  copy.map({...DEFAULT_MAPPING, clearing: {code: '1091', name: 'Funding'}})
  const unknown = [{profile: 'xero', period: '2026-03', entries: null, amount: null}]
  expect(await listed()).toEqual(unknown)
  writeFileSync(join(copy.folder.root, 'accounting.json'), '{}')
  expect(await listed()).toEqual(unknown)
  expect((await tell('doctor')).stdout).toContain('of 2026-03: xero unknown until `loantape build` has read')
  copy.map(DEFAULT_MAPPING)
  // A true funding date becomes known after January was closed.
  copy.seed('funded_on', 'deal_id,funded_on:date\na,2026-01-18\n')
  const seeded = {LOANTAPE_SQL_DIR: copy.config.sqlDir ?? ''}
  expect((await tell('build', seeded)).code).toBe(0)
  expect(readJson(await tell('period list', seeded))).toMatchObject({
    periods: [
      {period: '2026-01', state: 'closed', not_issued: [{profile: 'xero', entries: 2, amount: '200.00'}]},
      {period: '2026-02', state: 'open', not_issued: [{profile: 'xero', entries: 1, amount: '30.00'}]},
      {period: '2026-03', not_issued: []},
    ],
  })
  const steps = [{do: 'export', profiles: ['intacct'], period: 'previous'}]
  writeJobFile(copy.folder.root, 'books', {schedule: '0 7 * * *', steps})
  const named = {profile: 'intacct', period: '2026-01', entries: 1, amount: '100.00'}
  expect(await listed({LOANTAPE_JOBS_DIR: copy.folder.root})).toContainEqual(named)
  // A profile that was given up for another one: nothing is missing there.
  await copy.export('netsuite', '2026-01', '2026-10-03')
  const rest = (await listed(seeded)) as {profile: string}[]
  expect(new Set(rest.map(({profile}) => profile))).toEqual(new Set(['netsuite']))
})

// The proof `kill-writes` kills an export before each of its writes.
test.each(JOURNAL_STEPS)("an export that dies at '%s' is caught up by the next", async (step) => {
  using copy = openBooks(books)
  const dying = {...copy.at('2026-03-03'), ...dyingAt(step)}
  const request = {profiles: ['xero'], period: '2026-02'}
  expect((await failureOf(exportRelease(copy.config, request, dying))).message).toContain('died')
  const outcome = step === 'journal handed over' ? 'unchanged' : 'written'
  expect(await copy.export('xero', '2026-02', '2026-03-03')).toMatchObject([{outcome, rows: 2}])
  expect(await copy.export('xero', '2026-02', '2026-03-03')).toMatchObject([{outcome: 'unchanged'}])
  expect(copy.sumBatches('xero', '2026-02')).toEqual({1200: 3000n, 1090: -3000n})
  expect(readdirSync(join(copy.folder.exports, 'xero')).filter((name) => name.startsWith('.'))).toEqual([])
})

test('ids and codes of accounts that look like amounts are shown as they are', async () => {
  using own = openBooks()
  const loans = {'*': {code: '1200.10', name: 'Loans'}}
  const ended = {...DEFAULT_MAPPING.ended, other: {code: '1099.00', name: 'Suspense'}}
  own.map({...DEFAULT_MAPPING, receivable: loans, clearing: {code: '1090.20', name: 'Funding'}, ended})
  await own.walk('2026-01-30', {'2000.25': {status: 'draft', loan_amount: 1000}})
  await own.walk('2026-01-31', {'2000.25': {status: 'funded', loan_amount: 1000}})
  const print = async (line: string, width?: number) =>
    (await own.run(line, '2026-02-01', {}, [], width)).stdout
  await print('build')
  const preview = await print('export xero --period 2026-01 --preview')
  expect(preview).toMatch(/^1200\.10 {2}Loans +1 +1,000\.00 +0\.00$/m)
  expect(await print('diff 2026-01-30')).toMatch(/^2000\.25 .* \+1,000\.00$/m)
  expect(await print('diff')).toMatch(/ \(as of 2026-01-31\), compared with itself: no total moved\.$/m)

  // In a narrow terminal each row is a record; one with 0 columns does not know its size.
  expect(await print('diff 2026-01-30', 15)).toMatch(/^movement +\+1,000\.00$/m)
  expect(await print('diff 2026-01-30', 0)).toMatch(/^2000\.25 .* \+1,000\.00$/m)
})
