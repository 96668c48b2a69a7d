import type {Locator, Page} from 'playwright-core'
import {expect, test} from 'vitest'
import {useLender} from './lender.ts'
import {OPERATOR, openPage, VIEWER} from './side.ts'

/** What people come for, with the clicks it takes from the first page; typing and the Enter key do not count. */
const CLICKS = new Map([
  ['head of credit', 3],
  ['analyst', 6],
  ['analyst, the next day', 2],
  ['analyst with a page', 5],
  ['accountant', 5],
  ['visitor', 2],
])

const {lab, side, serve} = await useLender([
  ...['2026-01-02', '2026-01-16', '2026-01-31', '2026-02-14', '2026-02-25', '2026-03-04'],
])

/** Opens the first page as somebody, and counts clicks. */
async function come(who: string, url = side.url, options: Parameters<typeof openPage>[1] = {}) {
  const {page, complaints} = await openPage(url, options)
  let clicks = 0
  return {
    page,
    async click(target: Locator) {
      clicks += 1
      await target.click()
    },
    goTo: (name: string) => page.getByLabel('Pages').getByRole('link', {name, exact: true}),
    /** Expects that the task is done. */
    leave() {
      expect(complaints).toEqual([])
      expect(clicks, who).toBe(CLICKS.get(who))
    },
  }
}

const heading = (page: Page) => page.locator('h1').textContent()

test('a head of credit finds the deal that moved the book most in a week, and the record that says so', async () => {
  const {page, click, leave} = await come('head of credit')
  await click(page.getByRole('link', {name: 'week before'}))
  await page.waitForURL(/against=week/)
  const moved = page
    .locator('h2:has-text("What moved the portfolio") ~ .scroll')
    .first()
    .locator('tbody tr')
    .first()
  const [id = '', open = ''] = await moved.locator('td').allTextContents()
  expect(open).toMatch(/^[+−–]/)
  await click(moved.getByRole('link').first())
  expect(await page.locator('.lead').textContent()).toBe(id)
  await click(page.locator('h2:has-text("What happened") ~ .scroll').first().getByRole('link').first())
  expect(await page.locator('pre').last().textContent()).toContain(`"id":"${id}"`)
  leave()
})

test('an analyst chooses deals in the filter', async () => {
  const {page, click, goTo, leave} = await come('analyst')
  await click(goTo('Deals'))
  await click(page.getByText('Filter', {exact: true}))
  await click(page.getByLabel('TX', {exact: true}))
  await click(page.getByLabel('fix and flip', {exact: true}))
  await click(page.getByLabel('Loan amount from, $'))
  await page.keyboard.type('$1,000,000')
  await click(page.getByLabel('Loan-to-value from, %'))
  await page.keyboard.type('75 %')
  await page.keyboard.press('Enter')
  await page.locator('.chips').waitFor()
  const [chosen] = await lab.query(
    `select count(*) || if(count(*) = 1, ' deal, $', ' deals, $') || format('{:,.2f}', sum(loan_amount)::double) as total
     from core.deal where state = 'TX' and loan_program = 'fix_and_flip' and loan_amount >= 1000000 and ltv >= 0.75`,
  )
  expect(await page.locator('#total').textContent()).toBe(chosen?.total)
  leave()
  await page.getByText('Filter', {exact: true}).click()
  await page.getByLabel(/^Save what is chosen/).fill('large flips')
  await page.getByRole('button', {name: 'Save', exact: true}).click()
  const again = await come('analyst, the next day')
  await again.click(again.page.getByText('Filter', {exact: true}))
  await again.click(again.page.getByRole('link', {name: 'large flips'}))
  await again.page.locator('.chips').waitFor()
  const open = again.page.locator('.figure').filter({hasText: 'Open'}).getByRole('link')
  expect(await open.first().getAttribute('href')).toContain('amount_from=1000000')
  again.leave()
})

