import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {createLab, type Lab, someDeals} from '../support/lab.ts'
import {PAGE_TABLES} from './page-tables.ts'
import {type LabSide, serveLab} from './side.ts'

const OPERATOR = 'a-token-of-24-characters'
const VIEWER = 'another-token-for-those-who-look'

let lab: Lab
let all: LabSide
let some: LabSide

beforeAll(async () => {
  lab = await createLab({tables: PAGE_TABLES})
  lab.service.store.insert(someDeals(3))
  await lab.sync('2026-06-01T16:00:00Z')
  const sqlDir = join(lab.folder.root, '../sql')
  mkdirSync(join(sqlDir, 'pages'), {recursive: true})
  writeFileSync(join(sqlDir, 'pages/deals.md'), '# x\n\n```sql\nselect deal_id from core.deal\n```\n')
  const config = {webToken: OPERATOR, webViewerToken: VIEWER, sqlDir}
  all = await serveLab(lab, config)
  some = await serveLab(lab, {...config, viewerTables: 'mart.*, core.deal_history'})
})

afterAll(async () => {
  await all[Symbol.asyncDispose]()
  await some[Symbol.asyncDispose]()
  await lab[Symbol.asyncDispose]()
})

async function read(path: string, {side = some, token = VIEWER} = {}) {
  const answer = await side.get(path, {authorization: `Bearer ${token}`})
  return {status: answer.status, url: answer.url, text: await answer.text()}
}

const query = (sql: string) => `/data/query.csv?q=${encodeURIComponent(sql)}`

test('viewers can read the tables they are given, in every way, and are told which', async () => {
  expect((await read('/tables', {side: all})).text).toContain('Viewers can read all of these tables')
  expect((await read('/tables')).text).not.toContain('Viewers can read all')
  expect(await read(query('select count(*) as n from mart.portfolio_summary'))).toMatchObject({
    text: 'n\n1\n',
  })
  expect(await read(query('select count(*) as n from CORE.Deal_History'))).toMatchObject({text: 'n\n3\n'})
  expect((await read('/data/mart.portfolio_summary.json')).status).toBe(200)
  expect((await read('/data/core.deal_history.parquet')).status).toBe(200)
  expect((await read('/tables/core.deal_history')).text).toContain('deal_000001')
  expect((await read('/')).url).toBe(`${some.url}/tables`)
  const {text} = await read('/tables')
  expect(text).toContain('/tables/mart.run')
  expect(text).not.toMatch(/\/tables\/(core\.deal"|accounting)/)
})

test.each([
  query('select count(*) from core.deal'),
  query('select count(*) from release.core.deal'),
  query('select count(*) from kept.work.deal_standing'),
  query('with x as (from core.deal) select * from x'),
  query('select (select max(deal_id) from core.deal) from mart.portfolio_summary'),
  query(`select 1 from mart.portfolio_summary where exists (from "core"."deal")`),
  query('from accounting.journal_line'),
  query('from seed.status'),
  query('summarize core.deal'),
  '/data/core.deal.csv',
  '/data/core.deal.parquet',
  '/data/accounting.journal_line.xlsx',
  '/tables/core.deal',
  '/tables/accounting.journal_line',
  '/deals',
  '/deals/deal_000001',
  '/portfolio',
  '/books',
  '/compare',
  '/runs',
  '/quarantine',
  '/nowhere',
])('viewers cannot read %s', async (path) => {
  const {status, text} = await read(path)
  expect(status, text).toBeGreaterThanOrEqual(400)
  expect(text).not.toMatch(/deal_00000|Main St/)
  const operator = await read(path, {token: OPERATOR})
  if (path.startsWith('/data') && !path.includes('release.')) expect(operator.status, operator.text).toBe(200)
})

test("a page that comes with loantape shows a viewer no more than one's own page", async () => {
  const page = await read('/pages/portfolio')
  expect(page.status).toBe(200)
  expect(page.text).toMatch(/pages\/portfolio\.md, line \d+: Query refused/)
  expect(page.text).not.toMatch(/deal_00000|Main St/)
  expect(page.text).toContain('1,050,000.00')
  expect((await read('/pages/portfolio', {token: OPERATOR})).text).toContain('1,050,000.00')
})

test('a table a viewer cannot read is not in the catalogue, on own pages, or revealed by a filter', async () => {
  const {text} = await read(query('select distinct table_name from duckdb_columns() where not internal'))
  expect(text).not.toMatch(/deal|journal|mart/)
  const page = await read('/pages/deals')
  expect(page.text).toContain('Catalog Error')
  expect(page.text).not.toContain('deal_000001')
  expect((await read('/pages/deals', {token: OPERATOR})).text).toContain('deal_000001')
  for (const status of ['draft', 'funded'])
    expect(
      await read(`${query('select count(*) as n from core.deal_history')}&status=${status}`),
    ).toMatchObject({
      text: 'n\n0\n',
    })
})
