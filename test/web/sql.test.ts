import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {Workbook} from '@cj-tech-master/excelts'
import axe from 'axe-core'
import type {Browser, Page} from 'playwright-core'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {seedPortfolio} from '../../src/service/portfolio.ts'
import {openStateDb, type StateDb} from '../../src/state/state-db.ts'
import type {WebSide} from '../../src/web/http-server.ts'
import {startWeb} from '../../src/web/web-server.ts'
import {startBrowser} from '../page/browser.ts'
import {createLab, type Lab} from '../support/lab.ts'
import {until} from '../support/until.ts'
import {PAGE_TABLES} from './page-tables.ts'

const BY_STATUS =
  'select status, sum(loan_amount)::decimal(18, 2) as amount from core.deal group by all order by all'

let lab: Lab
let stateDb: StateDb
let side: WebSide
let browser: Browser

beforeAll(async () => {
  lab = await createLab({tables: PAGE_TABLES})
  seedPortfolio(lab.service.store, {deals: 60, seed: 'sql', today: '2026-03-02'})
  await lab.sync('2026-03-02T23:30:00-05:00')
  stateDb = openStateDb(lab.folder.stateDb)
  const tools = {stateDb, folder: lab.folder, jobs: [], env: lab.env}
  side = await startWeb({...lab.config, webPort: 0}, tools, lab.createWorld())
  browser = await startBrowser()
})

afterAll(async () => {
  await side[Symbol.asyncDispose]()
  stateDb[Symbol.dispose]()
  await lab[Symbol.asyncDispose]()
})

async function open(query: Record<string, string> = {}): Promise<Page> {
  const page = await browser.newPage()
  await page.goto(`${side.url}/sql?${new URLSearchParams(query)}`)
  return page
}

test('rows are shown as what was asked for, and as a table where that cannot be', async () => {
  const page = await open({q: BY_STATUS})
  const show = async (shape: string) => {
    await page.selectOption('select', shape)
    await page.getByRole('button', {name: 'Run'}).click()
  }
  for (const shape of ['bar', 'line', 'area']) {
    await show(shape)
    expect(await page.locator('figure.chart').getAttribute('aria-label')).toBe('amount')
    expect(await page.locator('select').inputValue()).toBe(shape)
  }
  await show('number')
  expect(await page.locator('.figure .name').allTextContents()).toEqual(['status', 'amount'])
  await page.goto(`${side.url}/sql?as=bar&q=select+1`)
  expect(await page.locator('.notice').textContent()).toContain('A chart needs a column')
  expect(await page.locator('tbody td').allTextContents()).toEqual(['1'])
  await page.goto(`${side.url}/sql?as=pie&q=select+1`)
  expect(await page.locator('tbody td').allTextContents()).toEqual(['1'])
  await page.close()
})

test('the editor completes tables and columns, runs by keys, and Tab leaves it', async () => {
  const page = await open()
  const editor = page.getByRole('textbox', {name: 'One SELECT'})
  const choice = page.locator('.cm-tooltip-autocomplete li').first()
  const complete = async (text: string, label: string) => {
    await page.keyboard.type(text)
    await until(async () => (await choice.allTextContents())[0] === label)
    // In its first moment a completion is not taken.
    await until(async () => {
      if (await choice.isVisible()) await choice.dispatchEvent('mousedown')
      return !(await choice.isVisible())
    })
  }
  await editor.click()
  await page.keyboard.type('select sum')
  await choice.waitFor()
  await page.evaluate(axe.source)
  expect(await page.evaluate('axe.run().then(({violations}) => violations.map(({id}) => id))')).toEqual([])
  for (let index = 0; index < 'select sum'.length; index += 1) await page.keyboard.press('Backspace')
  await complete('from core.dea', 'deal')
  await page.keyboard.type(' d\n')
  await complete('select count(d.loan_am', 'loan_amount')
  await page.keyboard.type(') as deals\n')
  await complete('where loan_pro', 'loan_program')
  await page.keyboard.type(' is not null')
  await page.keyboard.press('Tab')
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Run')
  await editor.focus()
  await page.keyboard.press('Control+Enter')
  await page.waitForURL(/q=/)
  const q = new URL(page.url()).searchParams.get('q')
  expect(q?.replaceAll('\r', '')).toBe(
    'from core.deal d\nselect count(d.loan_amount) as deals\nwhere loan_program is not null',
  )
  expect(await page.locator('tbody td').count()).toBe(1)
  expect(await editor.textContent()).toContain('from core.deal d')
  await page.close()
})

test('without scripts the field is there, and is the form of the same address', async () => {
  const page = await browser.newPage({javaScriptEnabled: false})
  await page.goto(`${side.url}/sql`)
  await page.getByRole('textbox').fill(`${BY_STATUS};`)
  await page.getByRole('button', {name: 'Run'}).click()
  expect(await page.locator('thead').textContent()).toBe('statusamount')
  expect(await page.getByRole('textbox').inputValue()).toBe(`${BY_STATUS};`)
  await page.close()
})

