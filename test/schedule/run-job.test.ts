import {existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {DEFAULT_MAPPING, initAccounting} from '../../src/accounting/mapping.ts'
import {closePeriod, reopenPeriod} from '../../src/books/close-period.ts'
import type {World} from '../../src/core/types.ts'
import {USUAL_DIALECT} from '../../src/export/dialect.ts'
import {listAlarms} from '../../src/schedule/alarms.ts'
import {requireJob, type Step} from '../../src/schedule/job.ts'
import {performJob, runJob} from '../../src/schedule/run-job.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {BOOK_TABLES, openBooks, setAccounts} from '../support/books.ts'
import {balancesOf, importBatches} from '../support/importer.ts'
import {aJob} from '../support/jobs.ts'
import {failureOf, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'

const lab = await useLab({
  tables: `${BOOK_TABLES} +mart.funded_rollforward`,
  deals: someDeals(4, {status: 'draft'}),
})
await lab.walk('2026-05-28T23:00:00Z')
lab.service.store.update('deal_000001', {status: 'funded'})
await lab.sync('2026-06-02T23:00:00Z')
await initAccounting(lab.config)
setAccounts(lab.folder)

const monthEnd = (...steps: Step[]) => aJob({name: 'month-end', steps})

const moveAway = () => renameSync(lab.folder.root, `${lab.folder.root}-aside`)

const close: Step = {do: 'close_period', businessDay: 3, holidays: 'us-federal'}
const exportCsv: Step = {do: 'export', profiles: ['csv'], tables: ['core.deal'], period: 'previous'}

const runAt = (slot: string, now: string, ...steps: Step[]) =>
  runJob(lab.config, {job: monthEnd(...steps), slot: Date.parse(slot)}, lab.createWorld(now))

test('a job that closes a month ends successfully before its business day, its later steps and the first walk', async () => {
  expect(await runAt('2026-06-02T11:00:00Z', '2026-06-03T12:00:00Z', close, exportCsv)).toEqual({
    job: 'month-end',
    outcome: 'not_due',
    steps: [{do: 'close_period', result: {outcome: 'not_due', period: '2026-05'}, issued: []}],
  })
  const early = await runAt('2026-05-05T11:00:00Z', '2026-06-05T12:00:00Z', close)
  expect(early).toMatchObject({outcome: 'not_due'})
})

test('a month that no walk has seen the end of, or any day of, fails once it is due', async () => {
  for (const now of ['2026-07-07T12:00:00Z', '2026-08-07T12:00:00Z', '2027-01-07T12:00:00Z'])
    expect(await failureOf(runAt(now, now, close, exportCsv)), now).toMatchObject({
      code: 'PERIOD_STATE',
      exitCode: 2,
    })
})

test('on its business day it closes the previous month and writes its files, even if run late and again', async () => {
  const late = '2026-06-05T12:00:00Z'
  const first = await runAt('2026-06-03T11:00:00Z', late, close, exportCsv)
  expect(first.steps[0]).toMatchObject({
    do: 'close_period',
    result: {outcome: 'closed', period: '2026-05', loans: 0, terms: [], quarantine_waiting: 0},
  })
  expect(first.steps[1]).toMatchObject({do: 'export', result: [{profile: 'csv', outcome: 'written'}]})
  const again = await runAt('2026-06-03T11:00:00Z', late, close, exportCsv)
  expect(again.steps).toMatchObject([{result: {outcome: 'unchanged'}}, {result: [{outcome: 'unchanged'}]}])
})

test('after its business day it continues with a closed month, leaves a reopened one alone, and closes a missed one', async () => {
  const runOn = (day: string) => runAt(`${day}T11:00:00Z`, '2026-06-05T12:00:00Z', close, exportCsv)
  const runOnDay4 = () => runOn('2026-06-04')
  expect((await runOnDay4()).steps).toMatchObject([
    {result: {outcome: 'unchanged'}},
    {result: [{outcome: 'unchanged'}]},
  ])
  reopenPeriod(lab.config, {period: '2026-05', why: 'a late correction'}, lab.createWorld())
  using stateDb = openStateDb(lab.folder.stateDb)
  const signed = {period: '2026-05', at: '2026-06-04T09:00:00Z', who: 'us', why: null}
  for (const action of ['remap', 'true-up']) stateDb.insert('period_event', {...signed, action})
  for (const day of ['2026-06-03', '2026-06-04'])
    expect(await runOn(day)).toMatchObject({outcome: 'not_due', steps: [{do: 'close_period'}]})
  stateDb.db.exec('delete from period_event')
  expect((await runOnDay4()).steps[0]).toMatchObject({result: {outcome: 'closed', period: '2026-05'}})
})

test('a run that catches up writes the files for the day of its slot, in the dialect that the step names', async () => {
  const step: Step = {...exportCsv, period: undefined, dialect: {...USUAL_DIALECT, delimiter: ';'}}
  const {steps} = await runAt('2026-06-01T03:30:00Z', '2026-06-03T12:00:00Z', step)
  const [batch] = steps.flatMap((done) => (done.do === 'export' ? done.result : []))
  expect(batch?.batch_id).toMatch(/^2026-05-31-/)
  expect(readFileSync(join(batch?.dir ?? '', 'core.deal.csv'), 'utf8')).toMatch(/^deal_id;property_address;/)
  const onTime = await runAt('2026-06-03T12:00:00Z', '2026-06-03T12:00:10Z', step)
  expect(onTime.steps[0]).toMatchObject({result: [{batch_id: expect.stringMatching(/^2026-06-02-/)}]})
})

test('a separate step delivers what this run has written', async () => {
  const [targetsFile, path] = ['targets.json', 'share'].map((name) => join(lab.folder.root, '..', name))
  mkdirSync(path!)
  writeFileSync(targetsFile!, JSON.stringify({share: {kind: 'folder', path}}))
  const job = monthEnd(exportCsv, {do: 'deliver', targets: ['share']})
  const {steps} = await runJob({...lab.config, targetsFile}, {job}, lab.createWorld('2026-06-03T12:00:00Z'))
  expect(steps[1]).toMatchObject({do: 'deliver', result: [{target: 'share', outcome: 'delivered'}]})
})

test('the month-end job makes up for a closed month that was not exported, with its tables', async () => {
  const job = requireJob(lab.config, 'month-end')
  const runOn = (day: string) =>
    runJob(lab.config, {job, slot: Date.parse(`${day}T11:00:00Z`)}, lab.createWorld(`${day}T12:00:00Z`))
  const walkOn = async (day: string, id: string, status: string) => {
    lab.service.store.update(id, {status})
    await lab.sync(`${day}T23:00:00Z`)
  }
  expect(job.enabled).toBe(false)
  expect(await runOn('2026-06-03')).toMatchObject({outcome: 'done'})
  await walkOn('2026-07-02', 'deal_000002', 'funded')
  await runOn('2026-07-06')
  await walkOn('2026-08-03', 'deal_000003', 'funded')
  await closePeriod(lab.config, {period: '2026-07'}, lab.createWorld('2026-08-20T12:00:00Z'))
  await lab.sync('2026-09-02T23:00:00Z')
  // Xero begins with August, whatever QuickBooks made up for.
  job.steps.splice(2, 0, {do: 'export', profiles: ['xero'], period: 'previous'})
  const {steps} = await runOn('2026-09-03')
  const written = (...months: string[]) =>
    months.map((month) => ({outcome: 'written', batch_id: expect.stringContaining(month)}))
  expect(steps).toMatchObject([
    {result: {outcome: 'closed', period: '2026-08'}, issued: written('2026-07-')},
    {result: written('2026-08-')},
    {result: written('2026-08-')},
    {result: written('2026-07-31', '2026-08-31')},
  ])
})

test('a job that closes a month first issues and delivers what became known of earlier ones, so that it is dated in the month, but not while its targets cannot be read', async () => {
  using books = openBooks()
  const walkOn = (day: string, loan_amount: number, status = 'funded') =>
    books.walk(day, {a: {loan_amount, status}})
  const exporting: Step = {do: 'export', profiles: ['xero'], period: 'previous'}
  const deliver: Step = {do: 'deliver', targets: ['bank']}
  const runOn = (day: string, steps: Step[] = [close, exporting]) => {
    const job = monthEnd(...steps)
    return runJob(books.config, {job, slot: Date.parse(`${day}T11:00:00Z`)}, books.at(day))
  }
  await walkOn('2026-01-05', 100, 'draft')
  await walkOn('2026-01-20', 100)
  await walkOn('2026-02-02', 100)
  await runOn('2026-02-04')
  await books.learnLate('2026-01-22', '2026-02-10', 'a', '150.00')
  await walkOn('2026-03-02', 150)
  const delivered = {outcome: 'delivered', batch_id: expect.stringContaining('2026-01-')}
  const {root} = books.folder
  books.config.targetsFile = join(root, 'targets.json')
  const delivering = [close, exporting, deliver]
  for (const steps of [delivering, delivering.slice(1)])
    expect(await failureOf(runOn('2026-03-04', steps))).toMatchObject({code: 'TARGETS_INVALID'})
  mkdirSync(join(root, 'bank'))
  writeFileSync(books.config.targetsFile, JSON.stringify({bank: {kind: 'folder', path: join(root, 'bank')}}))
  expect(await runOn('2026-03-04', delivering)).toMatchObject({
    steps: [
      {
        result: {outcome: 'closed', period: '2026-02', not_issued: []},
        issued: [{period: '2026-01', outcome: 'written'}],
      },
      {result: [{period: '2026-02', outcome: 'empty'}]},
      {result: [delivered, delivered]},
    ],
  })
  expect(balancesOf(importBatches(books.folder.exports, 'xero'), '2026-02-28')['1200']).toBe(15_000n)
  expect(await runOn('2026-03-05')).toMatchObject({steps: [{result: {outcome: 'unchanged'}, issued: []}, {}]})
  await books.learnLate('2026-01-23', '2026-03-10', 'a', '170.00')
  for (const day of ['2026-03-20', '2026-04-02']) await walkOn(day, 150, 'elsewhere')
  expect(await failureOf(runOn('2026-04-03'))).toMatchObject({
    code: 'ACCOUNTING_UNMAPPED',
    kept: expect.stringMatching(/^These batches were written, and they count: xero\/2026-01-\w+\.$/),
  })
})

test('a later month that cannot be issued keeps none before it from being closed and delivered, and is an alarm until the next run makes up for it', async () => {
  using books = openBooks()
  const {root} = books.folder
  books.config.targetsFile = join(root, 'targets.json')
  mkdirSync(join(root, 'bank'))
  writeFileSync(books.config.targetsFile, JSON.stringify({bank: {kind: 'folder', path: join(root, 'bank')}}))
  const map = (...programs: string[]) =>
    books.map({
      ...DEFAULT_MAPPING,
      receivable: Object.fromEntries(programs.map((name) => [name, {code: '1200', name: 'Loans'}])),
    })
  const walkOn = (day: string, amount: number, status = 'draft') =>
    books.walk(day, {
      a: {loan_amount: amount, loan_program: 'bridge', status: 'funded'},
      b: {loan_amount: 7, loan_program: 'dscr', status},
    })
  const steps: Step[] = [close, {do: 'export', profiles: ['xero'], period: 'previous', deliver: ['bank']}]
  const runOn = (day: string) => performJob(books.config, {job: monthEnd(...steps)}, books.at(day))
  const alarms = () => {
    using stateDb = openStateDb(books.folder.stateDb)
    const watched = {config: books.config, release: undefined, jobs: [{name: 'month-end'}]}
    return listAlarms(stateDb, watched, Date.parse('2026-02-05')).map(
      ({title, words}) => `${title}: ${words}`,
    )
  }
  const ends = () => {
    const lines = importBatches(books.folder.exports, 'xero')
    return ['01', '02', '03'].map((month) => balancesOf(lines, `2026-${month}-31`)['1200'])
  }
  map('bridge')
  await books.walk('2026-01-05', {a: {loan_amount: 100, loan_program: 'bridge'}})
  await walkOn('2026-01-20', 100)
  await walkOn('2026-02-02', 130)
  for (const month of ['2026-01', '2026-02']) await books.export('xero', month, '2026-02-03')
  // The increase turns out to be of January, and in February a loan is funded whose program has no account.
  await books.learnLate('2026-01-25', '2026-02-03', 'a', '130.00')
  await walkOn('2026-02-03', 130, 'funded')
  const left = (period: string, code: string) => ({period, outcome: 'left', batch_id: '', because: {code}})
  expect(await runOn('2026-02-04')).toMatchObject({
    steps: [
      {result: {outcome: 'closed', period: '2026-01'}},
      {
        result: [{period: '2026-01', outcome: 'written'}, left('2026-02', 'ACCOUNTING_UNMAPPED')],
        deliveries: [{}, {batch_id: expect.stringContaining('2026-01-'), outcome: 'delivered'}],
      },
    ],
  })
  expect(ends()).toEqual([13_000n, 16_000n, 16_000n])
  expect(alarms()).toEqual([
    expect.stringMatching(
      /^Job month-end could not issue entries of 2026-02 to xero \[ACCOUNTING_UNMAPPED\]: .* of 2026-02: /,
    ),
  ])
  const said = await books.run('export xero --period 2026-01 --preview', '2026-02-04', {}, [])
  expect(said.stdout).toMatch(
    /new from 2026-02 on is not issued; .* Without an account in the journal of 2026-02/,
  )
  map('bridge', 'dscr')
  await books.export('xero', '2026-01', '2026-02-05')
  expect(ends()).toEqual([13_000n, 13_700n, 13_700n])

  // What January still lacks is issued before February is closed, although the deals of March fail a check.
  await walkOn('2026-03-01', 160, 'funded')
  await books.export('xero', '2026-03', '2026-03-02')
  await books.learnLate('2026-01-26', '2026-03-02', 'a', '150.00')
  await books.learnLate('2026-02-20', '2026-03-02', 'a', '150.00')
  books.config.sqlDir = join(root, 'sql')
  mkdirSync(join(books.config.sqlDir, 'checks'), {recursive: true})
  const check =
    '-- No loan is of 160.\n-- severity: error\nselect deal_id from core.deal where loan_amount = 160\n'
  writeFileSync(join(books.config.sqlDir, 'checks/no_160.sql'), check)
  expect(await runOn('2026-03-04')).toMatchObject({
    steps: [
      {result: {outcome: 'closed', not_issued: []}, issued: [{period: '2026-01'}, {period: '2026-02'}]},
      {result: [{period: '2026-02', outcome: 'unchanged'}, left('2026-03', 'CHECK_FAILED')]},
    ],
  })
  expect(ends()).toEqual([13_000n, 15_700n, 18_700n])
  books.config.sqlDir = undefined
  expect(alarms()).toHaveLength(1)
  await runOn('2026-03-05')
  expect(ends()).toEqual([13_000n, 15_700n, 16_700n])
  expect(alarms()).toEqual([])
})

test('a job writes tables of months that are over, although its journal brings one that is not up to date', async () => {
  using books = openBooks()
  for (const [day, loan_amount] of [
    ['2026-01-20', 100],
    ['2026-02-01', 130],
  ] as const)
    await books.walk(day, {a: {loan_amount, status: 'funded'}})
  await books.export('xero', '2026-02', '2026-02-02')
  await books.walk('2026-02-03', {a: {loan_amount: 140, status: 'funded'}})
  const tables: Step = {...exportCsv, tables: ['accounting.loan_register']}
  const job = monthEnd({do: 'export', profiles: ['xero'], period: 'previous'}, tables)
  const slot = Date.parse('2026-02-04T11:00:00Z')
  expect(await runJob(books.config, {job, slot}, books.at('2026-02-04'))).toMatchObject({
    steps: [
      {result: [{period: '2026-02', outcome: 'written'}, {period: '2026-01'}]},
      {result: [{batch_id: expect.stringContaining('2026-01-31')}]},
    ],
  })
})

test('a manually requested run is recorded, with its error message', async () => {
  const job = aJob({name: 'to-postgres', steps: [{do: 'publish', to: 'postgres'}]})
  await failureOf(performJob(lab.config, {job}, lab.createWorld()))
  using stateDb = openStateDb(lab.folder.stateDb)
  const row = stateDb.db.prepare(`select * from job_run where job = 'to-postgres'`).get()
  expect(row).toMatchObject({slot: null, state: 'failed', exit_code: 2, error_code: 'CONFIG_MISSING'})
})

test('a run that a server claimed makes no data folder anew where it was moved away', async () => {
  const config = {...lab.config, dataDir: `${lab.folder.root}-moved`}
  const claim = {job_run_id: 1, attempt: 1}
  const failure = await failureOf(performJob(config, {job: monthEnd(close), claim}, lab.createWorld()))
  expect(failure).toMatchObject({code: 'STATE_UNREADABLE'})
  expect(existsSync(config.dataDir)).toBe(false)
})

test.each<[string, Partial<World>]>([
  ['before a step', {onProgress: ({step}) => step === 'sync' && moveAway()}],
  ['before its first page', {onStep: (step) => step === 'warehouse opened' && moveAway()}],
])('a run makes no data folder anew where it was moved away %s', async (_when, changes) => {
  const world = {...lab.createWorld('2026-06-04T23:00:00Z'), ...changes}
  await failureOf(performJob(lab.config, {job: monthEnd({do: 'build'}, {do: 'sync'})}, world))
  const isMadeAnew = existsSync(lab.folder.root)
  rmSync(lab.folder.root, {recursive: true, force: true})
  renameSync(`${lab.folder.root}-aside`, lab.folder.root)
  expect(isMadeAnew).toBe(false)
})

test('a claim given to another process is not executed', async () => {
  const claim = {job_run_id: 999, attempt: 1}
  const failure = await failureOf(performJob(lab.config, {job: monthEnd(close), claim}, lab.createWorld()))
  expect(failure).toMatchObject({code: 'RUN_TAKEN', exitCode: 2})
})
