import {existsSync, mkdirSync, renameSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {openStateDb} from '../../src/store/state-db.ts'
import {startWeb} from '../../src/web/web-server.ts'
import {serveHere} from '../support/command.ts'
import {FEW_TABLES} from '../support/data.ts'
import {
  disableBuiltInJobs,
  makeOnceDue,
  RATES_FILE,
  READ_RATES,
  readState,
  writeJobFile,
} from '../support/jobs.ts'
import {MAIN, someDeals, startProcess, stopProcess, untilListens} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {signEvent} from '../support/webhooks.ts'
import {expectRefused, readJson} from './outcome.ts'

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(3)})
const [jobsDir, rates] = ['jobs', 'rates.json'].map((name) => join(lab.folder.root, '..', name)) as [
  string,
  string,
]
const env = {LOANTAPE_JOBS_DIR: jobsDir, LOANTAPE_WEB_PORT: '0', LOANTAPE_RATES_FILE: rates}
writeFileSync(rates, RATES_FILE)

beforeEach(lab.remember())
beforeEach(() => {
  rmSync(jobsDir, {recursive: true, force: true})
  mkdirSync(jobsDir)
  disableBuiltInJobs(jobsDir)
})

const writeJob = (name: string, fields: Record<string, unknown>) => writeJobFile(jobsDir, name, fields)

const SECRET = `whsec_${btoa('k'.repeat(32))}`

/**
 * Tells a server about a change by webhook.
 *
 * @returns the status of its answer
 */
async function notify(url: string, id: string): Promise<number> {
  const body = JSON.stringify({type: 'deal.updated', data: {id: 'deal_000001'}})
  const headers = signEvent(SECRET, id, body)
  return (await fetch(`${url}/webhooks/deals`, {method: 'POST', headers, body})).status
}

const readRuns = (sql: string) => readState(lab.folder.stateDb, sql)

/** Writes a job that was due five minutes ago and is not due again this year. */
const writeOnceDue = (fields = {}) =>
  makeOnceDue(lab.folder.stateDb, (schedule) => writeJob('once', {schedule, ...fields}))

const onceRuns = () => readRuns(`select state, attempt, exit_code from job_run where job = 'once'`)

test('serve runs jobs when they are due, each in its own process, names those that fail or cannot be read, and exits cleanly on SIGTERM', async () => {
  await lab.sync(new Date().toISOString())
  writeOnceDue(READ_RATES)
  writeJob('failing', {schedule: '*/5 * * * * *', steps: [{do: 'publish', to: 'postgres'}]})
  writeJob('bad', {schedule: '0 7 1 * *', catchUp: 'each'})
  const serve = lab.start(['serve'], env)
  const url = await untilListens(serve)
  await until(() => onceRuns()[0]?.state === 'done' && readRuns('select 1 from alarm').length > 1)
  expect((await fetch(`${url}/readyz`)).status).toBe(200)
  expect(await stopProcess(serve)).toBe(0)
  expect(readRuns('select name, state from alarm order by name')).toEqual([
    {name: 'job bad', state: 'JOB_INVALID'},
    {name: 'job failing', state: 'CONFIG_MISSING'},
  ])
  expect(readRuns(`select 1 from job_run where state = 'running'`)).toEqual([])
  const words = /bad\.yaml': .*catchUp: 'each' with a sync step/
  for (const args of [['status'], ['jobs', 'list'], ['doctor']])
    expect((await lab.run(args, env)).stdout, args[0]).toMatch(words)
  await expectRefused(lab.run(['run', 'bad', '--json'], env), 'JOB_INVALID', words)
  expect(await lab.run(['period', 'list'], env)).toMatchObject({code: 0})
})

