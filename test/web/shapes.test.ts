import {expect, test} from 'vitest'
import {readJobs} from '../../src/schedule/job.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {aDeal} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {block, openPage, PAGE_TABLES, serveLab} from './side.ts'

const PROGRAMS: Record<string, string> = {
  deal_000001: 'bridge_12mo',
  deal_000002: 'dscr_30yr',
  deal_000003: 'fix_and_flip',
}

/** The status and cents of each deal, as the walks saw them. */
type Book = Record<string, readonly [status: string, cents: bigint]>

const OUT: Book = {deal_000001: ['paid_off', 100_000_01n], deal_000002: ['funded', 50_000_00n]}

const WALKS: readonly (readonly [day: string, book: Book])[] = [
  ['2025-12-01', {deal_000001: ['funded', 100_000_00n], deal_000002: ['draft', 33_333_33n]}],
  ['2026-02-20', {deal_000001: ['funded', 100_000_01n], deal_000002: ['draft', 33_333_33n]}],
  ['2026-03-02', OUT],
  ['2026-03-04', {...OUT, deal_000003: ['draft', 7n]}],
]

const PARTS: Record<string, string[]> = {
  open: ['draft', 'funded'],
  funded: ['funded'],
  pipeline: ['draft'],
  ended: ['paid_off'],
}

const lab = await useLab({tables: PAGE_TABLES})
const {store} = lab.service
for (const [day, book] of WALKS) {
  for (const [id, [status, loan_amount_cents]] of Object.entries(book)) {
    const property_address = `1 Elm St, Austin, ${id === 'deal_000003' ? 'PR 00901' : 'TX 78701'}`
    const fields = {status, loan_amount_cents, loan_program: PROGRAMS[id] ?? '', property_address}
    if (store.get(id)) store.update(id, fields)
    else store.insert([aDeal(Number(id.slice(5)), fields)])
  }
  if (day === '2026-03-04') await lab.sync(`${day}T23:30:00-05:00`)
  else await lab.walk(`${day}T23:30:00-05:00`)
}
const own = lab.beside.use(
  writeSqlFolder({
    'pages/shapes.md': `# Shapes\n\n${block(
      'map title="Share by state"',
      `select * from (values ('TX', 100.0::double, '/deals?state=TX'), ('CA', 50.0, null), ('ME', 0.0, null), ('<b>', 12.5, '//example.com'), (null, 1.0, null)) as t(state, share_pct, share_pct_href)`,
    )}${block('map heading="Twice"', `select 'TX' as state, unnest([1, 2]) as deals`)}${block(
      'limits',
      `select * from (values ('<i>Texas', 120.00::decimal(18, 2), 100.00::decimal(18, 2), 'exceeded', 'failed', '/deals?state=TX'), ('None', 5.00, 0.00, 'kept', 'passed', null), ('Empty', 0.00, 100.00, 'kept', null, null), ('Unknown', 1.00, null, 'not known', null, null)) as t("limit", used, most, state, state_tone, used_href)`,
    )}${block('limits heading="Too few"', 'select 1 as name, 2 as used')}${block(
      'matrix',
      `select 'row' as "from", name as "to", share as share_pct, '/deals' as share_pct_href from (values ('none', 0.0), ('least', 0.1), ('a fifth', 20.0), ('more', 20.1), ('half', 50.0), ('all', 100.0), ('beyond', 250.0)) as t(name, share)`,
    )}${block(
      'number',
      `select 5 as deals, change_since(5, 0, 'never') as deals_note, 0.62 as a_ratio, change_since(0.62::double, 0.6, 'then') as a_ratio_note, [1, null, 3] as deals_line, 90071992547409.93::decimal(38, 2) as much, change_since(90071992547409.93::decimal(38, 2), 90071992547409.92::decimal(38, 2), 'a cent') as much_note, 1 as same, change_since(1, 1, 'ever') as same_note, 3 as less, change_since(3, 4, 'then') as less_note`,
    )}`,
    'pages/quarters.md': block('bar', `select 'Quarter ' || range as q, 1 as n from range(16)`),
    'pages/numbers.md': `# Numbers\n\n${block(
      'facts',
      `select 42151820.1680::decimal(18, 4) as units, -1234567.891::double as mean, 0.5::float as small, 1e300 as huge, 2026.5::double as term, 10.375::decimal(6, 3) as coupon_pct, 7.0 as "note rate_pct", 5.0625::double as yield_pct, 33.3333::double as roll_rate_pct, 12.3456 as corporate_pct, 66.6667::double as share_pct, -0.01 as lost_share_pct, 2026 as a_year`,
    )}${block(
      'table',
      `select date_trunc('month', day) as month, day + interval 30 day as due, timestamp '2026-03-02 00:00:01' as at, timestamp '2026-03-02' as seen_at, 586.0::double / 37 as days, 0.00012345::double as part, avg_ltv from (select date '2026-03-15' as day, 0.5 as avg_ltv union all select null, 0.5) where day is not null or $show = 'null'`,
    )}${block('line range=day title="By month"', `select date_trunc('month', day) as month, sum(amount) as amount from mart.position_daily group by all`)}`,
  }),
)
const jobs = readJobs(lab.config).map((job) => ({...job, schedule: '0 0 * * *', timeZone: 'UTC'}))
const side = await serveLab(lab, {sqlDir: own.path, jobs})

