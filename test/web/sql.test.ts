import type {Browser, Page} from 'playwright-core'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {seedPortfolio} from '../../src/service/portfolio.ts'
import {openStateDb, type StateDb} from '../../src/state/state-db.ts'
import {startWeb, type WebSide} from '../../src/web/web-server.ts'
import {startBrowser} from '../page/browser.ts'
import {createLab, type Lab} from '../support/lab.ts'

const BY_STATUS =
  'select status, sum(loan_amount)::decimal(18, 2) as amount from core.deal group by all order by all'

let lab: Lab
let stateDb: StateDb
let side: WebSide
let browser: Browser

beforeAll(async () => {
  lab = await createLab()
  seedPortfolio(lab.service.store, {deals: 60, seed: 'sql', today: '2026-03-02'})
  await lab.sync('2026-03-02T23:30:00-05:00')
  stateDb = openStateDb(lab.folder.stateDb)
  const tools = {stateDb, folder: lab.folder, jobs: [], env: lab.env}
  side = await startWeb({...lab.config, webPort: 0}, tools, lab.createWorld())
  browser = await startBrowser()
})

afterAll(async () => {
  await browser.close()
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
