import {mkdirSync, readFileSync, statSync, truncateSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {describeFirstSync, describeTransport} from '../../src/cli/doctor.ts'
import {parseConfig} from '../../src/core/config.ts'
import {Sqlite} from '../../src/core/sqlite.ts'
import {openDatabase} from '../../src/store/database.ts'
import {SQL_DIR} from '../../src/store/sql.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {readFiles, readManifest} from '../support/data.ts'
import {writeJobFile} from '../support/jobs.ts'
import {someDeals} from '../support/lab.ts'
import {changeRecords, useLab} from '../support/set-up.ts'
import {readJson} from './outcome.ts'

const lab = await useLab({deals: someDeals(100)})

async function examine(env: Record<string, string> = {}) {
  const ended = await lab.run(['doctor', '--json'], env)
  const {healthy, findings} = readJson(ended) as {
    healthy: boolean
    findings: {check: string; ok: boolean; words: string}[]
  }
  const wrong = findings.filter(({ok}) => !ok).map(({check, words}) => `${check}: ${words}`)
  expect([ended.code, healthy]).toEqual(wrong.length === 0 ? [0, true] : [1, false])
  const wordsOf = (name: string) => findings.find(({check}) => check === name)?.words
  return {wrong, source: wordsOf('source'), models: wordsOf('models')}
}

test('doctor estimates a first sync from one page until there is a history, and finds a sound folder healthy', async () => {
  const answers = `${lab.service.url} answers and accepts the key`
  const estimate = '; a first sync takes about 1 s for every 1,000 deals'
  expect(await examine()).toMatchObject({
    wrong: [],
    source: `${answers}${estimate} with details at 5000 requests/s${partly('6,000,000')}`,
  })
  changeRecords(lab, '/deals', (deals) => {
    for (const deal of deals) Object.assign(deal, {property_value: null, loan_program: null})
  })
  const {source} = await examine()
  expect(source).toBe(`${answers}${estimate} at 5000 requests/s`)
  changeRecords(lab, '/deals?', (deals) => {
    deals[0]!.loan_amount = 'much'
  })
  expect((await lab.run(['doctor', '--try'])).stdout).toContain('It cannot be read: loan_amount: expected')
  lab.service.faults.clear()
  lab.service.faults.add({fault: {kind: 'mutate', change: (body) => ({...body, data: []})}})
  expect((await lab.run(['doctor', '--try'])).stdout).toMatch(/\n\nThere is no deal to try: .*\n$/)
  lab.service.faults.clear()
  await lab.sync(new Date().toISOString())
  await lab.run(['export', 'csv'])
  expect(await examine()).toMatchObject({wrong: [], source: answers})
  const {stdout} = await lab.run(['doctor'], {LOANTAPE_NOW: '2099-03-02T12:00:00Z'})
  expect(stdout).toContain('each run counts for 2099-03-02, because LOANTAPE_NOW stops the clock')
  expect(stdout).toContain('business days begin at 06:00 in America/New_York')
})

test('doctor finds a disk that has no room for the copy of the warehouse that a build makes', async () => {
  const {size} = statSync(lab.folder.warehouse)
  // Without blocks on the disk.
  truncateSync(lab.folder.warehouse, 15e12)
  const {wrong} = await examine()
  truncateSync(lab.folder.warehouse, size)
  expect(wrong[0]).toMatch(
    /^data folder: Disk of '.*': [\d,]+ MB free, and a build copies 15,000,000 MB\. Free some space, /,
  )
})

test('doctor refuses the page that a sync would refuse', async () => {
  await lab.walk(new Date().toISOString())
  for (const [fault, words] of [
    [{kind: 'envelope', shape: 'pagination'}, /^source: Envelope .* expected the pinned .*--accept envelope/],
    [
      {kind: 'status', status: 404},
      /^source: Status 404.* at GET \/deals \(limit\).*its path prefix included/,
    ],
  ] as const) {
    lab.service.faults.add({match: {path: '/deals?'}, fault})
    expect((await examine()).wrong).toEqual([expect.stringMatching(words)])
    lab.service.faults.clear()
  }
})

test('doctor remarks on a key that is sent unencrypted to another machine', () => {
  for (const url of ['https://deals.example.com', 'http://127.0.0.1:4010/v1', 'http://localhost'])
    expect(describeTransport(url)).toBe('')
  expect(describeTransport('http://deals.example.com/v1')).toMatch(/^, unencrypted: .*key/)
})

const partly = (deals: string) =>
  `; LOANTAPE_DETAIL_BUDGET_MINUTES lets one run get those of ${deals} deals, later runs the rest`
const FAST = {LOANTAPE_STREAMS: ' documents, deals,borrowers ', LOANTAPE_RATE_PER_SECOND: '20'}
const LISTS = {LOANTAPE_DETAIL: 'off', LOANTAPE_PAGE_SIZE: '1'}

test.each<[env: Record<string, string>, time: string, words: string]>([
  [{}, '3 min', ` with details at 5 requests/s${partly('6,000')}`],
  [FAST, '2 min', ` with details, borrowers and documents at 20 requests/s${partly('8,000')}`],
  [LISTS, '3 min', ' at 5 requests/s'],
  [{LOANTAPE_DETAIL_BUDGET_MINUTES: '0'}, '1 s', ' at 5 requests/s'],
])('a first sync with %j takes about %s', (env, time, words) => {
  expect(describeFirstSync(parseConfig(env, {readFile: () => ''}))).toBe(
    `a first sync takes about ${time} for every 1,000 deals${words}`,
  )
})

test('doctor finds what a job lacks, targets and databases that are out of reach, and a base URL of another folder', async () => {
  await lab.sync(new Date().toISOString())
  const root = join(lab.folder.root, '../unable')
  mkdirSync(root)
  const steps = [
    {do: 'export', profiles: ['csv'], tables: ['core.deal', 'core.nothing'], deliver: ['bank']},
    {do: 'publish', to: 'postgres'},
    {do: 'digest', page: 'pipeline?state=TX', to: ['head@example.com']},
    {do: 'digest', page: 'bridge_book?state=TX'},
    {do: 'digest', to: ['head@example.com']},
  ]
  writeJobFile(root, 'bank', {steps})
  const env = {LOANTAPE_JOBS_DIR: root, LOANTAPE_BASE_URL: 'http://127.0.0.1:9'}
  const pinned = `source: Base URL 'http://127.0.0.1:9': this data folder belongs to '${lab.service.url}'. Use another folder with --data: each source has its own. Only if the same service has moved, with all its deals, run \`loantape sync --accept source\` once.`
  const lacking = {
    LOANTAPE_VIEWER_TABLES: 'mart.position_daily',
    LOANTAPE_CLICKHOUSE_URL: 'http://127.0.0.1:1',
  }
  expect((await examine({...env, ...lacking})).wrong).toEqual([
    expect.stringMatching(/^jobs: Job 'bank', step export: table 'core\.nothing' is neither/),
    expect.stringMatching(/^jobs: Job 'bank', step publish: LOANTAPE_POSTGRES_URL not set/),
    expect.stringMatching(/^jobs: Job 'bank', step digest: LOANTAPE_SMTP_URL not set/),
    expect.stringMatching(/^jobs: Job 'bank', step digest: page 'bridge_book' is neither/),
    expect.stringMatching(/^jobs: Job 'bank', step digest: page 'morning' needs all tables/),
    expect.stringMatching(/^targets: .*LOANTAPE_TARGETS_FILE not set/),
    expect.stringContaining('The connection to ClickHouse at 127.0.0.1:1 failed (ECONNREFUSED).'),
    pinned,
  ])
  writeJobFile(root, 'bank', {steps: [{do: 'export', profiles: ['csv'], deliver: ['bank']}]})
  const named = {
    ...env,
    LOANTAPE_TARGETS_FILE: join(root, 'targets.json'),
    LOANTAPE_POSTGRES_URL: 'postgres://reports:secret@127.0.0.1:1/reporting',
  }
  const away = 'The connection to PostgreSQL at 127.0.0.1:1/reporting failed (ECONNREFUSED).'
  for (const [target, words] of [
    ['share', [expect.stringMatching(/^targets: Target 'bank' is not in '.*': expected one of share\./)]],
    ['bank', []],
  ] as const) {
    writeFileSync(named.LOANTAPE_TARGETS_FILE, JSON.stringify({[target]: {kind: 'folder', path: root}}))
    expect((await examine(named)).wrong).toEqual([...words, expect.stringContaining(away), pinned])
  }
})

test('doctor names a seed that nothing reads, and says where alarms go with a mail server', async () => {
  using own = writeSqlFolder({
    'seeds/limits.csv': 'name,kind\nTexas,share\n',
    'seeds/status.csv': 'status,like\nctc,closing\n',
  })
  const env = {LOANTAPE_SQL_DIR: own.path, LOANTAPE_SMTP_URL: 'smtp://mail.example.com'}
  const {wrong, models} = await examine(env)
  expect(wrong).toEqual([])
  expect(models).toMatch(/ seeds compile; no model or check reads the seed limits$/)
  for (const [address, words] of [
    ['', 'go nowhere until LOANTAPE_ALARM_WEBHOOK_URL or LOANTAPE_ALARM_EMAIL_TO is set'],
    ['night@example.com', 'go to email'],
  ] as const) {
    const {stdout} = await lab.run(['doctor'], {...env, LOANTAPE_ALARM_EMAIL_TO: address})
    expect(stdout).toContain(`✓ alarms: ${words}\n`)
  }
})

test('upgrade-check says what this version would change in a folder, and changes nothing', async () => {
  await lab.sync(new Date().toISOString())
  const writeOwn = (dir: string, column: string) => {
    const columns = ['deal_id', column]
    const said = columns.map((name) => `-- ${name}: x\n`).join('')
    writeFileSync(
      join(dir, 'risk/own.sql'),
      `-- Own.\n-- grain: deal_id\n${said}select ${columns} from core.deal\n`,
    )
  }
  using own = writeSqlFolder({
    'risk/own.sql': '',
    'pages/data_quality.md': '# Ours, changed\n',
    'mart/vintage.sql': readFileSync(join(SQL_DIR, 'mart/vintage.sql'), 'utf8'),
  })
  writeOwn(own.path, 'loan_amount')
  const jobs = join(own.path, 'jobs')
  mkdirSync(jobs)
  writeJobFile(jobs, 'nightly', {})
  const env = {LOANTAPE_SQL_DIR: own.path, LOANTAPE_JOBS_DIR: jobs}
  expect((await lab.start(['build'], env).ended).code).toBe(0)
  const check = async (code: number, {root}: {root: string} = lab.folder) => {
    const ended = await lab.run(['upgrade-check', '--json'], {...env, LOANTAPE_DATA_DIR: root})
    expect(ended.code, ended.stderr).toBe(code)
    const {ready, findings} = readJson(ended) as {ready: boolean; findings: Record<string, string>[]}
    expect(ready).toBe(code === 0)
    return Object.fromEntries(findings.map(({check = '', words}) => [check, words]))
  }
  const before = readFiles(lab.folder.root)
  const {release_id} = readManifest(lab.folder.current)
  expect(await check(0)).toEqual({
    release: `${release_id} was built by this version`,
    databases: 'have the form of this version',
    columns: 'the same tables and columns',
    'own files': `in place of ours, to be compared: ${join(own.path, 'pages/data_quality.md')}, ${join(own.path, 'mart/vintage.sql')}, job nightly`,
  })
  expect(readFiles(lab.folder.root)).toEqual(before)

  const older = lab.copyFolder('older')
  const manifest = join(older.current, 'manifest.json')
  const text = readFileSync(manifest, 'utf8').replace(/"generator": "[^"]*"/, '"generator": "loantape 0.0.1"')
  writeFileSync(manifest, text)
  {
    await using db = await openDatabase({attach: [{path: older.warehouse, alias: 'history'}]})
    await db.run('delete from history.main.migration')
  }
  const setVersion = (version: number) => {
    using stateDb = new Sqlite(older.stateDb)
    stateDb.db.exec(`pragma user_version = ${version}`)
  }
  setVersion(0)
  writeOwn(own.path, 'status')
  const found = await check(1, older)
  expect(found.release).toMatch(/was built by loantape 0\.0\.1 with DuckDB/)
  expect(found.databases).toMatch(/\(0001_state\.sql, .*0001_warehouse\.sql/)
  expect(found.columns).toMatch(/column 'loan_amount' of 'risk\.own' .* goes/)
  expect(await check(1, older)).toEqual(found)
  setVersion(99)
  expect((await check(1, older)).databases).toMatch(/State database '.*older.*' has version 99: /)
})

test('doctor names a channel as soon as it has not taken a message', async () => {
  const {root, stateDb: path} = lab.copyFolder('unsent')
  {
    using stateDb = openStateDb(path)
    stateDb.insert('notice', {
      channel: 'webhook',
      alarm: 'a',
      message: JSON.stringify({title: 'A', words: 'b', state: 'c'}),
      attempts: 3,
      next_attempt_at: 0,
      created_at: new Date(Date.now() - 60_000).toISOString(),
      error: 'It answered 500.',
    })
  }
  const env = {LOANTAPE_DATA_DIR: root, LOANTAPE_ALARM_WEBHOOK_URL: 'http://127.0.0.1:1/hook'}
  expect((await examine(env)).wrong).toContainEqual(
    expect.stringMatching(
      /^alarms: Messages by webhook cannot be sent\. .*It answered 500\..*LOANTAPE_ALARM_WEBHOOK_URL/,
    ),
  )
})