const dollars = (cents: bigint) =>
  `$${(cents / 100n).toLocaleString('en-US')}.${String(cents % 100n).padStart(2, '0')}`

/** Returns the change that a card must show, computed from the walks alone. */
function expectedChange(part: string, day: string, program?: string): string {
  const sumOn = (asOf: string) =>
    Object.entries(WALKS.findLast(([walked]) => walked <= asOf)?.[1] ?? {})
      .filter(
        ([id, [status]]) => PARTS[part]?.includes(status) && [undefined, PROGRAMS[id]].includes(program),
      )
      .reduce((sum, [, [, cents]]) => sum + cents, 0n)
  const [now, before] = [sumOn('2026-03-04'), sumOn(day)]
  const change = now - before
  if (change === 0n) return `unchanged since ${day}`
  const [sign, size] = change < 0n ? ['−', -change] : ['+', change]
  const share = ((Number(size) / Number(before)) * 100).toFixed(1)
  const shown = before === 0n || share === '0.0' ? '' : ` (${sign}${share} %)`
  return `${sign}${dollars(size)}${shown} since ${day}`
}

test.each<[path: string, day: string, program?: string]>([
  ['/portfolio?against=day', '2026-03-03'],
  ['/portfolio?against=month', '2026-02-28'],
  ['/portfolio?against=2025-12-01', '2025-12-01'],
  ['/portfolio?against=2025-12-01&loan_program=dscr_30yr', '2025-12-01', 'dscr_30yr'],
  ['/portfolio?loan_program=fix_and_flip', '2026-03-03', 'fix_and_flip'],
  ['/?against=week', '2026-02-25'],
])(
  'each figure of %s shows how it moved since %s, exactly, for the deals that are chosen',
  async (path, day, program) => {
    const page = await side.readText(path)
    for (const part of ['open', 'funded', 'pipeline', ...(path.startsWith('/p') ? ['ended'] : [])]) {
      const title = `${part[0]?.toUpperCase()}${part.slice(1)}`
      const figure = new RegExp(` ${title} +\\$\\S+ \\d+ deals?, .*?((?:[−+]\\$|unchanged).*?since \\S+)`)
      expect(figure.exec(page)?.[1], part).toBe(expectedChange(part, day, program))
    }
  },
)

