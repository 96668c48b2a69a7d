import {execFileSync} from 'node:child_process'
import {cpSync, readlinkSync, rmSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, DAY_1, DAY_2, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {expectRefused, readJson} from './outcome.ts'

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(8)})
const {store} = lab.service
const first = String((await lab.sync(DAY_1)).release_id)
store.update('deal_000001', {status: 'funded', loan_amount_cents: 400_000_01n})
store.update('deal_000002', {loan_amount_cents: 349_999_99n})
store.insert([aDeal(9, {loan_amount_cents: 10n}), aDeal(10, {loan_amount_cents: 0n})])
const second = String((await lab.sync(DAY_2)).release_id)

const diff = (...args: string[]) => lab.run(['diff', ...args], {LOANTAPE_LOG_LEVEL: 'error'})

test('two releases are compared by id, by date, or the current one', async () => {
  const byId = await diff(first, second, '--json')
  for (const other of ['2026-02-03', 'current'])
    expect((await diff('2026-02-02', other, '--json')).stdout).toBe(byId.stdout)
  expect(readJson(byId)).toMatchObject({
    before: {release_id: first},
    after: {release_id: second},
    totals: expect.arrayContaining([expect.objectContaining({total: 'amount', movement: '50000.10'})]),
  })
})

test('people see all totals, then of each amount the largest movements and the sum of the others, each once', async () => {
  const {stdout, code} = await diff(first, second, '--limit', '1')
  expect(code).toBe(0)
  const [heading, totals = '', ...lists] = stdout.trimEnd().split('\n\n')
  expect(heading).toMatch(/^From .*:$/)
  expect(totals.split('\n').map((line) => line.split(/ {2,}/).map((cell) => cell.trim()))).toEqual([
    ['total', 'before', 'after', 'movement', 'deals that moved it'],
    expect.anything(),
    ['amount', '2,800,000.00', '2,850,000.10', '+50,000.10', '3'],
    ['deals', '8', '10', '+2', '2'],
    ['funded amount', '0.00', '400,000.01', '+400,000.01', '1'],
    ['funded deals', '0', '1', '+1', '1'],
    ['amount of draft', '2,800,000.00', '2,450,000.09', '-349,999.91', '3'],
    ['deals of draft', '8', '9', '+1', '3'],
  ])
  const shown = ['amount', 'deals', 'funded amount', 'amount of draft', 'deals of draft']
  const more = '--limit shows more deals of each, --json all.'
  expect(lists.map((list) => list.split('\n')[0])).toEqual([...shown, more])
  expect(stdout).toMatch(/^deal_000001 +loan amount 350,000\.00 → 400,000\.01 +\+50,000\.01$/m)
  expect(stdout).toMatch(/^2 more +\+0\.09$/m)
  expect(stdout).toMatch(/^deal_000001 +status draft → funded +\+400,000\.01$/m)
  expect(stdout.match(/^deal_000010 +appeared +\+1$/gm), 'no amount names it').toHaveLength(2)
  expect((await diff(first, second)).stdout).not.toContain('--json')
})

test('a release of some models is compared only if it holds deals and their history', async () => {
  const env = {LOANTAPE_DATA_DIR: lab.copyFolder('diff-scratch').root, LOANTAPE_LOG_LEVEL: 'error'}
  for (const models of ['mart.run', 'mart.movement', 'core.deal']) {
    await lab.run(['build', '--select', models], env)
    const compared = lab.run(['diff', 'current', 'scratch', '--json'], env)
    const words = /'scratch'.*core\.deal and core\.deal_history.*`--select \+core\.deal`/
    await expectRefused(compared, 'RELEASE_PARTIAL', words)
  }
  await lab.run(['build', '--select', '+core.deal'], env)
  expect((await lab.run(['diff', 'current', 'scratch'], env)).stdout).toMatch(/: no total moved\.$/m)
})

test('query and export for a past date or release answer as they did that night', async () => {
  const sql = 'select as_of, deals, amount from mart.portfolio_summary'
  const ask = async (...options: string[]) => readJson(await lab.run(['query', ...options, sql, '--json']))
  const then = {rows: [{as_of: '2026-02-02', deals: 8, amount: '2800000.00'}]}
  expect(await ask('--as-of', '2026-02-02')).toEqual(then)
  expect(await ask('--release', first)).toEqual(then)
  expect(await ask()).toEqual({rows: [{as_of: '2026-02-03', deals: 10, amount: '2850000.10'}]})
  const exported = readJson(await lab.run(['export', 'csv', '--as-of', '2026-02-02', '--json']))
  const again = readJson(await lab.run(['export', 'csv', '--release', first, '--json']))
  expect(again).toMatchObject({batches: [{outcome: 'unchanged'}]})
  expect(exported).toMatchObject({batches: [{outcome: 'written'}]})
})

test('by an instant still to come nothing more is known than now', async () => {
  // A release with a later `known_at` would hide those of later walks wherever the newest of a date is shown.
  const args = ['build', '--as-of', '2026-02-03', '--known-at', '2027-01-01T00:00:00Z', '--json']
  expect(readJson(await lab.run(args, {LOANTAPE_NOW: DAY_2}))).toMatchObject({release_id: second})
})

test('status says how long the models of the current release took', async () => {
  const words = /^Models: \d+ built in \d+ ms; slowest \w+\.\w+ \d+ ms, /m
  expect((await lab.run(['status'])).stdout).toMatch(words)
})

test('a data folder that was copied with its links followed goes on', async () => {
  const copy = dataFolderAt(`${lab.folder.root}-copied`)
  execFileSync('cp', ['-RL', `${lab.folder.root}/.`, copy.root])
  const env = {LOANTAPE_DATA_DIR: copy.root, LOANTAPE_LOG_LEVEL: 'error'}
  const sql = 'select as_of from mart.portfolio_summary'
  const asked = await lab.run(['query', '--as-of', '2026-02-02', sql, '--json'], env)
  expect(readJson(asked)).toEqual({rows: [{as_of: '2026-02-02'}]})
  expect(readlinkSync(copy.current)).toBe(`releases/${second}`)
  rmSync(copy.current)
  cpSync(join(copy.releases, second), copy.current, {recursive: true})
  rmSync(join(copy.releases, second), {recursive: true})
  const words = /current' is a folder: expected a link.*Remove that folder, then run `loantape build`/
  await expectRefused(lab.run(['build', '--json'], env), 'RELEASE_DAMAGED', words, 1)
  rmSync(copy.current, {recursive: true})
  expect((await lab.run(['build'], env)).code).toBe(0)
  expect(readlinkSync(copy.current)).toBe(`releases/${second}`)
})
