import {mkdirSync, mkdtempSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {FEW_TABLES} from '../support/data.ts'
import {createLab, type Lab, runProgram, someDeals} from '../support/lab.ts'
import {readFailure, readJson, readStanding, type Standing} from './outcome.ts'

let lab: Lab
let before: Standing

beforeAll(async () => {
  lab = await createLab({tables: FEW_TABLES})
  lab.service.store.insert(someDeals(3))
  await lab.sync('2026-02-02T23:30:00-05:00')
  before = await readStanding(lab.folder)
  lab.service.requests.clear()
})

afterAll(async () => {
  const [after, requests] = [await readStanding(lab.folder), lab.service.requests.count]
  await lab[Symbol.asyncDispose]()
  expect(after, 'what was stored before').toEqual(before)
  expect(requests, 'nothing was started').toBe(0)
})

const wrong: [behaviour: string, args: string[], code: string, words: RegExp][] = [
  [
    'a misspelt command',
    ['snyc'],
    'USAGE',
    /'snyc' \(Did you mean sync\?\)\. Nothing was started\. .*--help/,
  ],
  ['no command', [], 'USAGE', /expected a command\. Nothing was started\./],
  ['an unknown option', ['sync', '--acept', 'x'], 'USAGE', /'--acept' \(Did you mean --accept\?\)/],
  ['an unknown acceptance', ['sync', '--accept', 'fate'], 'USAGE', /'fate' in --accept: .*shrink, change/],
  [
    'two walks taken back at once',
    ['rebuild', '--without', 'w_1', '--without', 'w_2', '--why', 'wrong'],
    'USAGE',
    /'w_2' is invalid\. Take walks back one at a time/,
  ],
  ['a word too many', ['sync', 'now'], 'USAGE', /too many arguments for 'sync'.*now/],
  ['a date that does not exist', ['build', '--as-of', '2026-02-30'], 'USAGE', /'2026-02-30' in --as-of/],
  [
    'a date before the first walk',
    ['build', '--as-of', '2026-02-01'],
    'MOMENT_RANGE',
    /2026-02-02 \(the first walk\)/,
  ],
  ['a time without an offset', ['build', '--known-at', '2026-02-02T10:00'], 'USAGE', /in --known-at/],
  ['a number that is none', ['service', '--deals', '1e99'], 'USAGE', /'1e99' in --deals: .*from 0 to/],
  ['an age that is none', ['status', '--max-age', 'old'], 'USAGE', /'old' in --max-age: .*26h/],
  [
    'an unknown format',
    ['query', 'select 1', '--format', 'xml'],
    'USAGE',
    /'xml' is invalid.*table, csv, json/,
  ],
  [
    'an unknown profile',
    ['export', 'excel'],
    'UNKNOWN_NAME',
    /'excel'.*csv, parquet, xlsx.*, xero.*\. Nothing was changed\./,
  ],
  [
    'an unknown table',
    ['export', 'csv', '--table', 'core.loan'],
    'UNKNOWN_NAME',
    /'core\.loan'.*core\.deal,/,
  ],
  [
    'an unknown release',
    ['query', 'select 1', '--release', '2026-01-01-abc'],
    'UNKNOWN_NAME',
    /'2026-01-01-abc'/,
  ],
  [
    'a scratch release that nobody has built',
    ['query', 'select 1', '--release', 'scratch'],
    'UNKNOWN_NAME',
    /No scratch release in .*`loantape build --select` makes it/,
  ],
  [
    'a release that is a path',
    ['query', 'select 1', '--release', '../current'],
    'UNKNOWN_NAME',
    /'\.\.\/current'/,
  ],
  [
    'a table nearly right',
    ['export', 'csv', '--table', 'deals'],
    'UNKNOWN_NAME',
    /the nearest is 'core\.deal'/,
  ],
  [
    'a job nearly right',
    ['run', 'nightli'],
    'UNKNOWN_NAME',
    /the nearest is 'nightly'\. Nothing was changed/,
  ],
  ['a profile nearly right', ['export', 'xls'], 'UNKNOWN_NAME', /the nearest is 'xlsx'/],
  [
    'a field nearly right',
    ['trace', 'deal_000001', '--field', 'statuses'],
    'UNKNOWN_NAME',
    /nearest is 'status'/,
  ],
  [
    'a figure nearly right',
    ['trace', 'mart.portfolio_summary.open_amnt'],
    'UNKNOWN_NAME',
    /the nearest is 'open_amount'/,
  ],
  [
    'a selection nearly right',
    ['build', '--select', 'mart.funding_curves'],
    'UNKNOWN_NAME',
    /'mart\.funding_curve'\./,
  ],
  [
    'a date that diff cannot build',
    ['diff', '2020-01-01', 'current'],
    'MOMENT_RANGE',
    /^Date '2020-01-01': expected 2026-02-02 \(the first walk\)/,
  ],
  ['an unknown job', ['run', 'weekly'], 'UNKNOWN_NAME', /'weekly'.*nightly, rates\. Nothing was changed\./],
]

for (const [behaviour, args, code, words] of wrong) {
  test.concurrent(`${behaviour} is refused as wrong usage, as one JSON object where asked for`, async () => {
    const failure = readFailure(await lab.run([...args, '--json']))
    expect(failure).toMatchObject({code, exitCode: 2})
    expect(failure.message).toMatch(words)
  })
}

test.concurrent('a misspelt command is told to people on stderr alone', async () => {
  expect(await lab.start(['qeury', 'select 1']).ended).toMatchObject({
    code: 2,
    stdout: '',
    stderr: expect.stringMatching(/^loantape: .*'qeury' \(Did you mean query\?\).* \[USAGE\]\n$/),
  })
})

test.concurrent('every wrong setting is listed at once, the key masked', async () => {
  const ended = await lab.run(['sync', '--json'], {
    LOANTAPE_BASE_URL: 'deals.example.com',
    LOANTAPE_API_KEY: 'sk_test with spaces',
    LOANTAPE_PAGE_SIZE: '500',
    LOANTAPE_RATE_PER_SECOND: 'fast',
    LOANTAPE_TIME_ZONE: 'Mars/Olympus',
    LOANTAPE_BASE_ULR: 'x',
  })
  const failure = readFailure(ended)
  expect(failure).toMatchObject({code: 'CONFIG_INVALID', exitCode: 2})
  expect(failure.message).toMatch(/Configuration has 6 problems/)
  for (const words of [
    "LOANTAPE_BASE_URL 'deals.example.com': expected an http or https URL",
    "LOANTAPE_API_KEY '***'",
    "LOANTAPE_PAGE_SIZE '500': expected at most 100",
    "LOANTAPE_RATE_PER_SECOND 'fast': expected a number from",
    "LOANTAPE_TIME_ZONE 'Mars/Olympus'",
    'LOANTAPE_BASE_ULR: no such setting; the nearest is LOANTAPE_BASE_URL',
    'Nothing was started. Correct the settings',
  ]) {
    expect(failure.message).toContain(words)
  }
  expect(ended.stdout + ended.stderr).not.toContain('with spaces')
})

test.concurrent('a key file that is not there is named', async () => {
  const env = {LOANTAPE_API_KEY: '', LOANTAPE_API_KEY_FILE: '/nowhere/key'}
  const failure = readFailure(await lab.run(['sync', '--json'], env))
  expect(failure).toMatchObject({code: 'CONFIG_INVALID', exitCode: 2})
  expect(failure.message).toContain("LOANTAPE_API_KEY_FILE '/nowhere/key': cannot be read (ENOENT)")
})

test.concurrent('a stream that does not exist is named before anything runs', async () => {
  const failure = readFailure(await lab.run(['status', '--json'], {LOANTAPE_STREAMS: 'deals,borowers'}))
  expect(failure).toMatchObject({code: 'CONFIG_INVALID', exitCode: 2})
  expect(failure.message).toContain("Value 'borowers' in LOANTAPE_STREAMS")
})

test.concurrent('a job file that is no job is named with its field', async () => {
  const jobs = join(lab.folder.root, '../jobs')
  mkdirSync(jobs)
  writeFileSync(join(jobs, 'weekly.mjs'), `export default {name: 'weekly', steps: [{do: 'pray'}]}`)
  const failure = readFailure(await lab.run(['run', 'weekly', '--json'], {LOANTAPE_JOBS_DIR: jobs}))
  expect(failure).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  expect(failure.message).toMatch(/weekly\.mjs.*schedule.*steps\.0\.do.*Nothing was started/)
})

test.concurrent('an empty data folder has nothing to query and says how to begin', async () => {
  const env = {LOANTAPE_DATA_DIR: join(lab.folder.root, '../empty')}
  const [query, exported, build, status] = await Promise.all([
    lab.run(['query', 'select 1', '--json'], env),
    lab.run(['export', 'csv', '--json'], env),
    lab.run(['build', '--json'], env),
    lab.run(['status', '--json'], env),
  ])
  for (const ended of [query, exported]) {
    expect(readFailure(ended)).toMatchObject({code: 'RELEASE_NONE', exitCode: 2})
    expect(readFailure(ended).message).toMatch(/Run `loantape sync` or `loantape demo` first/)
  }
  expect(readFailure(build)).toMatchObject({code: 'HISTORY_MISSING'})
  expect(readFailure(build).message).toMatch(/Run `loantape sync` first/)
  expect(readJson(status)).toMatchObject({healthy: false, release: null, runs: []})
  expect(status.code).toBe(1)
})

test.concurrent('the version is the package version', async () => {
  const {version} = JSON.parse(readFileSync(join(import.meta.dirname, '../../package.json'), 'utf8'))
  expect(await lab.start(['--version']).ended).toMatchObject({code: 0, stdout: `${version}\n`})
})

test.concurrent('settings come from .env in the working folder, and the environment goes before it', async () => {
  const cwd = mkdtempSync(join(lab.folder.root, '../env-'))
  writeFileSync(join(cwd, '.env'), 'LOANTAPE_PAGE_SIZE=7\nLOANTAPE_TAPE_DAYS=3\n')
  const settings = readJson(await runProgram(['config', '--json'], {LOANTAPE_TAPE_DAYS: '4'}, cwd))
  expect(settings).toMatchObject({LOANTAPE_PAGE_SIZE: 7, LOANTAPE_TAPE_DAYS: 4})
})

test.concurrent('a byte order mark in front of .env hides no setting', async () => {
  const cwd = mkdtempSync(join(lab.folder.root, '../env-'))
  writeFileSync(join(cwd, '.env'), '\uFEFFLOANTAPE_PAGE_SIZE=7\nLOANTAPE_TAPE_DAYS=3\n')
  const settings = readJson(await runProgram(['config', '--json'], {}, cwd))
  expect(settings).toMatchObject({LOANTAPE_PAGE_SIZE: 7, LOANTAPE_TAPE_DAYS: 3})
})

test.concurrent('a folder where .env should be is named, and help needs no settings', async () => {
  const cwd = mkdtempSync(join(lab.folder.root, '../env-'))
  mkdirSync(join(cwd, '.env'))
  const failure = readFailure(await runProgram(['config', '--json'], {}, cwd))
  expect(failure).toMatchObject({code: 'CONFIG_INVALID', exitCode: 2})
  expect(failure.message).toMatch(/'\.env' .*\(EISDIR\): expected a text file\. Nothing was started\./)
  expect((await runProgram(['--help'], {}, cwd)).code).toBe(0)
})