const COHORTS = `---
title: Cohorts
order: 1
---

\`\`\`sql choices label="By"
select unnest(['state', 'loan_program']) as part, '/pages/cohorts?by=' || part || '&least=' || coalesce($least, '0') as part_href, part = $by as is_current
\`\`\`

\`\`\`sql choices label="From"
select unnest([0, 1000000]) as amount_usd, '/pages/cohorts?least=' || amount_usd || '&by=' || coalesce($by, 'state') as amount_usd_href, amount_usd = coalesce($least, '0')::bigint as is_current
\`\`\`

\`\`\`sql bar title="Amount"
select if($by = 'loan_program', loan_program, state) as part, sum(loan_amount) as amount
from core.deal where loan_amount >= coalesce($least, '0')::decimal(18, 2) group by all order by amount desc limit 12
\`\`\`

\`\`\`sql matrix heading="Months until funded"
select strftime(created_on, '%Y-%m') as created, date_diff('month', created_on, funded_on) as months, count(*) as deals
from core.deal where funded_on is not null and loan_amount >= coalesce($least, '0')::decimal(18, 2) group by all order by all
\`\`\`
`

test('an analyst makes a page of two parameters, a chart and a matrix of cohorts', async () => {
  const {page, click, goTo, leave} = await come('analyst with a page')
  await click(goTo('Pages'))
  await page.getByLabel('Name').fill('cohorts')
  await click(page.getByRole('button', {name: 'Begin a page'}))
  await page.getByRole('textbox', {name: 'Markdown'}).fill(COHORTS)
  await click(page.getByRole('button', {name: 'Save'}))
  expect(await heading(page)).toBe('Cohorts')
  await click(page.getByRole('link', {name: 'loan_program'}))
  await click(page.getByRole('link', {name: '$1,000,000'}))
  expect(new URL(page.url()).search).toBe('?least=1000000&by=loan_program')
  expect(await page.locator('.choices [aria-current]').allTextContents()).toEqual([
    'loan_program',
    '$1,000,000',
  ])
  expect(await page.locator('figure.chart').getAttribute('data-option')).toContain('"fix and flip"')
  const cells = await page.locator('.scroll').last().locator('tbody td.number').allTextContents()
  const [expected] = await lab.query(
    'select count(*) as deals from core.deal where funded_on is not null and loan_amount >= 1000000',
  )
  const sum = cells.reduce((total, cell) => total + (Number(cell.replace(',', '')) || 0), 0)
  expect(sum).toBe(Number(expected?.deals))
  leave()
})

test('an accountant sees what the next export of a month holds, and closes the month', async () => {
  const {page, click, goTo, leave} = await come('accountant')
  await click(goTo('Books'))
  await click(page.locator('tr', {hasText: '2026-02'}).getByRole('link', {name: /^quickbooks: /}))
  expect(await heading(page)).toBe('Journal of 2026-02')
  expect(await page.locator('.lead').textContent()).toMatch(/^Batch .* for 2026-02\.$/)
  await click(goTo('Books'))
  await click(page.getByText('Close 2026-02', {exact: true}))
  await click(page.getByRole('button', {name: 'Yes, close 2026-02'}))
  await page.getByText(/^Closed 2026-02: /).waitFor()
  leave()
})

test('a visitor goes from an amount to a deal behind it, and can change nothing', async () => {
  await using guarded = await serve({webToken: OPERATOR, webViewerToken: VIEWER})
  const httpCredentials = {username: 'visitor', password: VIEWER}
  const {page, click, leave} = await come('visitor', guarded.url, {httpCredentials})
  const amount = page.locator('.figure', {hasText: 'Funded'}).first()
  const exact = (await amount.locator('.note').first().textContent()) ?? ''
  await click(amount.getByRole('link').first())
  expect(exact).toContain((await page.locator('#total').textContent()) ?? 'none')
  await click(page.locator('tbody a').first())
  expect(await page.locator('dl.deal').textContent()).toContain('funded')
  expect(await page.locator('form[method=post]').count()).toBe(0)
  leave()
})
