import {rmSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, DAY_1, DAY_2, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {expectRefused, readJson, readStanding} from './outcome.ts'

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(12), releasedAt: DAY_1})
const before = await readStanding(lab.folder)
lab.service.store.insert([aDeal(13, {loan_amount_cents: 1_00n})])
await lab.walk(DAY_2)

/** A model of the deals for which a condition holds. */
const small = (condition: string) =>
  `-- Deals that are small.\n-- grain: deal_id\n--\n-- deal_id: the service's id\nselect deal_id\nfrom core.deal\nwhere ${condition}\n`

/** A check that no deal is such. */
const aCheck = (condition: string) =>
  `-- None.\n-- severity: error\nselect deal_id, loan_amount from core.deal where ${condition}\n`

const [MODEL, CHECK] = ['mart/small.sql', 'checks/none.sql']
const IN_TEXT = 'cast(property_address as integer) = 1'

const broken: [file: string, text: string, code: string, words: RegExp][] = [
  [
    MODEL,
    small('loan_amonut < 2'),
    'MODEL_BUILD',
    /'mart\.small' did not build: .*loan_amonut.*mart\/small\.sql:7\. Nothing was released/,
  ],
  [
    CHECK,
    aCheck(IN_TEXT),
    'CHECK_SQL',
    /Check 'none' in .* did not run: Conversion Error: Could not convert string '…' to INT32/,
  ],
  [
    CHECK,
    aCheck('loan_amount < 2'),
    'CHECK_FAILED',
    /'none' found 1 wrong row: deal_000013 \(loan_amount=1\.00\)\. Nothing was released; `current` is as/,
  ],
  [
    'seeds/status.csv',
    'status,class,sort_order\nliquidated,Ended_Funded,145\n',
    'SEED_FILE',
    /'Ended_Funded' of seed column 'class': expected one of pipeline, .*seeds\/status\.csv:2\./,
  ],
  [
    'seeds/status.csv',
    'status,class,sort_order,ending:canonical?\ndefault sale,ended_funded,145,forclosed\n',
    'SEED_FILE',
    /'forclosed' of seed column 'ending': expected one of paid_off, .*seeds\/status\.csv:2\./,
  ],
  [
    'seeds/limit.csv',
    'name,dimension,bucket,scope,kind,limit_value,warn_at_pct,valid_from\nTexas,state,TX,funded,percent,20,90,2099-03-10\n',
    'SEED_FILE',
    /'percent' of seed column 'kind': expected one of share, amount, .*seeds\/limit\.csv:2\./,
  ],
]

test('nothing is released with a model, check or seed that is wrong; the error names file and line, and tells no value', async () => {
  for (const [file, text, code, words] of broken) {
    using own = writeSqlFolder({[file]: text})
    const build = runOnDay2('build', lab.folder, {LOANTAPE_SQL_DIR: own.path})
    const kept = /`current` is as it was\. .*`loantape build`/
    await expectRefused(build, code, [words, kept], 3)
    expect(await readStanding(lab.folder), `${words}`).toEqual(before)
  }
})

const runOnDay2 = (command: 'build' | 'sync', {root}: DataFolder, env: Record<string, string>) =>
  lab.run([command, '--json'], {LOANTAPE_DATA_DIR: root, LOANTAPE_NOW: DAY_2, ...env})

test('a selection is built beside the releases and shows its rows and its path', async () => {
  const built = await lab.run(['build', '--select', '+mart.portfolio_summary'])
  expect(built).toMatchObject({code: 0})
  expect(built.stdout).toMatch(/^core\.deal +13 +\d+$/m)
  expect(built.stdout).toMatch(/scratch\/portfolio\.duckdb/)
  expect(await readStanding(lab.folder)).toEqual(before)
  const count = ['query', '--release', 'scratch', 'select deals from mart.portfolio_summary', '--json']
  expect(readJson(await lab.run(count))).toEqual({rows: [{deals: 13}]})
  await expectRefused(
    lab.run(['publish', 'postgres', '--release', 'scratch', '--json']),
    'RELEASE_PARTIAL',
    /'scratch'/,
  )
})

test('a model that fails over a value names the column or the type, and tells no value', async () => {
  for (const [condition, words] of [
    [IN_TEXT, "'…' to INT32 when casting from source column property_address"],
    ['cast(loan_amount as bigint) * 1000000000000000000 > 1', 'Overflow in multiplication of INT64 (…)!'],
  ] as const) {
    using own = writeSqlFolder({[MODEL]: small(condition)})
    const build = lab.run(['build', '--select', '+mart.small', '--json'], {LOANTAPE_SQL_DIR: own.path})
    await expectRefused(build, 'MODEL_BUILD', [words, /small\.sql:/], 3)
  }
})

test('a model that needs too much memory is named', async () => {
  const big = `-- Too much.
-- grain: deal_id
-- deal_id: All of them.
select list(repeat(r.range || deal.deal_id, 50))::varchar as deal_id
from core.deal as deal, range(100000) as r
`
  using own = writeSqlFolder({'mart/big.sql': big})
  const env = {LOANTAPE_SQL_DIR: own.path, LOANTAPE_MEMORY_MB: '64'}
  const words = /'mart\.big' in .* needs more than 64 MB of memory/
  const build = lab.run(['build', '--select', '+mart.big', '--json'], env)
  await expectRefused(build, 'BUILD_MEMORY', words, 3)
})

test('a missing SQL folder is a wrong setting, and removing a failing check lets the next sync release', async () => {
  const folder = lab.copyFolder('repaired')
  const missing = runOnDay2('sync', folder, {LOANTAPE_SQL_DIR: '/nowhere/sql'})
  const words = /'\/nowhere\/sql' in LOANTAPE_SQL_DIR.*what was walked is stored.*`loantape build`/
  await expectRefused(missing, 'SQL_DIR_MISSING', words)
  using own = writeSqlFolder({[CHECK]: aCheck('loan_amount > 0')})
  const env = {LOANTAPE_SQL_DIR: own.path}
  const found = /found 13 wrong rows: deal_000001 .*, …\. Nothing was released/
  const {details} = await expectRefused(runOnDay2('sync', folder, env), 'CHECK_FAILED', found, 3)
  const ids = Array.from({length: 13}, (_, index) => aDeal(index + 1).id)
  const wrong = {name: 'none', severity: 'error', failures: 13, ids}
  expect(details).toEqual({checks: [wrong]})
  const status = ['status', '--data', folder.root]
  expect(readJson(await lab.run([...status, '--json']))).toMatchObject({checking: {failed: [wrong]}})
  expect((await lab.run(status)).stdout).toMatch(
    /^Check 'none' \(error\): 13 rows in release 2026-02-03-\w{12}: deal_000001, .*, …\.$/m,
  )
  rmSync(join(own.path, CHECK))
  const released = {outcome: 'released', changes: {created: 0}}
  expect(readJson(await runOnDay2('sync', folder, env))).toMatchObject(released)
  expect((await readStanding(folder)).summary).toMatchObject([{deals: '13', amount: '4200001.00'}])
})
