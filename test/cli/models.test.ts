import {mkdirSync, rmSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, createLab, type Ended, type Lab, someDeals} from '../support/lab.ts'
import {readFailure, readJson, readStanding, type Standing} from './outcome.ts'

const DAY_2 = '2026-02-03T23:30:00-05:00'

let lab: Lab
let before: Standing

beforeAll(async () => {
  lab = await createLab({tables: FEW_TABLES})
  lab.service.store.insert(someDeals(12))
  await lab.sync('2026-02-02T23:30:00-05:00')
  before = await readStanding(lab.folder)
  lab.service.store.insert([aDeal(13, {loanAmountCents: 1_00n})])
  await lab.walk(DAY_2)
})

afterAll(() => lab[Symbol.asyncDispose]())

const HEADER = `-- Deals that are small.
-- grain: deal_id
--
-- deal_id: the service's id
`

const MODEL = 'mart/small.sql'
const CHECK = 'checks/no_small_deals.sql'
const CHECK_HEADER = '-- No deal is small.\n-- severity: error\nselect deal_id, loan_amount\n'

const broken: [behaviour: string, text: string, code: string, words: RegExp, file?: string][] = [
  [
    'a model with a wrong column',
    `${HEADER}select\n  deal_id\nfrom core.deal\nwhere loan_amonut < 2\n`,
    'MODEL_BUILD',
    /'mart\.small' did not build: .*loan_amonut.*mart\/small\.sql:8\. Nothing was released/,
  ],
  [
    'a model that is not a SELECT',
    `${HEADER}delete from core.deal\n`,
    'MODEL_SQL',
    /A model must be exactly one SELECT.*mart\/small\.sql:\d+\. Nothing was released/,
  ],
  [
    'a model that reads a table nobody builds',
    `${HEADER}select deal_id\nfrom core.deals\n`,
    'MODEL_UNKNOWN_TABLE',
    /Unknown table 'core\.deals': expected a model, .*the nearest is 'core\.deal'.*mart\/small\.sql:6\. Nothing was/,
  ],
  [
    'a model with a blank line in its header',
    `${HEADER.replace('--\n', '\n')}select deal_id\nfrom core.deal\n`,
    'MODEL_HEADER',
    /blank line before '-- deal_id: the service's id': it ends the header.*mart\/small\.sql:3\. Nothing was released/,
  ],
  [
    'a model that reads itself through another',
    `-- Versions.\n-- grain: deal_id\n--\n-- deal_id: the id\nselect deal_id\nfrom core.deal\n`,
    'MODEL_CYCLE',
    /in a cycle, core\.deal_history → core\.deal → (.* → )?core\.deal_history: .*:\d+\. Nothing was released/,
    'core/deal_history.sql',
  ],
  [
    'a model that sums a DOUBLE',
    `${HEADER}select max(deal_id) as deal_id\nfrom core.deal\nhaving sum(ltv::double) < 1\n`,
    'MODEL_INEXACT_SUM',
    /sum\(.*\) of model 'mart\.small' adds up DOUBLE: .*mart\/small\.sql:7\. Nothing was released/,
  ],
  [
    'a check that fails',
    `${CHECK_HEADER}from core.deal where loan_amount < 2\n`,
    'CHECK_FAILED',
    /'no_small_deals' found 1 wrong row: deal_000013 \(loan_amount=1\.00\)\. Nothing was released; `current` still/,
    CHECK,
  ],
  [
    'a check with a wrong table',
    `${CHECK_HEADER}from core.loan\n`,
    'CHECK_SQL',
    /'no_small_deals'.*loan.*checks\/no_small_deals\.sql:4/s,
    CHECK,
  ],
  [
    'a seed with a wrong value',
    'deal_id,funded_on:date\ndeal_000001,2026-02-30\n',
    'SEED_FILE',
    /'2026-02-30' of seed column 'funded_on': expected date.*seeds\/funded_on\.csv:2:13\./,
    'seeds/funded_on.csv',
  ],
]

for (const [behaviour, text, code, words, file = MODEL] of broken) {
  test.concurrent(`${behaviour} releases nothing`, async () => {
    const name = `${behaviour}-${file}`.replaceAll(/[ /]/g, '-')
    const folder = lab.copyFolder(name)
    const sqlDir = join(lab.folder.root, `../sql-${name}`)
    mkdirSync(dirname(join(sqlDir, file)), {recursive: true})
    writeFileSync(join(sqlDir, file), text)

    const failure = readFailure(await runOnDay2('build', folder, {LOANTAPE_SQL_DIR: sqlDir}))
    expect(failure).toMatchObject({code, exitCode: 3})
    expect(failure.message).toMatch(words)
    expect(failure.message).toMatch(/`current` still points to the previous release\. .*`loantape build`/)
    expect(await readStanding(folder)).toEqual(before)
  })
}

