import {existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join, resolve} from 'node:path'
import {afterAll, expect, test} from 'vitest'
import {z} from 'zod'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {openRelease, requireRelease} from '../../src/store/release.ts'
import {runCommand} from '../support/command.ts'
import {createWorld} from '../support/data.ts'
import {writeJobFile} from '../support/jobs.ts'
import {DAY_2, type Ended, MAIN, startProcess} from '../support/lab.ts'
import {until} from '../support/until.ts'
import {expectRefused, readJson} from './outcome.ts'

/** The tables a demo reads from its releases. */
const TABLES = '+core.deal +mart.portfolio_summary +mart.portfolio_breakdown'

const root = mkdtempSync(join(tmpdir(), 'loantape-demo-'))
afterAll(() => rmSync(root, {recursive: true, force: true}))

/** Runs a demo in this process, in the folder of a lender; its releases hold the tables a demo reads and the given ones. */
function demo(dataDir: string, options: readonly string[], tables = ''): Promise<Ended> {
  const args = ['demo', '--data', dataDir, '--deals', '60', '--days', '2', ...options]
  const env = {LOANTAPE_LOG_LEVEL: 'error', LOANTAPE_NOW: DAY_2, ...OF_LENDER}
  return runCommand(args, env, {select: `${TABLES} ${tables}`.trim()})
}

const OF_LENDER = {LOANTAPE_JOBS_DIR: join(root, 'jobs'), LOANTAPE_TARGETS_FILE: join(root, 'targets.json')}
const bank = {kind: 'folder', path: join(root, 'bank')}
writeFileSync(OF_LENDER.LOANTAPE_TARGETS_FILE, JSON.stringify({bank}))
mkdirSync(OF_LENDER.LOANTAPE_JOBS_DIR)
const steps = [{do: 'export', profiles: ['csv'], deliver: ['bank']}]
writeJobFile(OF_LENDER.LOANTAPE_JOBS_DIR, 'nightly', {steps})

test("the demo agrees with its release to the cent, its journals can be read, and a second run shows what there is and what to try next; a lender's own jobs are not its", async () => {
  const dataDir = join(root, 'twice')
  mkdirSync(dataDir)
  writeFileSync(join(dataDir, 'fields.json'), '{"note_rate": {"type": "text"}}')
  const first = readJson(
    await demo(dataDir, ['--json', '--seed', '3'], '+accounting.* +mart.funded_rollforward'),
  )
  await using db = await openRelease(requireRelease(dataFolderAt(dataDir)))
  const row = z.record(z.string(), z.unknown())
  expect(first).toMatchObject({
    days: [
      {day: '2026-02-02', changes: {created: 60}, webhooks: null},
      {day: '2026-02-03', webhooks: {outcome: 'applied', events: 6, deals: 6, appended: 6}},
    ],
    summary: await db.one(
      row,
      `select cast(count(*) as integer) as deals, sum(loan_amount) as amount,
           cast(count(*) filter (where status = 'funded') as integer) as funded_deals,
           sum(loan_amount) filter (where status = 'funded') as funded_amount
         from core.deal`,
    ),
    by_status: await db.all(
      row,
      "select status as bucket, cast(count(*) as integer) as deals, sum(loan_amount) as amount from core.deal group by all order by min(list_position(['draft', 'underwriting', 'approved', 'funded', 'paid_off'], status))",
    ),
  })

  const preview = ['export', 'quickbooks', '--period', '2026-02', '--preview', '--data', dataDir]
  const journal = await runCommand(preview, {LOANTAPE_NOW: '2026-02-03T23:45:00-05:00'})
  expect(journal).toMatchObject({code: 0, stdout: expect.stringMatching(/^1200 +Loans receivable /m)})

  // As `report` and `docs` write them.
  for (const name of ['report-r_1.html', 'dictionary.html']) writeFileSync(join(dataDir, name), '')
  const more = '+mart.document_coverage +core.deal_extra'
  const {code, stdout, stderr} = await demo(dataDir, ['--seed', '3', '--days', '1'], more)
  expect({code, stderr}).toEqual({code: 0, stderr: ''})
  expect(stdout).toMatch(/^A Deal Financing Service with 60 deals listens on http/)
  expect(stdout.match(/^ {2}Released .* checks passed/gm)).toHaveLength(1)
  expect(stdout).toMatch(/^open +\d+ +\$[\d,]+\.\d\d +\d+\.\d %\nfunded +\d+ +\$[\d,]+\.\d\d +\d+\.\d %$/m)
  expect(stdout).toMatch(/^status +deals +amount +share$/m)
  const commands = [...stdout.matchAll(/^ {2}npx loantape query --data (.*) "(.*)"$/gm)]
  expect(commands).toHaveLength(2)
  for (const [, folder = '', sql = ''] of commands)
    expect(await runCommand(['query', '--data', folder, sql], {})).toMatchObject({code: 0})
  for (const [, file = ''] of stdout.matchAll(/^(?:Release:| {4}) *([^,\n]+)/gm)) {
    expect(existsSync(resolve(file)), file).toBe(true)
  }
  const mapping = ['query', '--data', dataDir, 'select count(note_rate) from core.deal_extra']
  expect(await runCommand(mapping, {})).toMatchObject({code: 0, stdout: expect.stringContaining('0')})
  expect(existsSync(bank.path)).toBe(false)
  writeFileSync(join(dataDir, 'accounting.json'), '{}')
  await expectRefused(demo(dataDir, ['--json']), 'DEMO_FOLDER', "holds 'accounting.json'")
})

