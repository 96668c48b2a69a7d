import {expect, test} from 'vitest'
import {writeSqlFolder} from '../build/folder.ts'
import {aDeal, createLab} from '../support/lab.ts'
import {linkBorrower, useLab} from '../support/set-up.ts'
import {expectNumbersToLead} from './page-numbers.ts'
import {chartIn, PAGE_TABLES, serveLab, textOf} from './side.ts'

const id = (number: number) => `deal_00000${number}`
const lab = await useLab({tables: `${PAGE_TABLES} +core.borrower`})
const {store} = lab.service
store.insert(
  [100n, 40n, 60n].map((dollars, index) =>
    aDeal(index + 1, {
      status: 'approved',
      loan_amount_cents: dollars * 100n,
      property_address: `1 Elm St, ${index === 2 ? 'Reno, NV 89501' : 'Austin, TX 78701'}`,
    }),
  ),
)
store.insert([
  aDeal(4, {status: 'funded', loan_amount_cents: 200_00n, property_address: '4 Elm St, Austin, TX 78701'}),
])
await lab.walk('2026-01-30T23:30:00-05:00')
for (const number of [1, 2, 3]) store.update(id(number), {status: 'funded'})
await lab.walk('2026-02-02T23:30:00-05:00', {accept: ['change']})
store.update(id(2), {status: 'paid_off'})
await lab.walk('2026-02-27T23:30:00-05:00')
store.update(id(1), {loan_amount_cents: 110_00n})
await lab.walk('2026-03-10T23:30:00-04:00')
for (const number of [1, 4]) linkBorrower(lab, id(number), 'one@example.com')
// A second borrower of the first deal.
for (const number of [1, 3]) linkBorrower(lab, id(number), 'two@example.com')
await lab.sync('2026-04-02T23:30:00-04:00', {config: {streams: 'deals,borrowers'}})
const side = await serveLab(lab)

/** Returns the markup of a page from a heading to the next. */
async function readSection(path: string, heading: string): Promise<string> {
  const [, section = ''] =
    new RegExp(`<h2[^>]*>${heading}</h2>(.*?)<h2`, 's').exec(`${await side.read(path)}<h2`) ?? []
  return section
}

test('vintages show what became of the first amount of a month, and each share leads to its loans', async () => {
  const funded = await readSection('/portfolio', 'Vintages')
  expect(textOf(funded)).toContain('Funded in 0 months 1 month 2026-02 3 deals, $200.00 80.0 % 85.0 %')
  const doors = [...funded.matchAll(/href="([^"]*age=[^"]*)">/g)].map(([, href = '']) =>
    href.replaceAll('&amp;', '&'),
  )
  const totals = await Promise.all(doors.map((door) => side.readText(door)))
  expect(totals.map((text) => / \d deals?, \S+/.exec(text)?.[0])).toEqual([
    ' 2 deals, $160.00',
    ' 2 deals, $170.00',
  ])
  const paid = await readSection('/portfolio?outcome=paid_off&show=funded_amount&by=state', 'Vintages')
  expect(textOf(paid)).toContain('2026-02 3 deals, $200.00 20.0 % 20.0 %')
  expect(paid).toContain('href="/portfolio?outcome=funded&amp;show=funded_amount&amp;by=state#vintages"')
  expect(await side.readText('/behind/vintage?month=2026-02&age=1&outcome=paid_off')).toContain(
    '1 deal, $40.00',
  )
  expect(textOf(await readSection(`/portfolio?outcome=${encodeURIComponent("'<b>")}`, 'Vintages'))).toContain(
    '80.0 %',
  )
  for (const odd of [
    'month=x&age=0',
    'month=2026-02&age=x',
    'month=2026-02&age=-1',
    'month=2026-02',
    'month=9999-12&age=4000000000',
  ])
    expect((await side.get(`/behind/vintage?outcome=funded&${odd}`)).status, odd).toBe(404)
  expect((await side.get('/behind/largest?by=state&top=x')).status).toBe(404)
})

test('the largest borrowers stand beside the largest deals, each leads to what it owes first of all', async () => {
  const text = textOf(await readSection('/portfolio', 'Largest borrowers'))
  expect(text).toMatch(/ \w{12} 2 \$310\.00 83\.8 % \w{12} 1 \$60\.00 16\.2 % /)
  expect(text).toContain(
    'Of what is funded the largest is 83.8 % , the five largest 100.0 % , the ten largest 100.0 % ; HHI 7,283 of 10,000.',
  )
  const deals = textOf(await readSection('/portfolio', 'Largest funded deals'))
  expect(deals).toContain('the largest is 54.1 % , the five largest 100.0 %')
  expect(await expectNumbersToLead(side.url, '/portfolio')).toBeGreaterThan(30)
})

test('month by month shows the share of each part in what is open or funded', async () => {
  const read = async (show: string) =>
    textOf(await readSection(`/portfolio?show=${show}&by=state`, 'Month by month'))
  expect(await read('funded_share')).toMatch(
    / 2026-04 so far 16\.2 % 83\.8 % 2026-03 16\.2 % 83\.8 % 2026-02 16\.7 % 83\.3 % 2026-01 0\.0 % 100\.0 % /,
  )
  expect(await read('open_share')).toMatch(/ so far 16\.2 % 83\.8 % /)
  // What came later is no note of this release.
  for (const day of ['2026-04-02', '2026-04-20'])
    expect(await lab.run(['note', 'add', '--day', day, '--text', `Of ${day}.`])).toMatchObject({code: 0})
  expect(await read('open_share')).toMatch(/ 2026-04-02: Of 2026-04-02\. (?!.*2026-04-20)/)
  // A status has one colour.
  const [daily, monthly] = await Promise.all(
    ['Position over time', 'Month by month'].map(async (heading) =>
      (await readSection('/portfolio?by=status', heading)).match(/series-\d\)"\/><\/svg><a[^>]*status=\w+/g),
    ),
  )
  expect(monthly?.length).toBeGreaterThan(1)
  expect(monthly).toEqual(daily)
})

test('the others of a breakdown lead to their deals, and a part that is called others is none of them', async () => {
  const deals = Array.from({length: 17}, (_, index) =>
    aDeal(index + 1, {
      status: ['others', 'b'][index] ?? `s${index}`,
      loan_program: ['others', 'b'][index] ?? `p${index}`,
      loan_amount_cents: BigInt(17 - index) * 100n,
      created_at: Date.UTC(2024, index, 5, 12),
    }),
  )
  await using own = await createLab({deals, tables: PAGE_TABLES})
  const blocks = ['status', 'loan_program', 'created_month'].map(
    (by) => `\`\`\`page parts/breakdown dimension=${by}\n\`\`\`\n`,
  )
  using pages = writeSqlFolder({'pages/parts.md': blocks.join('\n')})
  await own.walk('2026-03-02T20:00:00-05:00')
  await own.sync('2026-04-03T20:00:00-04:00')
  await using shown = await serveLab(own, {sqlDir: pages.path})
  expect((await shown.read('/pages/parts')).match(/>2 others</g)).toHaveLength(3)
  expect(await expectNumbersToLead(shown.url, '/pages/parts')).toBeGreaterThan(30)

  const charts = (await shown.read('/portfolio')).split('<figure class="chart"').slice(1)
  expect(charts).toHaveLength(2)
  for (const chart of charts) {
    const series: {name: string; data: [string, number][]}[] = chartIn(chart).series
    const last = series.map(({name, data}) => [name, data.at(-1)?.[1]])
    expect(Object.fromEntries(last)).toMatchObject({others: 17, b: 16, '11 others': 66, All: 153})
  }
})
