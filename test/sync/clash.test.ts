import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, DAY_1, DAY_2, type Started, someDeals, startProcess} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'

const ON_DAY_2 = {LOANTAPE_NOW: DAY_2, LOANTAPE_PAGE_SIZE: '10'}

/** Longer than any test: a request held this long ends with the service. */
const HELD_MS = 3_600_000

/** Sixty deals released on the first day, and two more for the second. */
const lab = await useLab({tables: FEW_TABLES, deals: someDeals(60), releasedAt: DAY_1})
lab.service.store.insert([aDeal(61), aDeal(62)])
beforeEach(lab.remember())

/** Starts a sync of the second day whose request for page `nth` is not answered. */
async function startHeldSync(nth: number): Promise<Started> {
  lab.service.faults.add({match: {path: '/deals?', nth}, fault: {kind: 'delay', ms: HELD_MS}})
  const run = lab.start(['sync', '--json'], ON_DAY_2)
  lab.service.requests.clear()
  await until(() => countPageRequests() === nth)
  return run
}

function countPageRequests(): number {
  return lab.service.requests.entries.filter(({path}) => path.startsWith('/deals?')).length
}

/** Starts another program with the current release open. It counts the deals at once, and again for each line sent to it. */
function openAsAnalyst(): Started {
  const engine = join(import.meta.dirname, '../../node_modules/@duckdb/node-api/lib/index.js')
  const script = `
    import {DuckDBInstance} from ${JSON.stringify(engine)}
    const instance = await DuckDBInstance.create(process.argv[1], {access_mode: 'READ_ONLY'})
    const connection = await instance.connect()
    const count = async () => {
      const rows = await connection.runAndReadAll('select count(*) as deals from core.deal')
      process.stdout.write(rows.getRowObjectsJson()[0].deals + ';')
    }
    await count()
    process.stdin.on('data', count)`
  const file = join(lab.folder.current, 'portfolio.duckdb')
  return startProcess([process.execPath, '--input-type=module', '--eval', script, file], {})
}

async function waitForPrint(run: Started, text: string): Promise<void> {
  await until(() => run.printed().stdout.length >= text.length)
  expect(run.printed().stdout).toBe(text)
}

test('while a sync runs, a second is refused with its pid and all can read; who had the release open before it goes on reading, even once it is pruned', async () => {
  const releaseId = lab.currentReleaseId()
  const first = await startHeldSync(3)
  using analyst = openAsAnalyst()
  const [second, status, query, build] = await Promise.all([
    lab.run(['sync', '--json'], ON_DAY_2),
    lab.run(['status', '--json']),
    lab.run(['query', 'select deals, amount from mart.portfolio_summary', '--json']),
    lab.run(['build', '--json'], ON_DAY_2),
  ])

  expect(second.code).toBe(4)
  const {error} = JSON.parse(second.stdout)
  expect(error).toMatchObject({code: 'RUN_IN_PROGRESS', exit_code: 4})
  const holder = `sync, pid ${first.process.pid} on .*started .*`
  expect(error.message).toMatch(new RegExp(`${holder}Nothing was changed; that run continues\\. Wait for it`))
  expect(JSON.parse(status.stdout)).toMatchObject({
    running: {command: 'sync', pid: first.process.pid},
    release: {release_id: releaseId},
  })
  expect(JSON.parse(query.stdout)).toEqual({rows: [{deals: 60, amount: '21000000.00'}]})
  expect(JSON.parse(build.stdout)).toMatchObject({outcome: 'unchanged', release_id: releaseId})
  await waitForPrint(analyst, '60;')

  first.process.kill('SIGKILL')
  await first.ended
  const after = await lab.run(['status'])
  expect(after.stdout).toContain('died')
  expect(after.stdout).not.toContain('Running')
  lab.service.faults.clear()
  const next = await lab.run(['sync', '--json'], ON_DAY_2, {releasesKept: 1})
  expect(JSON.parse(next.stdout)).toMatchObject({walk: {distinct: 62}, changes: {created: 2}})
  analyst.process.stdin?.write('again\n')
  await waitForPrint(analyst, '60;60;')
})

test('SIGTERM ends a walk amid a request that nobody answers, keeping its progress, and the next run resumes there', async () => {
  const first = await startHeldSync(4)
  first.process.kill('SIGTERM')
  const ended = await first.ended
  expect(ended.code).toBe(6)
  const {error} = JSON.parse(ended.stdout)
  expect(error).toMatchObject({code: 'INTERRUPTED', exit_code: 6})
  expect(error.message).toMatch(/GET \/deals .*Everything read so far is kept\. The next run continues/)

  lab.service.faults.clear()
  lab.service.requests.clear()
  const next = await lab.run(['sync', '--json'], ON_DAY_2)
  expect(JSON.parse(next.stdout)).toMatchObject({
    outcome: 'released',
    walk: {resumed: 1, pages: 7, records: 62, distinct: 62},
    changes: {created: 2, unchanged: 60},
  })
  expect(countPageRequests()).toBe(4)
})
