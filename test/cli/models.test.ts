import {mkdirSync, rmSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import type {DataFolder} from '../../src/warehouse/data-folder.ts'
import {aDeal, createLab, type Ended, type Lab, someDeals} from '../support/lab.ts'
import {readFailure, readJson, readStanding, type Standing} from './outcome.ts'

let lab: Lab
let before: Standing

beforeAll(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(12))
  await lab.sync('2026-02-02T23:30:00-05:00')
  before = await readStanding(lab.folder)
  lab.service.store.insert([aDeal(13, {loanAmountCents: 1_00n})])
})

afterAll(() => lab[Symbol.asyncDispose]())

const HEADER = `-- Deals that are small.
-- grain: deal_id
--
-- deal_id: the service's id
`

const broken: [behaviour: string, file: string, text: string, code: string, words: RegExp][] = [
  [
    'a model with a wrong column',
    'mart/small.sql',
    `${HEADER}select\n  deal_id\nfrom core.deal\nwhere loan_amonut < 2\n`,
    'MODEL_BUILD',
    /'mart\.small' did not build: .*loan_amonut.*mart\/small\.sql:8\. Nothing was released/,
  ],
  [
    'a model that is no SELECT',
    'mart/small.sql',
    `${HEADER}delete from core.deal\n`,
    'MODEL_SQL',
    /A model must be exactly one SELECT.*mart\/small\.sql:\d+\. Nothing was released/,
  ],
  [
    'a model without a header',
    'mart/small.sql',
    'select deal_id from core.deal\n',
    'MODEL_HEADER',
    /no description.*mart\/small\.sql:1\. Nothing was released/,
  ],
  [
    'a check that fails',
    'checks/no_small_deals.sql',
    '-- No deal is small.\n-- severity: error\nselect deal_id, loan_amount from core.deal where loan_amount < 2\n',
    'CHECK_FAILED',
    /'no_small_deals' found 1 wrong row: deal_000013 \(loan_amount=1\.00\)\. Nothing was released; current still/,
  ],
  [
    'a check with a wrong table',
    'checks/no_small_deals.sql',
    '-- No deal is small.\n-- severity: error\nselect deal_id\nfrom core.loan\n',
    'CHECK_SQL',
    /'no_small_deals'.*core\.loan|loan.*checks\/no_small_deals\.sql:4/s,
  ],
  [
    'a seed with a wrong value',
    'seeds/funded_on.csv',
    'deal_id,funded_on:date\ndeal_000001,2026-02-30\n',
    'SEED_VALUE',
    /'2026-02-30' of seed column 'funded_on': expected date.*seeds\/funded_on\.csv:2\./,
  ],
]

for (const [behaviour, file, text, code, words] of broken) {
  test.concurrent(`${behaviour} releases nothing`, async () => {
    const name = `${file}-${code}`.replaceAll('/', '-')
    const folder = lab.copyFolder(name)
    const sqlDir = join(lab.folder.root, `../sql-${name}`)
    mkdirSync(dirname(join(sqlDir, file)), {recursive: true})
    writeFileSync(join(sqlDir, file), text)

    const failure = readFailure(await syncDay2(folder, {LOANTAPE_SQL_DIR: sqlDir}))
    expect(failure).toMatchObject({code, exitCode: 3})
    expect(failure.message).toMatch(words)
    expect(failure.message).toMatch(/current still points to the release before\. .*`loantape build`/)
    expect(await readStanding(folder)).toEqual(before)
  })
}

function syncDay2(folder: DataFolder, env?: Record<string, string>): Promise<Ended> {
  return lab.run(['sync', '--json'], {
    LOANTAPE_DATA_DIR: folder.root,
    LOANTAPE_NOW: '2026-02-03T23:30:00-05:00',
    LOANTAPE_LOG_LEVEL: 'error',
    ...env,
  })
}

test.concurrent('an SQL folder that is not there is a wrong setting, and the next sync without it releases', async () => {
  const folder = lab.copyFolder('no-sql-folder')
  const failure = readFailure(await syncDay2(folder, {LOANTAPE_SQL_DIR: '/nowhere/sql'}))
  expect(failure).toMatchObject({code: 'SQL_DIR_MISSING', exitCode: 2})
  expect(failure.message).toMatch(
    /'\/nowhere\/sql' in LOANTAPE_SQL_DIR.*what was walked is stored.*`loantape build`/,
  )
  expect(await readStanding(folder)).toEqual(before)

  expect(readJson(await syncDay2(folder))).toMatchObject({outcome: 'released', changes: {created: 0}})
  expect((await readStanding(folder)).summary).toMatchObject([{deals: '13', amount: '4200001.00'}])
})

test.concurrent('a failing check that is taken away lets the next sync release', async () => {
  const folder = lab.copyFolder('mended')
  const checks = join(lab.folder.root, '../sql-mended/checks')
  const env = {LOANTAPE_SQL_DIR: dirname(checks)}
  mkdirSync(checks, {recursive: true})
  writeFileSync(
    join(checks, 'none.sql'),
    '-- There are no deals.\n-- severity: error\nselect deal_id from core.deal\n',
  )
  const failure = readFailure(await syncDay2(folder, env))
  expect(failure.message).toMatch(
    /found 13 wrong rows: deal_000001, deal_000002, .*, …\. Nothing was released/,
  )
  rmSync(join(checks, 'none.sql'))
  expect(readJson(await syncDay2(folder, env))).toMatchObject({outcome: 'released'})
  expect((await readStanding(folder)).summary).toMatchObject([{deals: '13'}])
})