function runOnDay2(
  command: 'build' | 'sync',
  folder: DataFolder,
  env?: Record<string, string>,
): Promise<Ended> {
  return lab.run([command, '--json'], {
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_NOW: DAY_2,
    LOANTAPE_LOG_LEVEL: 'error',
    ...env,
  })
}

test.concurrent('a model over its time limit releases nothing', async () => {
  const folder = lab.copyFolder('endless')
  const sqlDir = join(lab.folder.root, '../sql-endless')
  mkdirSync(join(sqlDir, 'mart'), {recursive: true})
  writeFileSync(
    join(sqlDir, 'mart/endless.sql'),
    `${HEADER}select cast(count(*) as varchar) as deal_id
from raw.walk as walk, range(100000000) as a, range(100000000) as b
where a.range + b.range = walk.pages - 1000\n`,
  )
  const env = {
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_SQL_DIR: sqlDir,
    LOANTAPE_LOG_LEVEL: 'error',
  }
  const failure = readFailure(
    await lab.run(['build', '--select', 'mart.endless', '--json'], env, {modelTimeoutSeconds: 0.2}),
  )
  expect(failure).toMatchObject({code: 'BUILD_TIMEOUT', exitCode: 3})
  expect(failure.message).toMatch(/'mart\.endless' in .*mart\/endless\.sql took longer than 0\.2 s/)
  expect(await readStanding(folder)).toEqual(before)
})

test.concurrent('a selection that matches no model is refused with a suggestion', async () => {
  const failure = readFailure(await lab.run(['build', '--select', 'mart.concentrations+', '--json']))
  expect(failure).toMatchObject({code: 'UNKNOWN_NAME', exitCode: 2})
  expect(failure.message).toMatch(
    /'mart\.concentrations\+' in --select names no model: .*nearest is 'mart\.concentration'\. Nothing was changed/,
  )
})

test.concurrent('a selection is built beside the releases and shows its rows and its path', async () => {
  const folder = lab.copyFolder('selection')
  const env = {LOANTAPE_DATA_DIR: folder.root}
  const built = await lab.run(['build', '--select', '+mart.portfolio_summary'], env)
  expect(built).toMatchObject({code: 0})
  expect(built.stdout).toMatch(/^core\.deal +13 +\d+$/m)
  expect(built.stdout).toMatch(/scratch\/portfolio\.duckdb/)
  expect(await readStanding(folder)).toEqual(before)
  const count = ['query', '--release', 'scratch', 'select deals from mart.portfolio_summary', '--json']
  expect(readJson(await lab.run(count, env))).toEqual({rows: [{deals: 13}]})
})

test.concurrent('a missing SQL folder is a wrong setting, and the next sync without it releases', async () => {
  const folder = lab.copyFolder('no-sql-folder')
  const failure = readFailure(await runOnDay2('sync', folder, {LOANTAPE_SQL_DIR: '/nowhere/sql'}))
  expect(failure).toMatchObject({code: 'SQL_DIR_MISSING', exitCode: 2})
  expect(failure.message).toMatch(
    /'\/nowhere\/sql' in LOANTAPE_SQL_DIR.*what was walked is stored.*`loantape build`/,
  )
  expect(await readStanding(folder)).toEqual(before)

  expect(readJson(await runOnDay2('sync', folder))).toMatchObject({
    outcome: 'released',
    changes: {created: 0},
  })
  expect((await readStanding(folder)).summary).toMatchObject([{deals: '13', amount: '4200001.00'}])
})

test.concurrent('removing a failing check lets the next sync release', async () => {
  const folder = lab.copyFolder('mended')
  const checks = join(lab.folder.root, '../sql-mended/checks')
  const env = {LOANTAPE_SQL_DIR: dirname(checks)}
  mkdirSync(checks, {recursive: true})
  writeFileSync(
    join(checks, 'none.sql'),
    '-- There are no deals.\n-- severity: error\nselect deal_id from core.deal\n',
  )
  const failure = readFailure(await runOnDay2('sync', folder, env))
  expect(failure.message).toMatch(
    /found 13 wrong rows: deal_000001, deal_000002, .*, …\. Nothing was released/,
  )
  const ids = Array.from({length: 13}, (_, index) => `deal_${String(index + 1).padStart(6, '0')}`)
  const wrong = {name: 'none', severity: 'error', failures: 13, ids}
  expect(failure.details).toEqual({checks: [wrong]})
  const status = ['status', '--data', folder.root]
  expect(readJson(await lab.run([...status, '--json']))).toMatchObject({checking: {failed: [wrong]}})
  expect((await lab.run(status)).stdout).toMatch(
    /^Check 'none' \(error\): 13 rows in release 2026-02-03-\w{12}: deal_000001, .*, …\.$/m,
  )
  rmSync(join(checks, 'none.sql'))
  expect(readJson(await runOnDay2('sync', folder, env))).toMatchObject({outcome: 'released'})
  expect((await readStanding(folder)).summary).toMatchObject([{deals: '13'}])
})
