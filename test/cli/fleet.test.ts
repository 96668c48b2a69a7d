import {once} from 'node:events'
import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {sendJson, startTestServer, type TestServer} from '../source/test-server.ts'
import {runCommand, serveHere} from '../support/command.ts'
import {
  disableBuiltInJobs,
  makeOnceDue,
  RATES_FILE,
  READ_RATES,
  readState,
  startHeldSource,
  writeJobFile,
} from '../support/jobs.ts'
import {type Ended, MAIN, someDeals, startProcess, stopProcess, untilListens} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {expectRefused, readFailure, readJson} from './outcome.ts'

type Fields = Record<string, unknown>

let fleet: string

const lab = await useLab({deals: someDeals(3), releasedAt: new Date().toISOString()})
/** The settings a source needs to read the lab's service. */
const {LOANTAPE_DATA_DIR: _own, ...settings} = lab.env

beforeEach(() => {
  fleet = mkdtempSync(join(tmpdir(), 'loantape-fleet-'))
  mkdirSync(join(fleet, 'sources'))
  writeCommon({})
})

// A killed server still writes until it is gone.
afterEach(() => rmSync(fleet, {recursive: true, force: true, maxRetries: 20}))

const dirOf = (name: string) => join(fleet, 'sources', name)
const writeEnv = (file: string, settings: Record<string, string>) => {
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${value}\n`)
  writeFileSync(file, lines.join(''))
}
const writeCommon = (settings: Record<string, string>) => writeEnv(join(fleet, '.env'), settings)

const newDirOf = (name: string) => join(fleet, `.${name}`)

/** Adds a source that the fleet sees once it is complete. It has only the named jobs; no built-in one is due. */
function addSource(name: string, settings: Record<string, string>, jobs: Record<string, Fields> = {}): void {
  const jobsDir = join(newDirOf(name), 'jobs')
  mkdirSync(jobsDir, {recursive: true})
  writeEnv(join(newDirOf(name), '.env'), settings)
  writeFileSync(join(newDirOf(name), 'rates.json'), RATES_FILE)
  disableBuiltInJobs(jobsDir)
  for (const [job, fields] of Object.entries(jobs)) writeJobFile(jobsDir, job, fields)
  renameSync(newDirOf(name), dirOf(name))
}

/** Adds a source whose job `once` was due five minutes ago and is not due again this year. */
function addOnceDue(name: string, settings: Record<string, string>, once: Fields = {}): void {
  let schedule = ''
  makeOnceDue(join(newDirOf(name), 'data/state.sqlite'), (given) => {
    schedule = given
  })
  addSource(name, settings, {once: {...once, schedule}})
}

/** Gives a source that the fleet does not see yet a data folder in which a sync finds nothing new. */
const copyData = (name: string) =>
  cpSync(lab.folder.root, join(newDirOf(name), 'data'), {recursive: true, verbatimSymlinks: true})

const settingsFor = ({url}: Pick<TestServer, 'url'>) => ({
  LOANTAPE_BASE_URL: url,
  LOANTAPE_API_KEY: 'a-key',
  LOANTAPE_TAPE_KEY_FILE: '../../tape.key',
  LOANTAPE_RATES_FILE: 'rates.json',
})

/** Settings of a source that gets no requests in any test. */
const NOBODY = settingsFor({url: 'http://127.0.0.1:9/v1'})

const MACHINE = {PATH: process.env.PATH ?? ''}

/** Runs a command line in this process as if started in a folder. */
const runHere = (args: readonly string[], dir = fleet): Promise<Ended> =>
  runCommand(args, MACHINE, {envFile: join(dir, '.env')})
const serve = (env: Record<string, string> = {}) =>
  startProcess([process.execPath, MAIN, 'fleet', 'serve'], {LOANTAPE_WEB_PORT: '0', ...env}, fleet)

const readRuns = (name: string, sql: string) => readState(join(dirOf(name), 'data/state.sqlite'), sql)

const doneOnce = (name: string) =>
  readRuns(name, `select 1 from job_run where job = 'once' and state = 'done'`).length > 0
const countDone = (name: string) => readRuns(name, `select 1 from job_run where state = 'done'`).length
const running = (name: string) => readRuns(name, `select job, pid from job_run where state = 'running'`)

/** What `fleet status` says, by source. */
async function readStatus(): Promise<{code: number | null; sources: Record<string, Fields>}> {
  const ended = await runHere(['fleet', 'status', '--json'])
  const {sources} = readJson(ended) as {sources: Fields[]}
  return {code: ended.code, sources: Object.fromEntries(sources.map((row) => [row.source, row]))}
}

test('a source that is set up wrongly, damaged or never answers harms no other, and status and page report it', async () => {
  await using hung = await startTestServer(() => undefined)
  copyData('good')
  addOnceDue('good', settings)
  addOnceDue('hung', settingsFor(hung), {timeoutMinutes: 0.05})
  addOnceDue('wrong', {...settings, LOANTAPE_PAGE_SIZE: 'many'}, READ_RATES)
  addSource('damaged', NOBODY, {each: READ_RATES})
  mkdirSync(join(dirOf('damaged'), 'data'))
  writeFileSync(join(dirOf('damaged'), 'data/state.sqlite'), 'no database at all'.repeat(100))
  addSource('locked', NOBODY)
  mkdirSync(join(dirOf('locked'), 'data'))
  using locked = new DatabaseSync(join(dirOf('locked'), 'data/state.sqlite'))
  locked.exec('pragma locking_mode = exclusive; pragma journal_mode = wal; create table held (by text)')

  await using server = await serveHere(['fleet', 'serve'], MACHINE, join(fleet, '.env'))
  const {url} = server
  expect((await readStatus()).sources.wrong).toMatchObject({healthy: false, error: {code: 'CONFIG_INVALID'}})
  writeEnv(join(dirOf('wrong'), '.env'), settings)
  const timedOut = () => readRuns('hung', `select 1 from job_run where error_code = 'JOB_TIMEOUT'`)
  await until(() => doneOnce('good') && timedOut().length > 0)
  // Settings are read again every 15 seconds. Without a file of rates, the step of this job does nothing.
  server.pass(20_000)
  await until(() => countDone('wrong') > 0 && readRuns('hung', 'select 1 from alarm').length > 0)
  const {code, sources} = await readStatus()
  expect(code).toBe(1)
  expect(sources).toMatchObject({
    good: {healthy: true, error: null, alarms: [], release: {deals: 3, amount: '1050000.00'}},
    hung: {healthy: false, error: null, alarms: [{name: 'job once', state: 'JOB_TIMEOUT'}]},
    damaged: {healthy: false, error: {code: 'STATE_UNREADABLE'}},
    locked: {healthy: false, error: {code: 'STATE_BUSY'}},
  })

  const page = await (await fetch(`${url}/`)).text()
  expect(page).toContain('STATE_UNREADABLE')
  expect(page).toContain('$1,050,000.00')
  expect(page.indexOf('damaged')).toBeLessThan(page.indexOf('>good</b>'))
  expect(page).not.toContain('<script')
  const metrics = await (await fetch(`${url}/metrics`)).text()
  expect(metrics).toMatch(/^loantape_source_healthy\{source="good"\} 1$/m)
  expect(metrics).toMatch(/^loantape_source_error\{source="damaged",code="STATE_UNREADABLE"\} 1$/m)
  expect(metrics).toMatch(/^loantape_last_success_age_seconds\{source="good"\} \d/m)
  expect(metrics).toMatch(/^loantape_alarm\{source="hung",name="job once",state="JOB_TIMEOUT"\} 1$/m)
  expect(await (await fetch(`${url}/healthz`)).text()).toBe('ok\n')

  renameSync(dirOf('good'), join(fleet, '.good'))
  await until(async () => !(await (await fetch(`${url}/`)).text()).includes('>good</b>'))
  addOnceDue('late', settings, READ_RATES)
  await until(() => doneOnce('late'))
  for (const name of ['hung', 'wrong', 'late']) expect(running(name)).toEqual([])
})

test('a wrong job file is told of a source that nothing was stored for yet', async () => {
  addSource('new', NOBODY)
  writeFileSync(join(dirOf('new'), 'jobs/broken.yaml'), 'steps: [')
  expect((await readStatus()).sources.new).toMatchObject({
    healthy: false,
    error: null,
    alarms: [{name: 'job broken', state: 'JOB_INVALID'}],
  })
  expect((await runHere(['fleet', 'status'])).stdout).toMatch(/^new +no success .*job broken: JOB_INVALID/m)
  expect(readdirSync(dirOf('new'))).not.toContain('data')
})

test('a killed fleet loses no slot, and the next one counts the runs that are still going', async () => {
  await using source = await startHeldSource()
  const names = ['killed', 'left', 'waiting']
  for (const name of names) addOnceDue(name, settingsFor(source), READ_RATES)
  using first = serve()
  await until(() => source.requests.length >= 2)
  expect(names.map((name) => running(name).length)).toEqual([1, 1, 0])
  const [killed, left] = names.map((name) => Number(running(name)[0]?.pid))
  first.process.kill('SIGKILL')
  await once(first.process, 'exit')
  process.kill(killed ?? 0, 'SIGKILL')

  using next = serve()
  await until(() => Number(running('killed')[0]?.pid) !== killed && source.requests.length >= 3)
  expect(running('left')).toEqual([{job: 'once', pid: left}])
  expect(running('waiting')).toEqual([])
  source.open()
  await until(() => names.every((name) => countDone(name) === 1))
  expect(await stopProcess(next)).toBe(0)
  const ends = names.map((name) => readRuns(name, `select state, attempt from job_run where job = 'once'`))
  expect(ends).toEqual([
    [{state: 'done', attempt: 2}],
    [{state: 'done', attempt: 1}],
    [{state: 'done', attempt: 1}],
  ])
})

test('a run sees the settings of its own source and the common ones, and no secret of another source or the fleet', async () => {
  await using source = await startHeldSource()
  const secret = 'secret-of-another-source'
  addOnceDue('one', settingsFor(source), READ_RATES)
  addSource('other', {...NOBODY, LOANTAPE_API_KEY: secret, OTHER_SECRET: secret})
  writeCommon({
    LOANTAPE_WEB_TOKEN: 'secret-of-the-fleet',
    LOANTAPE_TAPE_DAYS: '7',
    LOANTAPE_CLICKHOUSE_SOURCE: 'x',
  })
  using server = serve({CLOUD_SECRET: 'secret-of-the-machine', LOANTAPE_API_KEY: 'secret-of-the-machine'})
  await until(() => source.requests.length > 0)
  const [run1] = running('one')
  const environ = readFileSync(`/proc/${Number(run1?.pid)}/environ`, 'utf8')
  expect(environ).toContain('PATH=')
  expect(environ).not.toContain('secret')
  expect(source.requests[0]?.headers.authorization).toBe('Bearer a-key')
  const url = await untilListens(server)
  expect((await fetch(`${url}/`)).status).toBe(401)
  const authorization = 'Bearer secret-of-the-fleet'
  expect((await fetch(`${url}/`, {headers: {authorization}})).status).toBe(200)
  source.open()
  expect(await stopProcess(server)).toBe(0)

  // A command run by hand in the source's folder has the same settings.
  const byHand = () => runHere(['config', '--json'], dirOf('one'))
  const settings = readJson(await byHand())
  expect(settings).toMatchObject({LOANTAPE_TAPE_DAYS: 7, LOANTAPE_CLICKHOUSE_SOURCE: 'one'})
  expect(settings).not.toHaveProperty('LOANTAPE_WEB_TOKEN')
  writeEnv(join(dirOf('one'), '.env'), {...settingsFor(source), LOANTAPE_TAPE_DAYS: '1'})
  expect(readJson(await byHand())).toMatchObject({LOANTAPE_TAPE_DAYS: 1})
  expect(server.printed().stderr).not.toContain('secret-of')
})

/** What a source may not have: settings, and links in its folder, that lead to what belongs to another source. */
const LEADING_OUT: {set?: Record<string, string>; links?: Record<string, string>}[] = [
  {set: {LOANTAPE_DATA_DIR: '../theirs/data'}},
  {set: {LOANTAPE_DATA_DIR: 'link'}, links: {link: '../theirs/data'}},
  {set: {LOANTAPE_SQL_DIR: '../theirs'}},
  {set: {LOANTAPE_JOBS_DIR: '../theirs/jobs'}},
  {set: {LOANTAPE_ACCOUNTING_FILE: '../theirs/data/accounting.json'}},
  {set: {LOANTAPE_TARGETS_FILE: 'link/../rates.csv'}, links: {link: '../theirs/data'}},
  {set: {LOANTAPE_SMTP_URL_FILE: '../theirs/.env'}},
  {set: {LOANTAPE_ALARM_WEBHOOK_URL_FILE: '../../.env'}},
  {set: {LOANTAPE_CLICKHOUSE_SOURCE: 'theirs'}},
  {links: {'.env': '../theirs/.env'}},
  {links: {'own/seeds/stolen.csv': '../../../theirs/rates.csv'}},
  {links: {'own/pages': '../../theirs/own/pages'}},
  {links: {'jobs/daily.yaml': '../../theirs/jobs/daily.yaml'}},
  {links: {'data/accounting.json': '../../theirs/data/accounting.json'}},
]

test("a source whose settings or links lead to another's folder, file or name gets nothing from it or the fleet", async () => {
  const add = (name: string, set: Record<string, string> = {}) => {
    const own = {LOANTAPE_BASE_URL: `https://${name}.example.com`, LOANTAPE_API_KEY: `sk_of_${name}`}
    addSource(name, {...own, LOANTAPE_SQL_DIR: 'own', ...set})
    for (const folder of ['own/seeds', 'data']) mkdirSync(join(dirOf(name), folder), {recursive: true})
  }
  add('theirs')
  mkdirSync(join(dirOf('theirs'), 'own/pages'))
  for (const file of ['rates.csv', 'jobs/daily.yaml', 'data/accounting.json'])
    writeFileSync(join(dirOf('theirs'), file), 'x,y\n1,2\n')
  for (const [index, {set, links = {}}] of LEADING_OUT.entries()) {
    const name = `mine_${index}`
    add(name, set)
    for (const [link, target] of Object.entries(links)) {
      rmSync(join(dirOf(name), link), {force: true})
      symlinkSync(target, join(dirOf(name), link))
    }
    const {message, exitCode} = readFailure(await runHere(['status', '--json'], dirOf(name)))
    expect(message, name).toMatch(/lies in another's|FLEET_DATA_SHARED|expected its own/)
    expect(exitCode).toBe(2)
  }
  rmSync(join(dirOf('theirs'), 'jobs/daily.yaml'))
  expect((await readStatus()).sources.theirs).toMatchObject({error: null})
})