test('a day of which nothing is known is named as such, and no other figure stands in for it', async () => {
  for (const path of ['/', '/portfolio']) {
    const page = await side.readText(`${path}?against=year`)
    expect(page.match(/nothing known of 2025-03-04/g)?.length).toBeGreaterThan(2)
    expect(page).not.toMatch(/\(?[−+][\d.]+ %/)
  }
  expect(await side.readText('/?against=2026-03-04-000000000000')).toContain(
    'nothing known of release 2026-03-04-000000000000',
  )
  // On the day before, this program had no loan-to-value, which is known.
  expect(await side.readText('/?loan_program=fix_and_flip')).not.toContain('nothing known of')
  expect(await side.readText('/')).toContain('since 2026-03-03')
  for (const day of ['2026-03-04', '2030-01-01']) {
    const later = await side.readText(`/?against=${day}`)
    expect(later.match(new RegExp(`nothing known of ${day}`, 'g'))).toHaveLength(5)
    expect(later).not.toContain(`since ${day}`)
  }
  // An address cannot say what is compared.
  const said = encodeURIComponent('{"since": "1999", "open": "5", "funded": "5", "pipeline": "5"}')
  for (const path of ['/', '/portfolio', '/pages/portfolio'])
    expect(await side.readText(`${path}?base=${said}&totals=${said}&bases=[]`)).not.toContain('1999')
})

test('the basis goes along from page to page, and a line shows the last 90 days', async () => {
  const page = await side.read('/?against=week&state=TX')
  expect(page).toContain('<a href="/portfolio?against=week&amp;state=TX">')
  expect(page).toContain('<a href="/deals?against=week&amp;state=TX&amp;part=open" aria-label="Open: $50K">')
  expect(page).toMatch(/href="\/\?against=week&amp;state=TX" aria-current="true">week before</)
  expect(page).toMatch(
    /<form class="against" action="\/"><input type="hidden" name="state" value="TX"><label>/,
  )
  const {length} = /<polyline points="([^"]*)"/.exec(page)?.[1]?.split(' ') ?? []
  expect(length).toBe(90)
  expect(page).toContain(
    '<title>Open, the last 90 values: from $133K to $50K, at least $50K, at most $133K</title>',
  )
})

test('states are tiles that lead to their deals, what is no state stands below, and all of it is text', async () => {
  const portfolio = await side.read('/portfolio')
  expect(portfolio).toMatch(
    /<a href="\/deals\?state=TX&amp;part=open"><title>TX 50K, \$50,000\.00<\/title><rect class="tile shade-5"/,
  )
  expect(await side.readText('/deals?part=open&state=TX')).toContain('1 deal, $50,000.00')
  expect(portfolio).toMatch(/PR <a href="\/deals\?state=PR&amp;part=open">\$0\.07<\/a>/)
  const page = await side.read('/pages/shapes')
  expect(page).toMatch(/<title>CA 50\.0 %, 50\.0 %<\/title><rect class="tile shade-3"/)
  expect(page).toMatch(/<title>ME 0\.0 %, 0\.0 %<\/title><rect class="tile "/)
  expect(page).toMatch(/<title>AK none<\/title>/)
  expect(page).toMatch(/&lt;b&gt; 12\.5 %<\/span> <span>– 1\.0 %/)
  expect(page).toContain('A map needs one row for each state.')
})

test('limits say how they stand, and a figure how it moved', async () => {
  const page = await side.readText('/pages/shapes')
  expect(page).toContain('&lt;i&gt;Texas exceeded $120.00 of $100.00, 120.0 %')
  expect(page).toContain(
    'None kept $5.00 of $0.00 Empty kept $0.00 of $100.00, 0.0 % Unknown not known $1.00 of –',
  )
  expect(page).toContain('Limits need a name, what is used, the limit, and how it stands.')
  expect(await side.read('/pages/shapes')).toContain('<a href="/deals?state=TX">$120.00</a>')
  expect(page).toContain(
    'Deals 5 +5 since never Deals, the last 2 values: from 1 to 3, at least 1, at most 3 A 62.0 %',
  )
  expect(page).toContain('A 62.0 % +2.00 points since then')
  expect(page).toContain('+$0.01 since a cent Same 1 unchanged since ever Less 3 −1 (−25.0 %) since then')
})

