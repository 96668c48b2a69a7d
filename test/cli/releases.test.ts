import {afterAll, beforeAll, expect, test} from 'vitest'
import {z} from 'zod'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, createLab, type Lab, someDeals} from '../support/lab.ts'
import {readFailure, readJson} from './outcome.ts'

let lab: Lab
let first: string
let second: string

beforeAll(async () => {
  lab = await createLab({tables: FEW_TABLES})
  const {store} = lab.service
  store.insert(someDeals(8))
  first = String((await lab.sync('2026-02-02T23:30:00-05:00')).release_id)
  store.update('deal_000001', {status: 'funded', loanAmountCents: 400_000_01n})
  store.update('deal_000002', {loanAmountCents: 349_999_99n})
  store.insert([aDeal(9, {loanAmountCents: 10n})])
  second = String((await lab.sync('2026-02-03T23:30:00-05:00')).release_id)
})

afterAll(() => lab[Symbol.asyncDispose]())

const diff = (...args: string[]) => lab.run(['diff', ...args], {LOANTAPE_LOG_LEVEL: 'error'})

const shape = z.object({
  before: z.object({release_id: z.string()}),
  after: z.object({release_id: z.string()}),
  totals: z.array(
    z.object({
      total: z.string(),
      status: z.string().nullable(),
      movement: z.string(),
      parts: z.array(z.object({deal_id: z.string(), change: z.string(), movement: z.string()})),
    }),
  ),
})

test.concurrent('JSON lists every deal that moved a total, adding up to it, by id, by date, or for the current release', async () => {
  const byId = await diff(first, second, '--json')
  for (const names of [
    ['2026-02-02', '2026-02-03'],
    ['2026-02-02', 'current'],
  ])
    expect((await diff(...names, '--json')).stdout).toBe(byId.stdout)
  const {before, after, totals} = shape.parse(readJson(byId))
  expect([before.release_id, after.release_id]).toEqual([first, second])
  const amount = totals.find(({total, status}) => total === 'amount' && status === null)
  expect(amount).toEqual({
    total: 'amount',
    status: null,
    movement: '50000.10',
    parts: [
      {deal_id: 'deal_000001', change: 'loan_amount', movement: '50000.01'},
      {deal_id: 'deal_000009', change: 'appeared', movement: '0.10'},
      {deal_id: 'deal_000002', change: 'loan_amount', movement: '-0.01'},
    ],
  })
  expect(totals.find(({total}) => total === 'funded_amount')?.parts).toEqual([
    {deal_id: 'deal_000001', change: 'status', movement: '400000.01'},
  ])
})

test.concurrent('people see the largest movements and the sum of the others', async () => {
  const {stdout, code} = await diff(first, second, '--limit', '1')
  expect(code).toBe(0)
  expect(stdout).toMatch(/^amount +2,800,000\.00 +2,850,000\.10 +\+50,000\.10 +3$/m)
  expect(stdout).toMatch(/^deal_000001 +loan amount 350000\.00 → 400000\.01 +\+50,000\.01$/m)
  expect(stdout).toMatch(/^2 more +\+0\.09$/m)
  expect(stdout).toMatch(/^ +in all +\+50,000\.10$/m)
  expect(stdout).toMatch(/^deal_000001 +status draft → funded +\+400,000\.01$/m)
})

test.concurrent('a release compared with itself shows no movement', async () => {
  expect((await diff(first, first)).stdout).toMatch(/: no total moved\.$/m)
})

test.concurrent('a release of some models is compared only if it holds deals and their history', async () => {
  const env = {LOANTAPE_DATA_DIR: lab.copyFolder('diff-scratch').root, LOANTAPE_LOG_LEVEL: 'error'}
  for (const models of ['mart.run', 'mart.movement', 'core.deal']) {
    await lab.run(['build', '--select', models], env)
    const failure = readFailure(await lab.run(['diff', 'current', 'scratch', '--json'], env))
    expect(failure).toMatchObject({code: 'RELEASE_PARTIAL', exitCode: 2})
    expect(failure.message).toMatch(/'scratch'.*core\.deal and core\.deal_history.*`--select \+core\.deal`/)
  }
  await lab.run(['build', '--select', '+core.deal'], env)
  expect((await lab.run(['diff', 'current', 'scratch'], env)).stdout).toMatch(/: no total moved\.$/m)
})

test.concurrent('query and export for a past date or release answer as they did that night', async () => {
  const sql = 'select as_of, deals, amount from mart.portfolio_summary'
  const [byDate, byRelease, byDefault] = await Promise.all([
    lab.run(['query', '--as-of', '2026-02-02', sql, '--json']),
    lab.run(['query', '--release', first, sql, '--json']),
    lab.run(['query', sql, '--json']),
  ])
  const then = {rows: [{as_of: '2026-02-02', deals: 8, amount: '2800000.00'}]}
  expect([byDate, byRelease].map((ended) => ended && readJson(ended))).toEqual([then, then])
  expect(byDefault && readJson(byDefault)).toEqual({
    rows: [{as_of: '2026-02-03', deals: 9, amount: '2850000.10'}],
  })
  const exported = readJson(await lab.run(['export', 'csv', '--as-of', '2026-02-02', '--json']))
  const again = readJson(await lab.run(['export', 'csv', '--release', first, '--json']))
  expect(again).toMatchObject({batches: [{outcome: 'unchanged'}]})
  expect(exported).toMatchObject({batches: [{outcome: 'written'}]})
})

test.concurrent('status says how long the models of the current release took', async () => {
  const [json, text] = await Promise.all([lab.run(['status', '--json']), lab.run(['status'])])
  expect(json && readJson(json)).toMatchObject({
    release: {
      models: expect.arrayContaining([{name: 'core.deal', rows: 9, duration_ms: expect.any(Number)}]),
    },
  })
  expect(text?.stdout).toMatch(/^Models: \d+ built in \d+ ms; slowest \w+\.\w+ \d+ ms, /m)
})