const handOut = (target: object) => ({
  steps: [{do: 'export', profiles: ['csv'], deliver: ['out']}],
  files: {'targets.json': {out: target}},
})

const trespasses: Record<string, {steps: object[]; files: Record<string, object>}> = {
  backup: {steps: [{do: 'backup', to: '../theirs/data', kept: 1}], files: {}},
  delivery: handOut({kind: 'folder', path: '../theirs/data'}),
  secret: handOut({kind: 'http', url: 'https://x.example.com', token_file: '../theirs/.env'}),
  rates: {
    ...READ_RATES,
    files: {'rates.json': {feeds: [{name: 'x', rate: 'x', csv: '../theirs/rates.csv'}]}},
  },
}

test('a job touches nothing in the folder of another lender: no backup, delivery, secret or rates', async () => {
  addSource('theirs', settings)
  mkdirSync(join(dirOf('theirs'), 'data'))
  writeFileSync(join(dirOf('theirs'), 'rates.csv'), 'date,value\n2026-03-02,4.31\n')
  const ownFiles = {LOANTAPE_TARGETS_FILE: 'targets.json', LOANTAPE_RATES_FILE: 'rates.json'}
  for (const [name, {steps, files}] of Object.entries(trespasses)) {
    copyData(name)
    addSource(name, {...settings, ...ownFiles}, {daily: {steps}})
    for (const [file, content] of Object.entries({'targets.json': {}, 'rates.json': {feeds: []}, ...files}))
      writeFileSync(join(dirOf(name), file), JSON.stringify(content))
  }
  const names = Object.keys(trespasses)
  const {stdout} = await runHere(['fleet', 'run', 'daily', '--source', ...names])
  for (const name of names) expect(stdout).toMatch(new RegExp(`^${name}: .*\\[FLEET_DATA_SHARED\\]$`, 'm'))
  expect(readdirSync(join(dirOf('theirs'), 'data'))).toEqual([])
})

