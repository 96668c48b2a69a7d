import {execFileSync} from 'node:child_process'
import {mkdirSync, rmSync, statSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, beforeEach, expect, test} from 'vitest'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {openDatabase} from '../../src/store/database.ts'
import {runCommand} from '../support/command.ts'
import {FEW_TABLES} from '../support/data.ts'
import {disableBuiltInJobs, readState, writeJobFile} from '../support/jobs.ts'
import {createLab, type Lab, MAIN, type Started, someDeals, startProcess} from '../support/lab.ts'
import {until} from '../support/until.ts'
import {readFailure, readJson, readStanding} from './outcome.ts'

let lab: Lab
let folder: DataFolder
let jobsDir: string
let settings: Record<string, string>

beforeAll(async () => {
  lab = await createLab({tables: FEW_TABLES})
  lab.service.store.insert(someDeals(60))
  await lab.sync('2026-02-02T23:30:00-05:00', {config: {detail: 'off'}})
})

afterAll(() => lab[Symbol.asyncDispose]())

beforeEach(({task}) => {
  folder = lab.copyFolder(task.id)
  jobsDir = join(folder.root, 'own-jobs')
  mkdirSync(jobsDir)
  disableBuiltInJobs(jobsDir)
  settings = {
    ...lab.env,
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_JOBS_DIR: jobsDir,
    LOANTAPE_WEB_PORT: '0',
    LOANTAPE_DETAIL: 'off',
    LOANTAPE_SQL_DIR: sqlDir(),
  }
})

/** An empty folder for the user's own models. */
function sqlDir(): string {
  const dir = join(folder.root, 'own-sql')
  mkdirSync(join(dir, 'mart'), {recursive: true})
  return dir
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
  const {warehouse} = folder
  await using db = await openDatabase({attach: [{path: warehouse, alias: 'warehouse'}]})
  await db.run('create table warehouse.main.filling as select md5(range::varchar) as text from range(200000)')
  await db.run('checkpoint warehouse')
  return Math.floor(statSync(warehouse).size / 512)
}

const untilRun = (where: string) =>
  until(() => readState(folder.stateDb, `select * from job_run where ${where} order by job_run_id`)[0])

/** What a server's probes answer. */
async function probe({printed}: Started): Promise<Record<string, string>> {
  const url = /"url":"(http:[^"]+)","msg":"web side listens"/.exec(printed().stderr)?.[1]
  const ask = async (path: string) => (await fetch(url + path)).text()
  return {health: await ask('/healthz'), ready: await ask('/readyz')}
}

const WELL = {health: 'ok\n', ready: 'ready\n'}

test('runs that lack memory or lose the database fail by name, the server stays up, and the next slot succeeds', async () => {
  lab.service.store.insert(someDeals(120).slice(60))
  const model = join(settings.LOANTAPE_SQL_DIR ?? '', 'mart/big.sql')
  writeFileSync(model, BIG)
  writeJobFile(jobsDir, 'each-second', {})
  const blocks = await fillWarehouse()
  // Further writes fail as on a full disk; the limit can be lifted again.
  const script = `trap '' XFSZ; ulimit -S -f ${blocks}; exec "$0" "$@"`
  using serve = startProcess(['sh', '-c', script, process.execPath, MAIN, 'serve'], {
    ...settings,
    LOANTAPE_MEMORY_MB: '150',
    NODE_COMPILE_CACHE: '',
  })
  const failed = await untilRun(`state = 'failed'`)
  expect(failed).toMatchObject({exit_code: 3, error_code: 'BUILD_MEMORY', attempt: 1})
  expect(failed.error).toMatch(/'mart\.big' in .* needs more than 150 MB of memory/)
  expect(await probe(serve)).toEqual(WELL)
  rmSync(model)

  const full = await untilRun(`error_code = 'DISK_FULL'`)
  expect(full).toMatchObject({exit_code: 1, state: 'failed'})
  expect(full.error).toMatch(/invalidated/)
  expect(await probe(serve)).toEqual(WELL)
  execFileSync('prlimit', ['--pid', String(serve.process.pid), '--fsize=unlimited'])
  await untilRun(`state = 'done'`)
  expect(await probe(serve)).toEqual(WELL)
  expect(await readStanding(folder)).toMatchObject({summary: [{deals: '120'}]})
  serve.process.kill('SIGTERM')
  expect((await serve.ended).code).toBe(0)
})

test('a query or build that needs too much memory ends with its exit code and says what to do', async () => {
  const env = {...settings, LOANTAPE_MEMORY_MB: '150'}
  const sql = 'select list(range) from range(20000000)'
  const query = readFailure(await lab.run(['query', sql, '--json'], {...settings, LOANTAPE_MEMORY_MB: '64'}))
  expect(query).toMatchObject({code: 'QUERY_MEMORY', exitCode: 2})
  expect(query.message).toMatch(/needs more memory .*nothing was changed\. Filter or aggregate more/)
  const {releaseId} = await readStanding(folder)
  writeFileSync(join(settings.LOANTAPE_SQL_DIR ?? '', 'mart/big.sql'), BIG)
  const build = readFailure(await runCommand(['build', '--json'], env, {select: `${FEW_TABLES} mart.big`}))
  expect(build).toMatchObject({code: 'BUILD_MEMORY', exitCode: 3})
  expect((await readStanding(folder)).releaseId).toBe(releaseId)
  const answer = readJson(await lab.run(['query', 'select deals from mart.portfolio_summary', '--json'], env))
  expect(answer).toEqual({rows: [{deals: 60}]})
})
