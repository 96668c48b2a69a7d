import {execFileSync} from 'node:child_process'
import {mkdirSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {openDatabase} from '../../src/store/database.ts'
import {FEW_TABLES} from '../support/data.ts'
import {disableBuiltInJobs, readState, writeJobFile} from '../support/jobs.ts'
import {DAY_1, MAIN, someDeals, startProcess, stopProcess, untilListens} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {expectRefused, readStanding} from './outcome.ts'

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(60)})
await lab.sync(DAY_1, {config: {detail: 'off'}})
const [jobs, sql] = ['jobs', 'sql'].map((name) => join(lab.folder.root, '..', name)) as [string, string]
mkdirSync(jobs)
mkdirSync(join(sql, 'mart'), {recursive: true})
disableBuiltInJobs(jobs)
const settings = {
  ...lab.env,
  LOANTAPE_JOBS_DIR: jobs,
  LOANTAPE_WEB_PORT: '0',
  LOANTAPE_DETAIL: 'off',
  LOANTAPE_SQL_DIR: sql,
}

/** A model too big for a build's memory. */
const BIG = `-- Too much.
-- grain: deal_id
-- deal_id: All of them.
select list(repeat(r.range || deal.deal_id, 50))::varchar as deal_id
from core.deal as deal, range(10000) as r
`

/** Makes the warehouse longer than anything else a load writes; returns its length in 512-byte blocks. */
async function fillWarehouse(): Promise<number> {
  const {warehouse} = lab.folder
  await using db = await openDatabase({attach: [{path: warehouse, alias: 'history'}]})
  await db.run('create table history.main.filling as select md5(range::varchar) as text from range(800000)')
  await db.run('checkpoint history')
  return Math.floor(statSync(warehouse).size / 512)
}

const untilRun = (where: string) =>
  until(() => readState(lab.folder.stateDb, `select * from job_run where ${where} order by job_run_id`)[0])

test('a query that needs too much memory ends with its exit code and says what to do', async () => {
  const sql = 'select list(range) from range(20000000)'
  const query = lab.run(['query', sql, '--json'], {...settings, LOANTAPE_MEMORY_MB: '64'})
  const words = /needs more memory .*nothing was changed\. Filter or aggregate more/
  await expectRefused(query, 'QUERY_MEMORY', words)
})

test('runs that lack memory or lose the database fail by name, the server stays up, and the next slot succeeds', async () => {
  lab.service.store.insert(someDeals(120).slice(60))
  writeFileSync(join(sql, 'mart/big.sql'), BIG)
  writeJobFile(jobs, 'each-second', {})
  const blocks = await fillWarehouse()
  // Further writes fail as on a full disk. A soft limit, so that it can be lifted again.
  const script = `trap '' XFSZ; ulimit -S -f ${blocks}; exec "$0" "$@"`
  const env = {...settings, LOANTAPE_MEMORY_MB: '150', NODE_COMPILE_CACHE: ''}
  using serve = startProcess(['sh', '-c', script, process.execPath, MAIN, 'serve'], env)
  const url = await untilListens(serve)
  const expectWell = async () => {
    for (const [path, answer] of Object.entries({healthz: 'ok\n', readyz: 'ready\n'}))
      expect(await (await fetch(`${url}/${path}`)).text()).toBe(answer)
  }
  const failed = await untilRun(`state = 'failed'`)
  expect(failed).toMatchObject({exit_code: 3, error_code: 'BUILD_MEMORY', attempt: 1})
  expect(failed.error).toMatch(/'mart\.big' in .* needs more than 150 MB of memory/)
  await expectWell()
  rmSync(join(sql, 'mart/big.sql'))

  const full = await untilRun(`error_code = 'DISK_FULL'`)
  expect(full).toMatchObject({exit_code: 1, state: 'failed', error: expect.stringMatching(/invalidated/)})
  await expectWell()
  execFileSync('prlimit', ['--pid', String(serve.process.pid), '--fsize=unlimited'])
  await untilRun(`state = 'done'`)
  await expectWell()
  expect(await readStanding(lab.folder)).toMatchObject({summary: [{deals: '120'}]})
  expect(await stopProcess(serve)).toBe(0)
})