const get = (path: string, query: Record<string, string> = {}) =>
  fetch(`${side.url}${path}?${new URLSearchParams(query)}`)

test.each([
  ['/data/core.deal.xlsx', {}, 'from core.deal order by deal_id'],
  ['/data/core.deal.xlsx', {part: 'funded'}, `from core.deal where status_class = 'funded' order by deal_id`],
  ['/data/query.xlsx', {q: BY_STATUS}, BY_STATUS],
])('%s %s is a worksheet', async (path, query, sql) => {
  const answer = await get(path, query)
  expect(answer.headers.get('content-type')).toContain('spreadsheetml')
  const book = new Workbook()
  await book.xlsx.load(Buffer.from(await answer.arrayBuffer()))
  expect(book.worksheets).toHaveLength(1)
  const [sheet] = book.worksheets
  const expected = await lab.query(sql)
  expect(sheet?.rowCount).toBe(expected.length + 1)
  const column = Object.keys(expected[0] ?? {}).findIndex((name) => name.endsWith('amount')) + 1
  const amounts = expected.map((_, index) => sheet?.getRow(index + 2).getCell(column).value)
  expect(amounts).toEqual(expected.map(({loan_amount, amount}) => Number(loan_amount ?? amount)))
})

test('a download that is refused says why', async () => {
  for (const format of ['csv', 'xlsx']) {
    const answer = await get(`/data/query.${format}`, {q: 'select nothing'})
    expect(answer.status).toBe(400)
    expect(answer.headers.get('content-disposition')).toBeNull()
    expect(await answer.text()).toContain('Query refused: Binder Error')
  }
})

test('a query is saved under a name, opened by it, and replaced only by whoever is asked', async () => {
  const page = await open({q: 'select 1 as one', part: 'funded'})
  const save = async (name: string) => {
    await page.locator('summary:has-text("Save this query")').click()
    await page.getByLabel('Name', {exact: true}).fill(name)
    await page.getByRole('button', {name: 'Save'}).click()
  }
  const file = join(lab.folder.queries, 'all_one.sql')
  await save('all_one')
  expect(readFileSync(file, 'utf8')).toBe('select 1 as one\n')
  expect(page.url()).toBe(`${side.url}/sql?part=funded&saved=all_one`)
  await page.goto(`${side.url}/sql`)
  await page.getByRole('link', {name: 'all one'}).click()
  expect(await page.locator('thead').textContent()).toBe('one')
  await page.goto(`${side.url}/sql?q=select+2+as+two`)
  await save('all_one')
  expect(await page.locator('.notice').textContent()).toContain('all_one')
  expect(readFileSync(file, 'utf8')).toBe('select 1 as one\n')
  await page.getByRole('button', {name: 'Save'}).click()
  expect(readFileSync(file, 'utf8')).toBe('select 2 as two\n')
  expect(readdirSync(lab.folder.queries)).toEqual(['all_one.sql'])
  expect((await lab.run(['query', '--file', file])).stdout).toContain('two')
  expect((await get('/sql', {saved: 'nothing'})).status).toBe(404)
  expect((await get('/sql', {saved: '../state'})).status).toBe(404)
  await page.close()
})

const OPERATOR = 'a-token-of-24-characters'
const VIEWER = 'another-token-for-those-who-look'

test('only an operator saves, and only from a page of this server', async () => {
  const config = {...lab.config, webPort: 0, webToken: OPERATOR, webViewerToken: VIEWER}
  const tools = {stateDb, folder: lab.folder, jobs: []}
  await using guarded = await startWeb(config, tools, lab.createWorld())
  const save = async (name: string, headers: Record<string, string>, token = OPERATOR) => {
    const {status} = await fetch(`${guarded.url}/sql/queries`, {
      method: 'POST',
      redirect: 'manual',
      headers: {authorization: `Bearer ${token}`, ...headers},
      body: new URLSearchParams({name, q: 'select 1'}),
    })
    return [status, existsSync(join(lab.folder.queries, `${name}.sql`))]
  }
  const here = {origin: guarded.url}
  expect(await save('refused', {})).toEqual([403, false])
  expect(await save('refused', {origin: 'null'})).toEqual([403, false])
  expect(await save('refused', {origin: side.url})).toEqual([403, false])
  expect(await save('refused', {...here, 'sec-fetch-site': 'cross-site'})).toEqual([403, false])
  expect(await save('refused', {...here, 'sec-fetch-site': 'same-site'})).toEqual([403, false])
  expect(await save('refused', here, VIEWER)).toEqual([403, false])
  expect(await save('refused', here, 'nobody')).toEqual([401, false])
  for (const name of ['', '.', '../state', 'a/b', 'a b', 'a.sql', 'x'.repeat(101)])
    expect(await save(name, here), name).toEqual([400, false])
  expect(await save('taken_on', here)).toEqual([303, true])
  expect(await save('taken_on', {'sec-fetch-site': 'same-origin'})).toEqual([303, true])
})
