import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {pathToFileURL} from 'node:url'
import {expect, test} from 'vitest'
import {newError} from '../../src/core/errors.ts'
import {requireRelease} from '../../src/store/release.ts'
import {describeTables} from '../../src/web/dictionary.ts'
import {readRow, renderFleet, type SourceRow} from '../../src/web/fleet.ts'
import {renderReport} from '../../src/web/report.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {aDeal, DAY_1, DAY_2, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {listViolations} from './browser.ts'
import {openPage} from './side.ts'

const ODD = '<img src=x onerror="document.title=`stolen`">'

/** Lists the texts of cells that overflow into the next cell. */
const CELLS_OVER_THE_NEXT =
  '[...document.querySelectorAll("td, th")].filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)'

const broken = readRow('a_lender_whose_name_is_as_long_as_can_be', () => {
  throw newError('CONFIG_INVALID', `LOANTAPE_PAGE_SIZE '${ODD}': expected a whole number from 1 to 100.`)
})
const unread = {...broken, error: null}

/** A source that could not be read, one that was never synced, and a healthy one with an alarm. */
const FLEET = [
  broken,
  {...unread, source: 'coastal', state: 'no success'},
  {
    ...unread,
    source: 'acme_capital',
    state: 'alarm',
    healthy: true,
    last_success: {run_id: 'r1', ended_at: '2026-02-04T04:35:12Z', age_hours: 7.41},
    release: {as_of: '2026-02-03', known_at: '2026-02-04T04:35:00Z', deals: 10_432, amount: '3651200000.50'},
    running: 'nightly: walking: 1,260 of 3,000 deals',
    alarms: [{name: 'limits', state: 'exceeded', title: ODD, words: '', since: '2026-02-04T04:35:00Z'}],
    next_slot: {job: 'nightly', slot: '2026-02-05T04:30:00Z'},
  },
] as SourceRow[]

const lab = await useLab({tables: 'all'})
const {store} = lab.service
store.insert([
  ...someDeals(30, {status: 'funded'}),
  aDeal(31, {status: ODD, property_address: ODD}),
  aDeal(32, {loan_amount_cents: 6_999_999_999_999_901n, status: 'funded', property_address: ODD}),
])
const own = lab.beside.use(
  writeSqlFolder({
    'risk/large_deal.sql': `-- Deals over ${ODD}.\n-- grain: deal_id\n-- check: not_null(deal_id)\n--\n-- deal_id: \`the\` id\nselect deal_id from core.deal\n`,
  }),
)
const config = {...lab.config, sqlDir: own.path}
await lab.walk(DAY_1, {config})
store.insert([aDeal(33)])
await lab.sync(DAY_2, {config})
const pages = {
  dictionary: (await describeTables(lab.folder, config, lab.createWorld())).page,
  report: (await renderReport(requireRelease(lab.folder), lab.config)).text,
  fleet: await renderFleet(FLEET, Date.parse('2026-02-04T12:00:00Z')),
}

async function open(name: keyof typeof pages, options?: Parameters<typeof openPage>[1]) {
  const file = join(lab.folder.root, `${name}.html`)
  writeFileSync(file, pages[name])
  return await openPage(pathToFileURL(file).href, options)
}

test.each(['dictionary', 'report', 'fleet'] as const)(
  'the %s fits a desk and a phone by day and by night, loads nothing, can be read aloud, and shows the data as text',
  async (name) => {
    for (const [width, colorScheme, color] of [
      [1280, 'light', 'rgb(255, 255, 255)'],
      [400, 'dark', 'rgb(20, 24, 29)'],
    ] as const) {
      const {page, complaints} = await open(name, {width, colorScheme})
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(width)
      expect(await page.evaluate(CELLS_OVER_THE_NEXT)).toEqual([])
      expect(complaints).toEqual([])
      expect(await page.evaluate('getComputedStyle(document.documentElement).backgroundColor')).toBe(color)
      expect(await page.locator('img').count()).toBe(0)
      expect(await page.title()).not.toBe('stolen')
      expect(await page.locator('body').textContent()).toContain('<img src=x onerror=')
      // All entries of a dictionary are alike, so two are enough.
      await page.evaluate(
        `document.querySelectorAll('.entry ~ .entry ~ .entry').forEach((one) => one.remove())`,
      )
      expect(await listViolations(page)).toEqual([])
    }
  },
)