test('a server reads its jobs anew, is not ready while its state database cannot be written, and goes on with one that takes its place', async () => {
  await lab.sync(new Date().toISOString())
  await using server = await serveHere(['serve'], {...lab.env, ...env, LOANTAPE_WEBHOOK_SECRET: SECRET})
  const {url} = server
  const untilSo = (isSo: () => Promise<boolean>) =>
    until(() => {
      server.pass(30_000)
      // While the server waits for the database, this process does, too: a connection may be closed meanwhile.
      return isSo().catch(() => false)
    })
  const untilAnswers = (status: number) =>
    untilSo(async () => (await fetch(`${url}/readyz`)).status === status)
  const untilTold = (path: string, words: string) =>
    untilSo(async () => (await (await fetch(url + path)).text()).includes(words))
  await untilAnswers(200)
  writeJob('new', {schedule: '0 7 1 * *', steps: [{do: 'build'}]})
  // Jobs are read anew, for the pages, too.
  await untilTold('/runs', '>new<')
  {
    using other = openStateDb(lab.folder.stateDb)
    other.db.exec('begin immediate')
    await untilAnswers(503)
  }
  await untilAnswers(200)
  renameSync(jobsDir, `${jobsDir}.away`)
  await untilAnswers(503)
  await untilTold('/metrics', 'loantape_alarm{name="served",state="JOB_INVALID"} 1')
  await untilTold('/runs', 'No job is run [JOB_INVALID]')
  renameSync(`${jobsDir}.away`, jobsDir)
  await untilAnswers(200)
  for (const end of ['', '-wal', '-shm']) {
    const file = `${lab.folder.stateDb}${end}`
    if (existsSync(file)) renameSync(file, `${file}.old`)
  }
  expect(await notify(url, 'evt_1')).toBeGreaterThanOrEqual(500)
  expect(await (await fetch(`${url}/runs`)).text()).toContain('is not there: it was moved')
  expect(existsSync(lab.folder.stateDb)).toBe(false)
  openStateDb(lab.folder.stateDb)[Symbol.dispose]()
  await until(async () => (await notify(url, 'evt_1')) < 300)
  expect(readRuns('select event_id from webhook_event')).toEqual([{event_id: 'evt_1'}])
  await untilAnswers(200)
  expect((await fetch(`${url}/metrics`)).status).toBe(200)
})

test('a server and its runs go on when nobody can take their log any more', async () => {
  writeOnceDue()
  // More output than fits into a pipe.
  const vault = {
    LOANTAPE_API_KEY: '',
    LOANTAPE_API_KEY_COMMAND: 'head -c 1000000 /dev/zero >&2; echo sk_test',
  }
  const command = ['sh', '-c', 'exec "$0" "$@" 2>/dev/full', process.execPath, MAIN, 'serve', '--no-web']
  using serve = startProcess(command, {...lab.env, ...env, ...vault, LOANTAPE_LOG_LEVEL: 'debug'})
  const untilTried = until(() => readRuns('select exit_code from job_attempt')[0])
  expect(await Promise.race([serve.ended, untilTried])).toEqual({exit_code: 5})
  expect(await stopProcess(serve)).toBe(0)
})

test('a server killed amid notifications has stored each one it acknowledged, and the next accepts each once', async () => {
  const listStored = () =>
    readRuns('select event_id from webhook_event').map(({event_id}) => String(event_id))

  const killed = lab.start(['serve'], {...env, LOANTAPE_WEBHOOK_SECRET: SECRET})
  const url = await untilListens(killed)
  const [sent, acknowledged]: [string[], string[]] = [[], []]
  const send = async (): Promise<void> => {
    for (;;) {
      const id = `evt_${sent.length}`
      sent.push(id)
      expect(await notify(url, id)).toBe(202)
      acknowledged.push(id)
    }
  }
  const sending = Promise.allSettled(Array.from({length: 8}, send))
  await until(() => acknowledged.length > 50)
  killed.process.kill('SIGKILL')
  await sending
  const stored = new Set(listStored())
  expect(acknowledged.filter((id) => !stored.has(id))).toEqual([])

  using stateDb = openStateDb(lab.folder.stateDb)
  const config = {...lab.config, webPort: 0, webhookSecret: SECRET}
  await using next = await startWeb(
    config,
    {stateDb, folder: lab.folder, listJobs: () => []},
    lab.createWorld(),
  )
  for (const id of sent) expect(await notify(next.url, id)).toBe(stored.has(id) ? 200 : 202)
  expect(listStored().sort()).toEqual(sent.sort())
})

test('jobs list shows the next five slots of each job in local time and UTC, and which jobs are disabled', async () => {
  writeJob('early', {schedule: '30 2 * * *', timeZone: 'America/New_York', timeoutMinutes: 45})
  const now = {...env, LOANTAPE_NOW: '2027-03-12T12:00:00Z'}
  const {jobs} = readJson(await lab.run(['jobs', 'list', '--json'], now)) as {jobs: {name: string}[]}
  expect(jobs.find(({name}) => name === 'early')).toMatchObject({
    timeout_minutes: 45,
    next_slots: expect.arrayContaining([{local: '2027-03-14 03:00:00', utc: '2027-03-14T07:00:00.000Z'}]),
  })
  expect(jobs.find(({name}) => name === 'month-end')).toMatchObject({enabled: false, next_slots: []})
})
