import {expect, test} from 'vitest'
import {readJobs} from '../../src/schedule/job.ts'
import {recordSlot} from '../../src/schedule/job-runs.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {setAccounts} from '../support/books.ts'
import {aDeal} from '../support/lab.ts'
import {changeRecords, linkBorrower, useLab} from '../support/set-up.ts'
import {OPERATOR, openPage, PAGE_TABLES, serveLab, VIEWER} from './side.ts'

const STREET = `12% O'Neill_Way "\u05d0\u202e" <i>`

const lab = await useLab({tables: `${PAGE_TABLES} +core.borrower`})
const many = Array.from({length: 101}, (_, index) =>
  aDeal(index + 10, {property_address: `${index} Harbor Rd`}),
)
lab.service.store.insert([aDeal(1), aDeal(2, {property_address: STREET}), ...many])
const own = linkBorrower(lab, 'deal_000002', 'one@example.com')
for (const {id} of many) linkBorrower(lab, id, 'many@example.com')
changeRecords(lab, /borrowers/, (listed) => {
  for (const one of listed) if (one.id !== own) one.id = 'bor_0'
})
await lab.sync('2026-03-02T23:30:00-05:00', {config: {streams: 'deals,borrowers'}})
for (const {id} of many.slice(0, 12)) lab.service.store.update(id, {status: 'funded'})
await lab.sync('2026-03-03T23:30:00-05:00', {config: {streams: 'deals,borrowers'}})
await lab.run(['accounting', 'init'])
setAccounts(lab.folder)
expect(await lab.run(['export', 'xero', '--period', '2026-03'])).toMatchObject({code: 0})
const {path: sqlDir} = lab.beside.use(writeSqlFolder({'pages/late_loans.md': '# Late & overdue\n'}))
const tokens = {webToken: OPERATOR, webViewerToken: VIEWER, sqlDir}
const side = await serveLab(lab, {sqlDir, jobs: readJobs(lab.config)})
/** A server that shows viewers only some tables. */
const some = await serveLab(lab, {...tokens, viewerTables: 'mart.*, core.borrower'})
recordSlot(side.stateDb, {job: 'nightly', instant: 0, state: 'queued', reason: 'asked for'}, 0)

/** Returns the groups with results, each with the addresses it leads to. */
async function find(q: string, {at = side, others = '', token = ''} = {}) {
  const answer = await at.get(`/find?${new URLSearchParams({q})}${others}`, token)
  const text = await answer.text()
  expect(answer.status, text).toBe(200)
  expect(text).not.toContain('class="failed"')
  expect(text).not.toContain('<i>')
  const found = text.split('<h2>').filter((group, index) => index > 0 && !group.includes('class="empty"'))
  const addressesIn = (group: string) =>
    [...group.matchAll(/href="([^"]*)"/g)].map(([, href = '']) => href.replaceAll('&amp;', '&'))
  return Object.fromEntries(found.map((group) => [group.slice(0, group.indexOf('<')), addressesIn(group)]))
}

test('the id of a deal leads to it at once, on the day that is shown, whichever deals are chosen', async () => {
  const asked = await fetch(`${side.url}/find?q=+deal_000001&as_of=2026-03-02&state=AK`, {redirect: 'manual'})
  expect([asked.status, asked.headers.get('location')]).toEqual([303, '/deals/deal_000001?as_of=2026-03-02'])
})

test('each kind of thing is found by what it is called, ten of a kind, and the others are a link away', async () => {
  expect(await find('DEAL_00000')).toMatchObject({Deals: ['/deals/deal_000001', '/deals/deal_000002']})
  expect((await find('harbor', {others: '&as_of=2026-03-02&part=open'})).Deals).toEqual([
    ...many.slice(0, 10).map(({id}) => `/deals/${id}?as_of=2026-03-02`),
    '/deals?as_of=2026-03-02&part=open&q=harbor',
  ])
  expect(await side.readText('/find?q=harbor')).toMatch(/All 101 deals \$[\d,.]+ – – /)
  expect(await side.readText('/deals?q=harbor')).toMatch(/Deals with harbor .* 101 deals, /)
  const borrowers = await lab.query('select distinct borrower_id, person from core.borrower order by all')
  const addresses = borrowers.map(({person}) => `/deals?person=${person}`)
  expect(await find('bor_0')).toEqual({Borrowers: addresses})
  expect(await find(own)).toEqual({Borrowers: addresses.slice(1)})
  const {Journal: entries = [], Issued: issued = []} = await find('lt2603')
  expect([entries.length, issued.length]).toEqual([11, 20])
  expect(await side.readText(entries.at(-1))).toContain('12 rows.')
  expect(await side.readText('/find?q=lt2603')).toContain('All 12 entries and batches')
  expect(await find('overdue')).toEqual({Pages: ['/pages/late_loans']})
  expect(await find('late_loan')).toEqual({Pages: ['/pages/late_loans']})
  expect((await find('open_wa_ltv')).Tables).toContain('/tables/mart.portfolio_summary')
  expect(await find('nightly 1')).toEqual({Runs: ['/runs/1']})
})

test.each(['%', "'", '_way', 'o\'neill_way "', STREET, '\u202e', '<I'])('%j is text', async (q) => {
  expect((await find(q)).Deals).toEqual(['/deals/deal_000002'])
})

test.each(["' or 1=1 --", '\0', 'a\0', '$q', '{0}', '🏠', 'x'.repeat(10_000), '{"a": ['])(
  '%j is in nothing, and every kind says so',
  async (q) => {
    expect(await find(q)).toEqual({})
    expect((await side.read(`/find?${new URLSearchParams({q})}`)).match(/class="empty"/g)).toHaveLength(6)
  },
)

test('a viewer of some tables finds what is in them and on them, and nothing that leads to a page that is refused', async () => {
  const found = (q: string) => find(q, {at: some, token: VIEWER})
  for (const q of ['deal_000001', 'harbor', 'nightly', 'core.deal', 'portfolio']) {
    const all = await found(q)
    expect(Object.keys(all)).not.toContain('Deals')
    expect(Object.keys(all)).not.toContain('Runs')
    for (const address of Object.values(all).flat())
      expect((await some.get(address, VIEWER)).status, address).toBe(200)
  }
  expect(await found(own)).toEqual({Borrowers: []})
  expect(await find('deal_00000', {at: some, token: OPERATOR})).toHaveProperty('Deals')
})

test('the search is a key away on every page, unless somebody writes, and needs no script', async () => {
  const {page} = await openPage(`${side.url}/sql?as_of=2026-03-02`)
  const search = page.getByRole('searchbox', {name: 'Find'})
  await page.locator('.cm-content').click()
  await page.keyboard.type('/')
  expect(await search.inputValue()).toBe('')
  await page.goto(`${side.url}/portfolio?as_of=2026-03-02`)
  await page.keyboard.press('/')
  await page.keyboard.type('harbor/')
  expect(await search.inputValue()).toBe('harbor/')
  const {page: plain} = await openPage(`${side.url}/find`, {javaScriptEnabled: false})
  expect(await plain.locator('main').textContent()).toContain('runs by number and job')
  for (const path of ['/portfolio?state=TX', '/nowhere', '/runs']) {
    await plain.goto(side.url + path)
    await plain.getByRole('searchbox', {name: 'Find'}).fill('harbor')
    await plain.keyboard.press('Enter')
    await plain.waitForURL(`${side.url}/find?${path.includes('TX') ? 'state=TX&' : ''}q=harbor`)
  }
})