test('the dictionary describes every table and column, with its rows and what the last checks found', async () => {
  const {page} = await open('dictionary')
  const columns = await lab.query(
    `select schema_name || '.' || table_name as name, list(column_name order by column_index) as columns
     from duckdb_columns() where database_name = 'release' and schema_name not in ('main', 'information_schema', 'pg_catalog')
     group by all`,
  )
  expect(columns.length).toBeGreaterThan(10)
  for (const {name, columns: expected} of columns) {
    const cells = await page.locator(`[id="${name}"] td:first-child`).allTextContents()
    expect(cells.sort(), String(name)).toEqual([...(expected as string[])].sort())
  }
  expect(await page.locator('[id="core.deal"] .facts').first().textContent()).toMatch(
    /33 rows.*built in \d+ ms.*one row per deal_id/s,
  )
  expect(await page.locator('.graph .node').allTextContents()).toContain('risk.large_deal')
  const row = page.locator('#checks ~ .scroll tr', {hasText: 'status_is_classified'}).first()
  expect(await row.textContent()).toContain('warned: 1 row')
  expect(await page.locator('[id="risk.large_deal"]').textContent()).toContain('not_null(deal_id)')
})

test('the search keeps entries that have every word, and a table in the graph leads to its entry', async () => {
  const {page} = await open('dictionary')
  const shown = () => page.locator('.entry:visible').count()
  const all = await shown()
  await page.keyboard.press('/')
  await page.keyboard.type('funded_after property_address')
  expect(await page.locator('.entry:visible').allTextContents()).toEqual([
    expect.stringContaining('core.deal'),
  ])
  await page.locator('#search').fill('no such rhinoceros')
  expect(await shown()).toBe(0)
  expect(await page.locator('#none').isVisible()).toBe(true)
  await page.locator('#search').fill('')
  expect(await shown()).toBe(all)
  await page.locator('.node[data-name="core.deal"]').click()
  expect(page.url()).toMatch(/#core\.deal$/)
})

test('the report has the exact figures of its release, from Morning to the limits of the numbers, and no link to a server', async () => {
  const {page} = await open('report')
  const text = await page.locator('main').textContent()
  expect(text).toContain('33 deals, $70,000,011,199,999.01')
  expect(text).toMatch(/as of 2026-02-03.*Release 2026-02-03-\w{12}/s)
  const total = page.locator('.breakdown tfoot tr').first().locator('td')
  expect(await total.allTextContents()).toEqual(
    expect.arrayContaining(['All', '100.0 %', '$70,000,011,199,999.01', '33']),
  )
  const headings = await page.locator('h2, h3').allTextContents()
  expect([headings[0], headings.at(-1)]).toEqual(['Morning', 'Data quality'])
  expect(pages.report).not.toMatch(/<a [^>]*href="(?!#)|<form/)
  // What can be chosen on a page is chosen here.
  const chosen = await page.locator('.choices').allTextContents()
  const since = ['Compared with day before ', 'Compared with day before ']
  expect(chosen).toEqual([...since, 'Open amount ', 'By Loan program ', '2026-02 '])
})

test('the dictionary of a folder without any release has every table, but no rows', async () => {
  const empty = lab.copyFolder('without-release')
  const {page} = await describeTables(
    {...empty, current: join(empty.root, 'nowhere'), stateDb: join(empty.root, 'none')},
    lab.config,
    lab.createWorld(),
  )
  expect(page).toContain('No release yet')
  expect(page).toContain('id="mart.portfolio_summary"')
  expect(page).not.toMatch(/built in <b>/)
})
