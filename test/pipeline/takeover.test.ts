import {mkdirSync, readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {gunzipSync} from 'node:zlib'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {dealStream} from '../../src/contract/deal.ts'
import {createLab, failureOf, type Lab, someDeals} from '../support/lab.ts'
import {readFieldAs} from '../support/schema.ts'

/**
 * A data folder as the last version without tapes left it: 12 deals, walked on February 2 and 3, 2026 (deal 1 funded, deal 2 gone,
 * deal 3 unreadable), exported as CSV; the walk of February 4 died with some of its pages stored. Its releases are left out.
 */
const FOLDER = join(import.meta.dirname, '../support/data-folder-before-tapes.json.gz')

let lab: Lab
let files: Record<string, string>

beforeEach(async () => {
  lab = await createLab()
  const {store} = lab.service
  store.insert(someDeals(12))
  for (const number of [1, 4]) store.update(`deal_00000${number}`, {status: 'funded'})
  store.remove('deal_000002')
  files = JSON.parse(gunzipSync(readFileSync(FOLDER)).toString())
  for (const [path, content] of Object.entries(files)) {
    const file = join(lab.folder.root, path)
    mkdirSync(dirname(file), {recursive: true})
    writeFileSync(file, Buffer.from(content, 'base64'))
  }
})

afterEach(() => lab[Symbol.asyncDispose]())

const DAY_3 = '2026-02-04T23:30:00-05:00'
const asBefore = (path: string) => readFileSync(path).toString('base64')

test('a folder of the version before tapes can be read at once, and stays as it is', async () => {
  const past = await lab.run(['build', '--as-of', '2026-02-03', '--json'])
  expect(past).toMatchObject({code: 0})
  expect((await lab.run(['quarantine', 'list'])).stdout).toContain('deal_000003')
  expect((await lab.run(['status', '--max-age', '9999999h'])).code).toBe(0)
  expect((await lab.run(['verify'])).stdout).toContain('There are no tapes yet.')
  const {release_id} = JSON.parse(past.stdout)
  expect(await lab.query('select deals, funded_deals from mart.portfolio_summary', release_id)).toEqual([
    {deals: '11', funded_deals: '1'},
  ])
  for (const path of ['warehouse.duckdb', 'history.duckdb', 'history.previous.duckdb'])
    expect(asBefore(join(lab.folder.root, path)), path).toBe(files[path])
})

test.each(['warehouse opened', 'changes planned', 'changes applied'])(
  'it is taken over by the first sync, also by one that is killed at "%s" and made again',
  async (step) => {
    const onStep = (reached: string) => {
      if (reached === step) throw new Error('killed')
    }
    await failureOf(lab.walk(DAY_3, {accept: ['source'], world: {onStep}}))
    if (step !== 'changes applied')
      expect(asBefore(lab.folder.formerWarehouse)).toBe(files['warehouse.duckdb'])
    const {certificate, changes} = await lab.walk(DAY_3, {accept: ['source']})
    expect(certificate).toMatchObject({records: 11})
    expect(changes).toMatchObject({missing: 0, created: 0})
    await lab.sync('2026-02-05T23:30:00-05:00')
    const left = readdirSync(lab.folder.root).filter((name) => /^(history|warehouse\.former)/.test(name))
    expect(left).toEqual([])
    expect(
      await lab.query(
        `select business_date, change, status from core.deal_history where deal_id in ('deal_000001', 'deal_000004')
         order by deal_id, version`,
      ),
    ).toEqual([
      {business_date: '2026-02-02', change: 'created', status: 'draft'},
      {business_date: '2026-02-03', change: 'updated', status: 'funded'},
      {business_date: '2026-02-02', change: 'created', status: 'draft'},
      {business_date: '2026-02-04', change: 'updated', status: 'funded'},
    ])
    expect((await lab.run(['rebuild'])).stdout).toContain('The warehouse is what they say.')
    expect((await lab.run(['verify'])).code).toBe(0)
  },
)

test('what it kept of a record in quarantine is still replayed', async () => {
  await lab.walk(DAY_3, {accept: ['source']})
  using _mended = readFieldAs(dealStream, 'loan_amount', 'much', 123_456)
  expect((await lab.run(['quarantine', 'replay'])).stdout).toContain(
    '1 records can be read now, 1 versions appended',
  )
})
