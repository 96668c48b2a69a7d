import {mkdirSync, readdirSync, readFileSync, realpathSync, symlinkSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import type {Page} from 'playwright-core'
import {expect, test} from 'vitest'
import {moveCurrent} from '../../src/build/build-folder.ts'
import {advanceDay, seedPortfolio} from '../../src/service/portfolio.ts'
import {requireRelease} from '../../src/store/release.ts'
import {acquireLock, withRun} from '../../src/store/runs.ts'
import {aDeal} from '../support/lab.ts'
import {linkBorrower, useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {listViolations} from './browser.ts'
import {expectNumbersToLead} from './page-numbers.ts'
import {block, expectToFit, openPage, serveLab, textOf} from './side.ts'

const ODD = '<img src=x onerror="document.title=`stolen`">'
const LONG = 'w'.repeat(80)

const lab = await useLab({tables: 'all'})
const {store} = lab.service
seedPortfolio(store, {deals: 120, seed: 'page', today: '2026-03-02'})
store.insert([
  aDeal(1, {status: ODD, property_address: ODD, loan_program: LONG, loan_amount_cents: 123_456n}),
])
await lab.sync('2026-03-02T23:30:00-05:00')
advanceDay(store, {seed: 'page', day: '2026-03-03'})
await lab.walk('2026-03-03T23:30:00-05:00')
advanceDay(store, {seed: 'page', day: '2026-03-04'})
const [other] = await lab.query("select deal_id from core.deal where deal_id <> 'deal_000001'")
for (const deal of ['deal_000001', String(other?.deal_id)]) linkBorrower(lab, deal, 'one@example.com')
await lab.sync('2026-03-04T23:30:00-05:00', {config: {streams: 'deals,borrowers'}})
const side = await serveLab(lab)

async function open(path: string) {
  const opened = await openPage(side.url + path)
  if (path.startsWith('/sql?')) {
    await opened.page.getByRole('button', {name: 'Run'}).click()
    await opened.page.locator('.downloads').waitFor()
  }
  return opened
}

const json = async (path: string): Promise<Record<string, unknown>[]> => JSON.parse(await side.read(path))
const cents = (amount: unknown) => BigInt(Math.round(Number(amount) * 100))

const PAGES = [
  '/',
  '/portfolio',
  '/pipeline',
  '/deals',
  '/deals/deal_000001',
  '/checks',
  '/deals/deal_000001/received',
  '/books/2026-03',
  '/find?q=austin',
  '/compare?as_of=2026-03-02',
  '/pages',
  '/pages/first_page',
  '/edit?name=first_page',
  '/tables',
  '/tables/core.deal',
  '/sql?q=from core.deal limit 20',
  `/deals?state=${'W'.repeat(120)}`,
]

test.each(PAGES)('%s fits a desk and a phone, can be read aloud and reports no error', async (path) => {
  const opened = await open(path)
  await expectToFit(side, path, opened)
  expect(await opened.page.locator('.failed').allTextContents()).toEqual([])
})

test('a phone shows each deal next to its first amount while scrolling', async () => {
  const {page} = await open('/deals')
  await page.setViewportSize({width: 390, height: 900})
  const ends = (cell: string) =>
    page.evaluate(`(() => {
      const {left, right} = document.querySelector('tbody tr').querySelector('${cell}').getBoundingClientRect()
      return [Math.round(left), Math.round(right)]
    })()`) as Promise<[number, number]>
  expect((await ends('td.number'))[1]).toBeLessThanOrEqual(390)
  const before = await ends('td')
  await page.evaluate(`document.querySelector('.scroll').scrollLeft = 200`)
  expect(await ends('td')).toEqual(before)
})

test('a printed page has its figures, whole charts and what was chosen, and no navigation', async () => {
  const {page} = await open('/portfolio?status=approved&show=open_share&against=2026-03-02')
  await page.locator('figure.chart > [role=img] > div svg').first().waitFor()
  await page.emulateMedia({media: 'print'})
  await page.evaluate(`dispatchEvent(new Event('beforeprint'))`)
  expect(await page.locator('.top').isVisible()).toBe(false)
  expect(await page.getByText('Status: approved').isVisible()).toBe(true)
  expect(await page.locator('.choices a:visible').allTextContents()).toEqual([
    '2026-03-02',
    'Share of open',
    'Loan program',
  ])
  expect(await page.locator('.figure').first().isVisible()).toBe(true)
  // The width between the margins of A4.
  await page.setViewportSize({width: 680, height: 900})
  expect(
    await page.evaluate(`Math.max(...[...document.querySelectorAll('.chart svg')].map((drawn) =>
      drawn.getBoundingClientRect().width))`),
  ).toBe(680)
  await page.goto(`${side.url}/deals`)
  expect(await page.locator('.pages').isVisible()).toBe(false)
  expect(await page.locator('td').first().isVisible()).toBe(true)
  await page.goto(`${side.url}/tables/core.deal`)
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(680)
})

test('amounts are copied with signs that spreadsheets read, and what was written as it is', async () => {
  const {page} = await open('/?against=2026-03-02')
  const copied = (select: string) =>
    page.evaluate<[text: string, html: string, isOurs: boolean]>(`(() => {
      ${select}
      const clipboardData = new DataTransfer()
      const event = new ClipboardEvent('copy', {clipboardData, bubbles: true, cancelable: true})
      document.activeElement.dispatchEvent(event)
      return [clipboardData.getData('text/plain'), clipboardData.getData('text/html'), event.defaultPrevented]
    })()`)
  const [text, markup] = await copied(`getSelection().selectAllChildren(document.querySelector('main'))`)
  expect(text).toMatch(/\t-?\$[\d,.]+\t/)
  for (const one of [text, markup]) expect(one).not.toMatch(/[−+]\$\d/)
  const [, rows] = await copied(`getSelection().selectAllChildren(document.querySelector('tbody'))`)
  expect(rows).toMatch(/^<table>\s*<tr><td.*<a href="http:.*<td class="number">-?\$[\d,.]+/s)
  await page.goto(`${side.url}/sql?q=${encodeURIComponent(`select '^[a-z]+$', '+$1'`)}`)
  await page.locator('.cm-content').click()
  const [written] = await copied(`getSelection().selectAllChildren(document.activeElement)`)
  expect(written).toBe(`select '^[a-z]+$', '+$1'`)
})

test('figures are as wide as their amounts, and no wider than a phone', async () => {
  mkdirSync(lab.folder.pages, {recursive: true})
  const amounts = Array.from({length: 7}, (_, index) => `1234567890.12::decimal(38, 2) as a${index}`)
  const large = `select ${amounts.join(', ')}, 123456789012345678901234567890.12::decimal(38, 2) as large`
  writeFileSync(join(lab.folder.pages, 'large.md'), block('number', large))
  const {page} = await open('/pages/large')
  const lines = `[...document.querySelectorAll('.value')].map((value) => Math.round(value.clientHeight / 34))`
  expect(await page.evaluate(lines)).toEqual([1, 1, 1, 1, 1, 1, 1, 1])
  await page.setViewportSize({width: 390, height: 900})
  expect(await page.evaluate(lines)).toEqual([1, 1, 1, 1, 1, 1, 1, 2])
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390)
})

test('each check leads to its condition, and to its rows if it found any', async () => {
  const {page} = await open('/')
  await page.locator('a[href="/checks"]').first().click()
  const manifest = requireRelease(lab.folder).manifest
  expect(await page.locator('li:has(b.passed)').count()).toBe(manifest.checks.passed)
  expect(await page.locator('section:has(h2 + ul b.warned)').count()).toBe(manifest.checks.warned)
  const [found] = manifest.checks.results.filter(({name}) => name === 'status_is_classified')
  expect(await page.locator('#status_is_classified .scroll').first().locator('tbody tr').count()).toBe(
    found?.failures,
  )
  const titles = page.locator('#status_is_classified .scroll').first().locator('th')
  expect(await titles.allTextContents(), 'the amount before the rest').toEqual(['Status', 'Amount', 'Deals'])
  await page.locator('nav a[href="/"]').click()
  expect(await page.locator('.needs', {hasText: 'not so for'}).textContent()).toMatch(/1 row, such as/)
})

test('figures are those of the summary, and each leads to its deals', async () => {
  const [summary] = await lab.query('from mart.portfolio_summary')
  const morning = await side.read('/')
  for (const part of ['open', 'funded', 'pipeline']) {
    const exact = Number(summary?.[`${part}_amount`]).toLocaleString('en-US', {minimumFractionDigits: 2})
    const sum = `${summary?.[`${part}_deals`]} deals, $${exact}`
    expect(textOf(morning)).toContain(sum)
    expect(await side.readText(`/deals?part=${part}`)).toContain(sum)
  }
  // The ratio covers the whole portfolio; its parts lead further.
  expect(morning).toContain('<a href="/portfolio" aria-label="Weighted loan-to-value: ')
  expect(morning).toContain('<a href="/deals?part=open" aria-label="Open: $')
})

test('a change since a day is that from the deals that met the filter then, as the release of that day has them', async () => {
  for (const filter of ['', 'part=funded', 'status=funded', 'amount_from=300000']) {
    const [[then], [now]] = await Promise.all([
      json(`/data/mart.portfolio_summary.json?${filter}&as_of=2026-03-02`),
      json(`/data/mart.portfolio_summary.json?${filter}`),
    ])
    const moved = Number(cents(now?.open_amount) - cents(then?.open_amount)) / 100
    expect(moved).not.toBe(0)
    const size = Math.abs(moved).toLocaleString('en-US', {minimumFractionDigits: 2})
    const shown = await side.readText(`/portfolio?${filter}&against=2026-03-02`)
    expect(shown).toContain(`${moved < 0 ? '−' : '+'}$${size}`)
    if (filter === '') {
      const points = 100 * (Number(now?.open_wa_ltv) - Number(then?.open_wa_ltv))
      expect(Math.abs(points)).toBeGreaterThan(0.01)
      expect(shown).toContain(
        `${points < 0 ? '−' : '+'}${Math.abs(points).toFixed(2)} points since 2026-03-02`,
      )
    }
  }
  const unkept = await side.readText('/?status=funded&against=2026-03-03')
  expect(unkept).toContain('Nothing is known of 2026-03-03, of which no release is kept.')
  expect(unkept).not.toMatch(/(%\)|points) since 2026-03-03/)
})

test('the funded share of a month that began before the first walk is shown as unknown, not as nothing', async () => {
  expect(await side.readText('/pipeline')).toMatch(
    /Pull-through .*? 2026-03 so far \d+ \d+ unknown \d+ unknown \d+ unknown /,
  )
})

test.each([
  '/?against=2026-03-02',
  '/portfolio?part=funded&loan_program=bridge_12mo',
  '/pipeline?loan_program=bridge_12mo',
  '/books',
])('every linked number of %s leads to the deals that count or add up to it', async (path) => {
  expect(await expectNumbersToLead(side.url, path)).toBeGreaterThan(2)
})

test('many values of a filter share one chip, so that the page does not grow with their square', async () => {
  const statuses = Array.from({length: 51}, (_, index) => `status=s${index}`)
  const page = await side.read(`/deals?${statuses.join('&')}&state=TX`)
  expect(page).toContain('<a href="/deals?state=TX" aria-label="Remove filter Status: 51 values">')
  expect(page.match(/aria-label="Remove filter/g)).toHaveLength(2)
})

test('deals are chosen on a page by values and ranges, and go along to other pages', async () => {
  const {page, complaints} = await open('/portfolio?show=funded_amount')
  await page.getByText('Filter', {exact: true}).click()
  await page.getByLabel('TX', {exact: true}).check()
  await page.keyboard.press('Escape')
  expect(await page.getByLabel('TX', {exact: true}).isVisible()).toBe(false)
  expect(await page.evaluate('document.activeElement.textContent')).toBe('Filter')
  await page.keyboard.press('Enter')
  await page.getByLabel('FL', {exact: true}).check()
  await page.getByLabel('Loan amount from, $').fill('$300,000')
  await page.getByLabel('Loan-to-value to, %').fill('70.5 %')
  expect(await listViolations(page)).toEqual([])
  await page.locator('.filter').getByRole('button', {name: 'Show', exact: true}).last().click()
  expect(page.url()).toContain('show=funded_amount')
  expect(await page.locator('.chips a').allTextContents()).toEqual([
    'State: FL',
    'State: TX',
    'Loan amount from: $300,000',
    'Loan-to-value to: 70.5 %',
  ])
  await page.getByRole('link', {name: 'Deals', exact: true}).click()
  await page.getByText('Filter', {exact: true}).click()
  expect(await page.getByLabel('TX', {exact: true}).isChecked()).toBe(true)
  await page.locator('[name=save_as]').fill('Coast_above_300k')
  await page.locator('[name=save_as]').press('Enter')
  const {pathname, search} = new URL(page.url())
  expect(pathname).toBe('/deals')
  await page.goto(`${side.url}/behind/closing?month=2026-03&as_of=2026-03-02`)
  await page.getByText('Filter', {exact: true}).click()
  await page.getByRole('link', {name: 'Coast above 300k'}).click()
  expect(page.url()).toBe(`${side.url}/behind/closing${search}&month=2026-03&as_of=2026-03-02`)
  const taken = await side.post('/filters', {save_as: 'Coast above 300k', state: 'TX'})
  expect(await taken.text()).toContain("there is a filter 'Coast_above_300k' already")
  await page.getByText('Filter', {exact: true}).click()
  await page.getByText('Remove Coast above 300k', {exact: true}).click()
  expect(await listViolations(page)).toEqual([])
  await page.getByRole('button', {name: 'Remove', exact: true}).click()
  expect(new URL(page.url()).searchParams.get('month')).toBe('2026-03')
  expect(await page.getByRole('link', {name: 'Coast above 300k'}).count()).toBe(0)
  expect(await side.read('/runs')).toContain(`href="/deals${search.replaceAll('&', '&amp;')}">Look at it`)
  await page.locator('.chips a', {hasText: 'State: FL'}).click()
  expect(page.url()).not.toContain('state=FL')
  await page.goto(`${side.url}/deals/deal_000001`)
  expect(await page.locator('.filter form').first().getAttribute('action')).toBe('/deals')
  expect(complaints).toEqual([])
})

test.each([
  ['save_as=all', 400, /expected a choice of deals/],
  ['save_as=../x&state=TX', 400, /expected a choice of deals, and a name/],
  ['save_as=x&amount_from=many', 400, /expected dollars/],
  [`save_as=x&state=${'x'.repeat(9000)}`, 400, /expected fewer values/],
])('a filter %.40s is not saved: %i', async (body, status, words) => {
  const answer = await side.post('/filters', Object.fromEntries(new URLSearchParams(body)))
  expect([answer.status, await answer.text()]).toEqual([status, expect.stringMatching(words)])
})

test('files that are no filters are left out, and the others shown', async () => {
  const at = (name: string) => join(lab.folder.queries, `${name}.filter`)
  mkdirSync(at('folder'), {recursive: true})
  symlinkSync('/nowhere', at('gone'))
  writeFileSync(at('long'), `state=${'x'.repeat(20_000)}`)
  writeFileSync(at('empty'), '')
  writeFileSync(at('wrong'), 'amount_from=many')
  writeFileSync(at('Late_day'), 'state=TX&as_of=2026-01-01')
  const [, saved = ''] = /Saved: (.*?)<\/p>/s.exec(await side.read('/')) ?? []
  expect(saved).toContain('href="/?state=TX">Late day<')
  expect(saved).not.toMatch(/folder|gone|long|empty|wrong/)
})

test('the ends of a range belong to it', async () => {
  const amounts = await lab.query(
    'select loan_amount, created_on from core.deal order by loan_amount, deal_id',
  )
  const {loan_amount: amount, created_on} = amounts[amounts.length >> 1] ?? {}
  const day = String(created_on).slice(0, 10)
  for (const [query, condition] of [
    [`amount_from=${amount}`, `loan_amount >= ${amount}`],
    [`amount_to=${amount}`, `loan_amount <= ${amount}`],
    [`amount_to=${amount}&amount_to=$${amount}`, `loan_amount <= ${amount}`],
    ['amount_from=300,000&amount_from=300000&amount_from=$ 300,000', 'loan_amount >= 300000'],
    ['ltv_from=70', 'ltv >= 0.7'],
    ['ltv_to=70', 'ltv <= 0.7'],
    [`created_from=${day}&created_to=${day}`, `created_on = '${day}'`],
  ]) {
    const expected = await lab.query(`select deal_id from core.deal where ${condition} order by deal_id`)
    const found = await json(`/data/core.deal.json?${query}`)
    expect(found.map(({deal_id}) => deal_id).sort(), query).toEqual(expected.map(({deal_id}) => deal_id))
  }
})

test('a borrower on the page of a deal leads to all deals of that person', async () => {
  const {page} = await open('/deals/deal_000001')
  await page.locator('a[href^="/deals?person="]').click()
  expect(await page.locator('#total').textContent()).toMatch(/^2 deals, /)
  expect(await page.locator('tbody').textContent()).toContain(String(other?.deal_id))
})

test('an earlier day shows what its release says; a day that is not kept lists those that are', async () => {
  const first = readdirSync(lab.folder.releases).find((name) => name.startsWith('2026-03-02'))
  const earlier = await lab.query('select open_amount from mart.portfolio_summary', first)
  const [shown] = await json('/data/mart.portfolio_summary.json?as_of=2026-03-02')
  expect(cents(shown?.open_amount)).toBe(cents(earlier[0]?.open_amount))
  const none = await side.get('/portfolio?as_of=2026-01-01')
  expect(none.status).toBe(404)
  expect(await none.text()).toContain('/?as_of=2026-03-02')
  for (const download of ['as_of=2026-01-01', 'known_at=2026-03-01']) {
    const answer = await side.get(`/data/core.deal.csv?${download}`)
    expect(answer.status, download).toBe(404)
    expect(await answer.text()).toContain('None of this day and moment is kept.')
  }
  // 23:30 in New York is the next day in UTC.
  for (const [moment, type] of [
    ['2026-03-03', 'date'],
    ['2026-03-03T04:30Z', 'text'],
  ]) {
    const shown = await side.read(`/?known_at=${moment}`)
    expect(shown).toContain('as of <b>2026-03-02</b>')
    expect(shown).toContain(`type="${type}" name="known_at" value="${moment}"`)
  }
  for (const moment of ['2026-03-03T04:29Z', '2026-03-01', '0001-01-01'])
    expect((await side.get(`/?known_at=${moment}`)).status, moment).toBe(404)
  expect(await side.read('/?known_at=9999-12-31')).toContain('as of <b>2026-03-04</b>')
})

test('deals are found by id and address, sorted, and paged through', async () => {
  const first = await side.read('/deals?sort=deal_id')
  const second = await side.read('/deals?sort=deal_id&page=2')
  expect(second, 'another filter begins at the first page').not.toContain('name="page"')
  const idsOf = (text: string) => [...text.matchAll(/href="\/deals\/([\w%]+)"/g)].map(([, id]) => id)
  const all = await lab.query('select deal_id from core.deal order by deal_id')
  expect([...idsOf(first), ...idsOf(second)]).toEqual(all.slice(0, 100).map(({deal_id}) => deal_id))
  expect(idsOf(await side.read('/deals?sort=deal_id&page=999')).at(-1)).toBe(all.at(-1)?.deal_id)
  expect(idsOf(await side.read('/deals?q=deal_000001'))).toEqual(['deal_000001'])
  expect(idsOf(await side.read(`/deals?q=${encodeURIComponent('<IMG SRC=X')}`))).toEqual(['deal_000001'])
})

test('the list of deals says since when each has its status in the words of its own page, and sorts by the latest day', async () => {
  const {page} = await open('/deals?sort=-status_since')
  const days = await lab.query(
    'select cast(status_since_at_latest as varchar) as day from core.deal order by day desc limit 50',
  )
  const ids = await page.locator('tbody td:first-child').allTextContents()
  const since = await page.locator('tbody td:last-child').allTextContents()
  expect(new Set(since.map((words) => words.replaceAll(/\d/g, '0')))).toEqual(
    new Set(['0000-00-00', 'between 0000-00-00 and 0000-00-00']),
  )
  expect(since.map((words) => words.slice(-10))).toEqual(days.map(({day}) => day))
  for (const index of [0, since.findIndex((words) => words.startsWith('between'))]) {
    const own = await side.read(`/deals/${ids[index]}`)
    expect(own).toContain(`<dt>status since</dt><dd><bdi>${since[index]}</bdi></dd>`)
    expect(own).not.toMatch(/<dt>(created at|status text)|sent as/)
  }
})

test('an invalid day, moment, part, range or text in an address is named, on pages and in downloads', async () => {
  for (const [query, said] of [
    ['as_of=garbage', "As of 'garbage': expected a day such as 2026-03-31."],
    ['as_of=2026-02-30', "As of '2026-02-30': expected a day such as 2026-03-31."],
    ['known_at=yesterday', "Known at 'yesterday': expected a day or an instant such as"],
    ['known_at=2026-03-04T99:99', "Known at '2026-03-04T99:99': expected a day or an instant such as"],
    ['status=%00funded', 'Status: a NUL character, expected text.'],
    ['part=all', "Part 'all': expected one of"],
    ['amount_from=many', "Loan amount from 'many': expected dollars such as 1000000"],
    ['amount_from=1,5', "Loan amount from '1,5': expected dollars"],
    ['amount_from=1000,000', "Loan amount from '1000,000': expected dollars"],
    ['amount_from=$', "Loan amount from '$': expected dollars"],
    ['amount_from=000,001', "Loan amount from '000,001': expected dollars"],
    ['amount_from=$1.005', "Loan amount from '$1.005': expected dollars"],
    ['ltv_to=x %25', "Loan-to-value to 'x %': expected a percentage"],
    ['amount_to=1&amount_to=2', "Loan amount to '1', '2': expected one"],
    ['ltv_to=-1', "Loan-to-value to '-1': expected a percentage such as 75"],
    ['created_to=2026-02-30', "Created to '2026-02-30': expected a day"],
    ['against=2026-02-30', "Compared with '2026-02-30': expected day, week, month, year, a day"],
  ] as const) {
    for (const path of ['/', '/deals', '/data/core.deal.csv']) {
      const answer = await side.get(`${path}?${query}`)
      expect(answer.status, path).toBe(400)
      expect((await answer.text()).replaceAll('&#39;', "'")).toContain(said)
    }
  }
  for (const wrong of ['amount_from=many', 'amount_to=1&amount_to=2'])
    expect(await side.read(`/deals?state=TX&${wrong}`)).toContain(
      'href="/deals?state=TX">The page without it',
    )
  expect((await side.get('/?known_at=2026-03-04T12:00')).status).toBe(200)
  expect((await side.get('/behind/moved?against=2026-03-01')).status, 'no day that was walked').toBe(404)
})

test('a download is the table, and is sent again only when it has changed', async () => {
  const answer = await side.get('/data/core.deal.csv')
  const rows = await lab.query('from core.deal order by deal_id')
  const lines = (await answer.text()).trim().split('\n')
  expect(lines).toHaveLength(rows.length + 1)
  expect(lines[0]).toBe(Object.keys(rows[0] ?? {}).join())
  expect(lines.slice(1).map((line) => line.split(',')[0])).toEqual(rows.map(({deal_id}) => deal_id))
  const etag = answer.headers.get('etag') ?? ''
  expect((await side.get('/data/core.deal.csv', {'if-none-match': etag})).status).toBe(304)
  for (const other of ['core.deal.csv?part=funded', 'core.deal.csv?exact=1', 'core.note.csv'])
    expect((await side.get(`/data/${other}`, {'if-none-match': etag})).status, other).toBe(200)
  const asked = (await side.get('/data/query.csv?q=select+1')).headers.get('etag') ?? ''
  expect((await side.get('/data/query.csv?q=select+2', {'if-none-match': asked})).status).toBe(200)
  const parquet = Buffer.from(await (await side.get('/data/core.deal.parquet')).arrayBuffer())
  expect(parquet).toEqual(readFileSync(`${lab.folder.current}/core.deal.parquet`))
  const some = await (await side.get('/data/core.deal.parquet?part=funded')).arrayBuffer()
  expect(Buffer.from(some)).not.toEqual(parquet)
})

test('a Parquet file of the release that has changed on the disk is not sent', async () => {
  const path = realpathSync(`${lab.folder.current}/core.deal.parquet`)
  const bytes = readFileSync(path)
  writeFileSync(path, bytes.with(100, bytes[100]! ^ 1))
  const answer = await side.get('/data/core.deal.parquet')
  writeFileSync(path, bytes)
  expect(answer.status).toBe(500)
  expect(await answer.text()).toContain('does not have the sha256 of its manifest')
  expect((await side.get('/data/core.deal.parquet')).status).toBe(200)
})

test.each([
  [`/deals?status=${encodeURIComponent(`x') or 1=1 --`)}`, 'No deal is like that'],
  [`/deals?q=${encodeURIComponent(`' or 1=1 --`)}`, 'No deal is like that'],
  ['/deals?sort=(select 1)', 'Loan amount ↓'],
  ['/deals?page=-1', 'page 1 of'],
  ['/tables/core.deal;drop', 'Not found'],
  [`/tables/${encodeURIComponent('<script>alert(1)</script>')}`, 'Not found'],
  [`/deals/${encodeURIComponent(`' or 1=1`)}`, 'Not found'],
  [`/?against=${encodeURIComponent(`2026-03-02' or 1=1`)}`, 'Compared with'],
  [`/portfolio?by=${encodeURIComponent(`x' or 1=1`)}&show=deal_id`, 'Month by month'],
  ['/pipeline?month=%00', 'Transitions'],
  ['/quarantine?reason=2026-99-99T00:00:00Z', '2026-99-99T00:00:00Z'],
  ['/data/core.deal', 'No such data'],
  ['/data/core.nope.csv', 'No such data'],
  ['/data/core.deal.exe', 'No such data'],
  ['/data/..%2fstate.csv', 'No such data'],
  ['/data/query.csv', 'No such data'],
])('%s does no harm', async (path, shown) => {
  const text = await side.read(path)
  expect(text).toContain(shown)
  expect(text).not.toContain('<script>')
})

test.each(['loan_program', 'created_month'])(
  'month by month, the parts of each %s are the open portfolio',
  async (dimension) => {
    const page = await side.read(`/portfolio?by=${dimension}`)
    const [, row = ''] = /id="month-by-month".*?<details.*?<tbody>\s<tr>(.*?)<\/tr>/s.exec(page) ?? []
    const amounts = [...row.matchAll(/\$([\d,.]+)/g)].map(([, amount = '']) =>
      cents(amount.replaceAll(',', '')),
    )
    const [summary] = await lab.query('select open_amount from mart.portfolio_summary')
    const all = cents(summary?.open_amount)
    expect(amounts.pop()).toBe(all)
    expect(amounts.reduce((sum, amount) => sum + amount, 0n)).toBe(all)
  },
)

const FILTER = /<details class="filter">|<p class="chips">/

test.each(['/books', '/books/2026-03', '/checks', '/compare', '/quarantine'])(
  '%s is of all deals, whatever filter leads there, and keeps it for the pages after it',
  async (path) => {
    const mainOf = (page: string) => {
      const [main = ''] = /<h1>[\s\S]*<\/main>/.exec(page) ?? []
      return main.replace(/<details class="(clocks|filter)">[\s\S]*?<\/details>/g, '')
    }
    const [filtered, all] = [await side.read(`${path}?state=TX`), await side.read(path)]
    const said = '<p class="muted">Of all deals: no filter applies here.</p>'
    expect(mainOf(filtered)).toContain(said)
    expect(mainOf(filtered).replace(said, '')).toBe(mainOf(all))
    expect(filtered).toContain('<a href="/portfolio?state=TX">')
    expect(all).not.toMatch(FILTER)
  },
)

test('the page of runs has no filter, and under one the rows of tables are said to be of all deals', async () => {
  expect(await side.read('/runs?state=TX')).not.toMatch(FILTER)
  expect(await side.readText('/tables')).toContain('What it is Rows ')
  expect(await side.readText('/tables?state=TX')).toContain('What it is Rows of all deals ')
})

test('the books of some deals can be the first page requested, and so can their seeds', async () => {
  await using fresh = await serveLab(lab)
  for (const path of ['/tables/accounting.tie_out?state=TX', '/sql?q=from seed.status&state=TX']) {
    const reply = await fresh.get(path)
    expect([reply.status, (await reply.text()).includes('refused')], path).toEqual([200, false])
  }
})

test('everything can be done with keys alone', async () => {
  const {page} = await openPage(side.url)
  const press = (key: string) => page.keyboard.press(key)
  const focused = () => page.evaluate('document.activeElement.textContent.trim()')
  await press('Tab')
  expect(await focused()).toBe('To the page')
  await press('/')
  await page.keyboard.type('deal_000001')
  await press('Enter')
  await page.waitForURL(`${side.url}/deals/deal_000001`)
  await page.goto(`${side.url}/deals`)
  while ((await focused()) !== 'Filter') await press('Tab')
  await press('Enter')
  while ((await page.evaluate('document.activeElement.value')) !== 'TX') await press('Tab')
  await press('Space')
  await press('Enter')
  await page.locator('.chips').waitFor()
  expect(new URL(page.url()).search).toBe('?state=TX')
  // Every control can be reached in turn, and none traps the focus.
  for (const path of ['/', '/deals?state=TX', '/sql', '/runs', '/edit?name=first']) {
    await page.goto(side.url + path)
    await page.locator('.cm-editor').waitFor({state: path === '/sql' ? 'attached' : 'detached'})
    // Each chart gets its button once it is drawn.
    await page.locator('figure.chart:not(:has(.picture))').first().waitFor({state: 'detached'})
    await page.evaluate("addEventListener('focusin', ({target}) => (target.dataset.reached = ''))")
    const unreached = `[...document.querySelectorAll('a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex="0"], .cm-content')]
      .filter((one) => one.checkVisibility({visibilityProperty: true}) && one.dataset.reached === undefined)
      .map((one) => one.outerHTML)`
    const all = await page.evaluate<string[]>(unreached)
    for (let presses = 0; presses < all.length + 5; presses += 1) await press('Tab')
    expect(await page.evaluate(unreached), path).toEqual([])
  }
})

/** Sets the clock of a page ahead until something is so: the page asks what is new once a second. */
const untilTold = (page: Page, isSo: () => boolean | Promise<boolean>) =>
  until(async () => {
    await page.clock.runFor(1000)
    return isSo()
  })

test('the current run is shown as it progresses, while the server answers, and the page of runs reloads once it has ended', async () => {
  const {page, complaints} = await open('/runs')
  await page.clock.install()
  await page.reload()
  const live = page.locator('#live')
  const untilShown = (text: string) => untilTold(page, async () => (await live.textContent()) === text)
  let loads = 0
  page.on('load', () => {
    loads += 1
  })
  const untilLoaded = (times: number) => untilTold(page, () => loads >= times)
  await untilShown('idle')
  await page.route('**/runs/live', (route) => route.abort())
  await untilShown('the server does not answer')
  await page.unroute('**/runs/live')
  await untilShown('idle')
  complaints.length = 0
  const world = lab.createWorld()
  {
    using lock = acquireLock(side.stateDb, {runId: 'r_1', command: 'sync'}, world)
    lock.setProgress('page 3 of 40')
    await untilShown('sync: page 3 of 40')
    lock.setProgress('page 4 of 40')
    await untilShown('sync: page 4 of 40')
  }
  await untilLoaded(1)
  expect(await live.textContent()).toBe('idle')

  // While somebody is writing, the page stays and says what it does not show.
  const search = page.getByRole('searchbox', {name: 'Find'})
  await page.evaluate('globalThis.isSame = true')
  {
    using lock = acquireLock(side.stateDb, {runId: 'r_2', command: 'sync'}, world)
    lock.setProgress('page 1 of 40')
    await untilShown('sync: page 1 of 40')
    await search.fill('harbor')
  }
  await untilShown('ended; load the page again to see how')
  expect(await page.evaluate('globalThis.isSame')).toBe(true)
  await search.fill('')
  await search.blur()
  await untilLoaded(2)
  expect(await live.textContent()).toBe('idle')

  // This one begins and ends between two answers: the server is in this process.
  await withRun(lab.folder.stateDb, 'sync', world, async () => ({outcome: 'released'}))
  await untilLoaded(3)
  expect(complaints).toEqual([])
})

test('an action that ends while the page of runs is made goes on for it', async () => {
  const command = 'loantape note add --limit=Acme'
  const action = {who: 'anna', command, began_at: new Date().toISOString()}
  const action_id = Number(side.stateDb.insert('page_action', action).lastInsertRowid)
  // The page asks for what people did before it asks for the walks.
  const shown = await side.readWhile('/runs', () => {
    const ended_at = new Date().toISOString()
    side.stateDb.update('page_action', {action_id}, {ended_at, exit_code: 0, words: 'All is walked.'})
  })
  // So it reloads.
  expect(shown).toMatch(/id="live"[^>]* data-running="true"[^>]*>loantape note add</)
})

test('a page says when another release has replaced the one it shows', async () => {
  const folder = lab.copyFolder('replaced')
  const earlier = readdirSync(folder.releases).find((name) => name.startsWith('2026-03-02'))
  const [first, second] = [requireRelease(folder, earlier), requireRelease(folder)]
  moveCurrent(folder, first.dir)
  await using served = await serveLab(lab, {folder})
  const {page} = await openPage(served.url)
  await page.clock.install()
  await page.reload()
  // Before the page asks for the first time.
  moveCurrent(folder, second.dir)
  const live = page.locator('#live')
  await untilTold(page, async () =>
    /another release: load the page again/.test(String(await live.textContent())),
  )
  await page.reload()
  let answers = 0
  page.on('response', (response) => {
    answers += response.url().endsWith('/runs/live') ? 1 : 0
  })
  // The second answer comes after the page has acted on the first.
  await untilTold(page, () => answers > 1)
  expect(await live.textContent()).toBe('idle')
})