test('fleet run runs a job now for each source and exits with the worst code', async () => {
  await using refusing = await startTestServer((_request, response) => sendJson(response, {}, {status: 401}))
  const job = {daily: {enabled: false}}
  copyData('good')
  addSource('good', settings, job)
  addSource('refused', settingsFor(refusing), job)
  symlinkSync(dirOf('good'), dirOf('linked'))
  addSource('shares', {...settings, LOANTAPE_DATA_DIR: '../good/data'}, job)
  const all = await runHere(['fleet', 'run', 'daily'])
  expect(all.code).toBe(2)
  expect(all.stdout.split('\n')).toEqual([
    expect.stringMatching(/^good: exit 0\. .*3 deals/),
    expect.stringMatching(/^linked: exit 2\. .+\[FLEET_SOURCE\]$/),
    expect.stringMatching(/^refused: exit 5\. .+\[SOURCE_UNAUTHORIZED\]$/),
    expect.stringMatching(/^shares: exit 2\. .+\[FLEET_DATA_SHARED\]$/),
    '',
  ])
  const tell = async (...options: string[]) => (await runHere(['fleet', 'status', ...options])).stdout
  expect(await tell('--max-age', '0h')).toMatch(/^good +too old /m)
  rmSync(join(dirOf('good'), 'data/current'))
  expect(await tell()).toMatch(/^good +no release /m)
  const unknown = runHere(['fleet', 'run', 'daily', '--source', 'god', '--json'])
  await expectRefused(unknown, 'UNKNOWN_NAME', `'good'`)
})

test('fleet run fails if the process of a source ends with a code that is none of ours', async () => {
  addSource('good', NOBODY, {rates: READ_RATES})
  const args = [...process.execArgv]
  process.execArgv.push('--import', 'data:text/javascript,process.exit(13)')
  try {
    const ended = await runHere(['fleet', 'run', 'rates', '--json'])
    expect(readJson(ended)).toMatchObject({runs: [{source: 'good', exit_code: 13}]})
    expect(ended.code).toBe(1)
  } finally {
    process.execArgv.splice(0, Number.POSITIVE_INFINITY, ...args)
  }
})

test('fleet commands refuse --data and a folder that is not a fleet', async () => {
  const run = (...args: string[]) => runHere(['fleet', ...args, '--json'])
  await expectRefused(run('status'), 'FLEET_NONE')
  for (const command of ['status', 'verify']) await expectRefused(run(command, '--data', 'x'), 'USAGE')
  rmSync(join(fleet, '.env'))
  await expectRefused(run('serve'), 'FLEET_NONE')
})