test('the demo leaves a folder alone that has no mark, or the mark of another', async () => {
  for (const mark of [{}, {'.loantape-demo': 'mine\n'}]) {
    const dataDir = mkdtempSync(join(root, 'mine-'))
    const files = {...mark, 'warehouse.duckdb': 'years of work'}
    for (const [name, text] of Object.entries(files)) writeFileSync(join(dataDir, name), text)
    const words = / holds '.*': .* Nothing was changed\. .*--data/
    await expectRefused(demo(dataDir, ['--json']), 'DEMO_FOLDER', words)
    expect(readFileSync(join(dataDir, 'warehouse.duckdb'), 'utf8')).toBe('years of work')
  }
})

test('a demo that is asked to stop does not promise to continue', async () => {
  const createStopped = () => ({...createWorld(), signal: AbortSignal.abort()})
  const args = ['demo', '--data', join(root, 'stopped'), '--deals', '5', '--days', '1', '--json']
  const stopped = runCommand(args, {}, {createWorld: createStopped})
  await expectRefused(stopped, 'INTERRUPTED', /^The demo was asked to stop\. .* begins anew\.$/, 6)
})

test('no other command writes into a demo folder', async () => {
  const dataDir = mkdtempSync(join(root, 'marked-'))
  mkdirSync(join(dataDir, 'exports'))
  writeFileSync(join(dataDir, '.loantape-demo'), `This folder belongs to a demo.\npid ${process.pid}\n`)
  const env = {
    LOANTAPE_DATA_DIR: dataDir,
    LOANTAPE_BASE_URL: 'http://127.0.0.1:9',
    LOANTAPE_API_KEY: 'sk_test_x',
    LOANTAPE_WEBHOOK_SECRET: 'whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw',
  }
  const periods = ['period close 2026-01', 'export xero --period 2026-01']
  const writers = ['sync', 'run nightly', 'events apply', 'restore somewhere', 'quarantine replay', 'prune']
  for (const words of [...writers, ...periods]) {
    const refusal = /is a demo's.*Nothing was changed\. Name another with --data/
    await expectRefused(runCommand([...words.split(' '), '--json'], env), 'DEMO_FOLDER', refusal)
  }
  expect(existsSync(join(dataDir, 'warehouse.duckdb'))).toBe(false)
})

test('a demo takes a folder over only once the one running there is gone; a long one walks one night a week before its last three nights and releases only those', async () => {
  const dataDir = join(root, 'shared')
  using first = startProcess(
    [process.execPath, MAIN, 'demo', '--data', dataDir, '--deals', '20', '--days', '300'],
    {LOANTAPE_LOG_LEVEL: 'error'},
    root,
  )
  await until(() => first.printed().stdout.startsWith('A Deal'))
  first.process.kill('SIGSTOP')
  await expectRefused(demo(dataDir, ['--json']), 'RUN_IN_PROGRESS', `pid ${first.process.pid}`, 4)
  first.process.kill('SIGKILL')
  await first.ended
  const mark = join(dataDir, '.loantape-demo')
  // As if another process had its pid by now; this is noticed where the system says when processes started.
  const reused = readFileSync(mark, 'utf8').replace(/pid \d+/, `pid ${process.ppid}`)
  if (existsSync('/proc')) writeFileSync(mark, reused)
  const options = ['--json', '--deals', '15', '--days', '11']
  const {days} = readJson(await demo(dataDir, options, '+mart.run')) as {days: unknown[]}
  expect(readFileSync(mark, 'utf8')).not.toMatch(/pid/)
  expect(days).toHaveLength(3)
  const folder = dataFolderAt(dataDir)
  expect(readdirSync(folder.releases)).toHaveLength(3)
  await using db = await openRelease(requireRelease(folder))
  const walked = `select distinct business_date as day from mart.run where stream = 'deal' and is_complete order by day`
  expect((await db.column(z.string(), walked)).map((day) => day.slice(-2))).toEqual([
    '24',
    '31',
    '01',
    '02',
    '03',
  ])
})