test('deals with a status that moves are compared with a day once its release is built', async () => {
  const address = '/?part=pipeline&against=2026-03-02'
  expect(await side.readText(address)).toContain('2026-03-02, of which no release is kept')
  expect(await lab.run(['build', '--as-of', '2026-03-02'])).toMatchObject({code: 0})
  const page = await side.readText(address)
  expect(page).toContain('Since 2026-03-02, as of 2026-03-02, known at 2026-03-02')
  expect(page).toContain('deal_000003 +$0.07 – +$0.07 came as draft')
})

test('decimals are grouped, and interest has up to three of them', async () => {
  expect(await side.readText('/pages/numbers')).toContain(
    'units 42,151,820.1680 mean -1,234,567.891 small 0.5 huge 1e+300 term 2,026.5 coupon 10.375 % note rate 7.0 % yield 5.063 % roll rate 33.3 % corporate 12.3 % share 66.7 % lost share 0.0 % a year 2026 Month Due At Seen at Days Part Avg LTV 2026-03-01 2026-04-14 2026-03-01 19:00:01 EST 2026-03-01 19:00:00 EST 15.838 0.000123 50.0 %',
  )
})

test('months and days are those that SQL counted, in a table and in a chart; the instants of our pages have a time', async () => {
  expect(await side.readText('/')).toMatch(/next: \S+ at \d{4}-\d\d-\d\d (19|20):00:00 E[SD]T/)
  expect(
    await side.readText(`/sql?as=facts&q=select+date_trunc('month',date+'2026-03-15')+as+month`),
  ).toMatch(/month 2026-03-01 (?!\d)/)
  const {page} = await openPage(`${side.url}/pages/numbers?show=null`)
  expect(await page.locator('td').allTextContents()).toEqual(
    expect.arrayContaining(['2026-03-01', '2026-04-14']),
  )
  expect(await page.locator('figure.chart').getAttribute('data-range')).toBe('day')
  expect(await page.locator('figure.chart').getAttribute('data-option')).toContain('"2026-02-01"')
})

test('names of narrow bars do not lie over each other on a phone', async () => {
  const {page} = await openPage(`${side.url}/pages/quarters`, {viewport: {width: 390, height: 800}})
  await page.locator('figure.chart > [role=img] > div svg').waitFor()
  const apart = (await page.evaluate(`(() => {
    const names = [...document.querySelectorAll('figure.chart text')].filter((text) => /^Quarter/.test(text.textContent))
    const places = names.map((name) => name.getScreenCTM())
    return places.slice(1).map(({a, b, e}, index) => Math.abs((e - places[index].e) * b) / Math.hypot(a, b))
  })()`)) as number[]
  expect(apart).toHaveLength(15)
  expect(Math.min(...apart)).toBeGreaterThan(12)
})

test('what is shaded can be read, by day and by night', async () => {
  for (const colorScheme of ['light', 'dark'] as const) {
    const {page} = await openPage(`${side.url}/pages/shapes`, {colorScheme})
    const contrasts = (await page.evaluate(`(() => {
      const partsOf = (colour) => {
        const parts = colour.match(/[\\d.]+/g).slice(0, 3).map(Number)
        return colour.startsWith('rgb') ? parts.map((part) => part / 255) : parts
      }
      const light = (colour) => {
        const [r, g, b] = partsOf(colour).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b
      }
      const contrast = (a, b) => (Math.max(light(a), light(b)) + 0.05) / (Math.min(light(a), light(b)) + 0.05)
      const cells = [...document.querySelectorAll('td[class*=shade-] a')].map((link) =>
        contrast(getComputedStyle(link).color, getComputedStyle(link.closest('td')).backgroundColor))
      const tiles = [...document.querySelectorAll('.tiles text')].map((text) =>
        contrast(getComputedStyle(text).fill, getComputedStyle(text.parentElement.querySelector('rect')).fill))
      return [...cells, ...tiles]
    })()`)) as number[]
    expect(contrasts.length).toBeGreaterThan(55)
    expect(Math.min(...contrasts)).toBeGreaterThanOrEqual(4.5)
    expect(await page.locator('td.shade-1').count()).toBe(2)
    expect(await page.locator('td.shade-5').count()).toBe(2)
    expect(await page.getByRole('rowheader').allTextContents()).toEqual(['row'])
  }
})
