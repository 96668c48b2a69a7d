import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {type Handler, startTestServer} from '../source/test-server.ts'
import {createLab, type Lab, type Started, someDeals} from '../support/lab.ts'
import {readFailure, readJson} from './outcome.ts'

let lab: Lab
let env: Record<string, string>

beforeEach(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(3))
  const jobsDir = join(lab.folder.root, '../jobs')
  mkdirSync(jobsDir)
  env = {LOANTAPE_JOBS_DIR: jobsDir, LOANTAPE_WEB_PORT: '0'}
  writeJob('each-second', {schedule: '* * * * * *', catchUp: 'latest'})
})

afterEach(() => lab[Symbol.asyncDispose]())

function writeJob(name: string, fields: Record<string, unknown>): void {
  const job = {name, timeZone: 'UTC', graceMinutes: 60, steps: [{do: 'sync'}], ...fields}
  writeFileSync(join(env.LOANTAPE_JOBS_DIR ?? '', `${name}.mjs`), `export default ${JSON.stringify(job)}`)
}

function readRuns(sql: string): Record<string, unknown>[] {
  const db = new DatabaseSync(lab.folder.ledger, {readOnly: true})
  try {
    return db.prepare(sql).all()
  } catch (error) {
    if (/no such table/.test(String(error))) return []
    throw error
  } finally {
    db.close()
  }
}

const until = (condition: () => boolean) =>
  expect
    .poll(
      () => {
        try {
          return condition()
        } catch (error) {
          if (/unable to open/.test(String(error))) return false
          throw error
        }
      },
      {timeout: 50_000, interval: 50},
    )
    .toBe(true)

async function stop({process, ended}: Started): Promise<number | null> {
  process.kill('SIGTERM')
  return (await ended).code
}

test('serve runs jobs when they are due, in processes of their own, and ends well on SIGTERM', async () => {
  const serve = lab.start(['serve'], env)
  await until(() => readRuns(`select 1 from job_run where state = 'done'`).length >= 2)
  const url = /"url":"(http:[^"]+)","msg":"web side listens"/.exec(serve.printed().stderr)?.[1]
  expect((await fetch(`${url}/readyz`)).status).toBe(200)
  expect((await lab.run(['status', '--max-age', '1h'])).code).toBe(0)
  expect(await stop(serve)).toBe(0)
  expect(readRuns(`select 1 from job_run where state = 'running'`)).toEqual([])
})

test('a server killed with its run under way leaves the slot to the next, which runs it once more', async () => {
  const killed = lab.start(['serve', '--no-web'], env)
  const running = `select job_run_id, pid from job_run where state = 'running' and pid <> ${killed.process.pid}`
  await until(() => readRuns(running).length === 1)
  const [run] = readRuns(running)
  killed.process.kill('SIGKILL')
  process.kill(Number(run?.pid), 'SIGKILL')
  await killed.ended
  const next = lab.start(['serve', '--no-web'], env)
  await until(
    () =>
      readRuns(
        `select 1 from job_run where job_run_id = ${run?.job_run_id} and attempt = 2 and state = 'done'`,
      ).length === 1 || readRuns(`select 1 from job_run where state = 'done'`).length > 0,
  )
  expect(await stop(next)).toBe(0)
  const slots = readRuns('select slot, state from job_run')
  expect(new Set(slots.map(({slot}) => slot)).size).toBe(slots.length)
  expect(slots.filter(({state}) => state === 'running')).toEqual([])
})

test('a job that fails leaves the server running, and says why', async () => {
  writeJob('broken', {schedule: '* * * * * *', catchUp: 'latest', steps: [{do: 'publish', to: 'postgres'}]})
  const serve = lab.start(['serve', '--no-web'], env)
  await until(
    () =>
      readRuns(`select 1 from job_run where job = 'broken' and state = 'failed'`).length > 0 &&
      readRuns(`select 1 from job_run where job = 'each-second' and state = 'done'`).length > 0 &&
      readRuns('select 1 from alarm').length > 0,
  )
  expect(await stop(serve)).toBe(0)
  expect(readRuns(`select name, state from alarm`)).toEqual([
    {name: 'job broken', state: 'CONFIG_POSTGRES_MISSING'},
  ])
})

test.each<[string, Handler]>([
  ['never answers', () => undefined],
  [
    'answers without end',
    (_request, response) => {
      response.writeHead(200, {'content-type': 'application/json'})
      const drip = setInterval(() => response.write(' '), 20)
      response.on('close', () => clearInterval(drip))
    },
  ],
])(
  'a run whose source %s is ended after its timeout, told, and the next slot runs',
  async (_name, handler) => {
    await using source = await startTestServer(handler)
    writeJob('each-second', {schedule: '* * * * * *', catchUp: 'latest', timeoutMinutes: 0.04})
    const serve = lab.start(['serve', '--no-web'], {
      ...env,
      LOANTAPE_BASE_URL: source.url,
      LOANTAPE_REQUEST_TIMEOUT_SECONDS: '3600',
    })
    await until(
      () =>
        source.requests.length >= 2 &&
        readRuns(`select 1 from job_run where error_code = 'JOB_TIMEOUT'`).length >= 2 &&
        readRuns('select 1 from alarm').length > 0,
    )
    const ended = readRuns(`select state, attempt from job_run where error_code = 'JOB_TIMEOUT'`)
    expect(new Set(ended.map(({state, attempt}) => `${state} ${attempt}`))).toEqual(new Set(['failed 1']))
    expect(readRuns('select name, state from alarm')).toEqual([
      {name: 'job each-second', state: 'JOB_TIMEOUT'},
    ])
    expect(await stop(serve)).toBe(0)
  },
)

test('a bad job file is refused at start-up, by file and field', async () => {
  writeJob('bad', {schedule: '0 7 1 * *', catchUp: 'each'})
  const failure = readFailure(await lab.run(['serve', '--json'], env))
  expect(failure).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  expect(failure.message).toMatch(/bad\.mjs.*catchUp: 'each' with a sync step/)
})

test('an open address without a token is refused at start-up', async () => {
  const failure = readFailure(await lab.run(['serve', '--json'], {...env, LOANTAPE_WEB_HOST: '0.0.0.0'}))
  expect(failure).toMatchObject({code: 'WEB_TOKEN_MISSING', exitCode: 2})
})

test('jobs list shows the next five slots of each job in local time and UTC', async () => {
  const early = {schedule: '30 2 * * *', timeZone: 'America/New_York', catchUp: 'none', timeoutMinutes: 45}
  writeJob('early', early)
  const {jobs} = readJson(
    await lab.run(['jobs', 'list', '--json'], {...env, LOANTAPE_NOW: '2027-03-12T12:00:00Z'}),
  )
  expect(jobs).toContainEqual(
    expect.objectContaining({
      name: 'early',
      timeout_minutes: 45,
      next_slots: expect.arrayContaining([{local: '2027-03-14 03:00:00', utc: '2027-03-14T07:00:00.000Z'}]),
      clock_changes: ['2027-03-14: the clock skips 02:30: due at 03:00 instead'],
    }),
  )
})
