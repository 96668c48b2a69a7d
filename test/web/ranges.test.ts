import {readFileSync} from 'node:fs'
import {expect, test} from 'vitest'
import {requireRelease} from '../../src/store/release.ts'
import {renderReport} from '../../src/web/report.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {listViolations} from './browser.ts'
import {block, chartIn, openPage, PAGE_TABLES, serveLab} from './side.ts'

const within = 'where place between coalesce(left($day_from, 7), place) and coalesce(left($day_to, 7), place)'
const chart = (asked: string, rows: string, where = '') =>
  block(asked, `select * from (values ${rows}) as t(place, amount) ${where}`)

const months = Array.from(
  {length: 12},
  (_, index) => `('2026-${String(index + 1).padStart(2, '0')}', ${index})`,
)
const lab = await useLab({tables: PAGE_TABLES, deals: someDeals(3), releasedAt: '2026-03-02T23:30:00-05:00'})
const own = lab.beside.use(
  writeSqlFolder({
    'pages/months.md': chart('line title="Months" range=day', months.join(', '), within),
    'pages/states.md': chart('bar range=day', `('TX', 1), ('CA', 2)`, within),
    'pages/clicks.md': `${block(
      'bar title="States"',
      `select * from (values ('CT', 1, '/deals?state=CT'), ('CA', 1, '//example.com')) as t(place, amount, amount_href)`,
    )}${block(
      'area title="Days" range=day',
      `select day, part, 1 as amount, '/deals?part=' || part as amount_href
       from (select unnest(['2026-01-01', '2026-01-02', '2026-01-03']) as day), (select unnest(['open', 'ended']) as part)
       order by all`,
    )}`,
    'pages/gaps.md': [
      ['line', `('2026-01-31', 90.0), ('2026-01-01', 70.0), ('2026-01-02', 71.0)`],
      ['line', `('2025-11', -90), ('2026-01', -70)`],
      ['waterfall', `('opening', 100), ('repaid', -10), ('closing', 90)`],
      ['line', `('2026-01-01', 7), ('2026-01-02', 70)`],
      ['line', `('a', -1), ('b', 70)`],
      ['area', `('2026-01-01', 70), ('2026-01-02', 71)`],
    ]
      .map(([shape = '', rows = '']) => chart(shape, rows))
      .join(''),
  }),
)
const side = await serveLab(lab, {sqlDir: own.path})

test('dragging over a chart of time, or its fields, chooses days in the address; a link takes them away', async () => {
  const {page, complaints} = await openPage(`${side.url}/pages/months?state=CT`)
  const drawing = page.locator('figure.chart [role=img]')
  await page.locator('figure.chart[data-chooses]').waitFor()
  const box = await drawing.boundingBox()
  if (!box) throw new Error('no chart')
  const at = (part: number) => box.x + box.width * part
  await page.mouse.move(at(0.6), box.y + 100)
  await page.mouse.down()
  await page.mouse.move(at(0.45), box.y + 110)
  await page.mouse.move(at(0.3), box.y + 110)
  await page.mouse.up()
  await page.waitForURL(/day_from/)
  const {searchParams} = new URL(page.url())
  expect(searchParams.get('state')).toBe('CT')
  expect(searchParams.get('day_from')).toMatch(/^2026-0[345]-01$/)
  expect(searchParams.get('day_to')).toMatch(/^2026-0[678]-3[01]$/)
  const from = page.getByLabel('Days from', {exact: true})
  const to = page.getByLabel('to', {exact: true})
  expect(await from.inputValue()).toBe(searchParams.get('day_from'))
  expect(await page.locator('.chips').textContent()).toContain(`Days to: ${searchParams.get('day_to')}`)
  expect(await listViolations(page, ['minor', 'moderate', 'serious', 'critical'])).toEqual([])

  await from.fill('2026-11-01')
  await to.fill('2026-12-31')
  await page.keyboard.press('Enter')
  await page.waitForURL(/day_from=2026-11-01&day_to=2026-12-31/)
  expect(chartIn(await page.content()).xAxis.data).toEqual(['2026-11', '2026-12'])
  await page.getByRole('link', {name: 'All days'}).click()
  await page.waitForURL(/months\?state=CT$/)
  expect(complaints).toEqual([])
})

test('days stand apart as far as they are, and an axis that does not begin at zero says so', async () => {
  const charts = (await side.read('/pages/gaps')).split('<figure').slice(1)
  expect(charts.map((text) => text.includes('>The axis does not begin at zero<'))).toEqual([
    ...[true, true, true],
    ...[false, false, false],
  ])
  const [a = 0, b = 0, c = 0] = [...(charts[0] ?? '').matchAll(/transform="matrix\(2,0,0,2,([\d.]+),/g)].map(
    ([, x]) => Number(x),
  )
  expect((b - a) / (c - a)).toBeCloseTo(1 / 30, 3)
})

test('a click on a value of a chart leads where the page says, with the filter, also where dragging chooses days', async () => {
  const {page, complaints} = await openPage(`${side.url}/pages/clicks?state=CT`)
  const click = async (title: string, x: number, y: number) => {
    const drawing = page.locator(`figure.chart[aria-label="${title}"] [role=img] > div:has(svg)`)
    await drawing.scrollIntoViewIfNeeded()
    const box = await drawing.boundingBox()
    if (!box) throw new Error(`no chart '${title}'`)
    // Relative to the area inside the axes.
    await page.mouse.click(box.x + 70 + (box.width - 104) * x, box.y + 10 + (box.height - 36) * y)
  }
  expect(await page.locator('.key a', {hasText: 'open'}).getAttribute('href')).toBe(
    '/deals?state=CT&part=open',
  )
  await click('States', 0.75, 0.9)
  await click('States', 0.25, 0.9)
  await page.waitForURL(`${side.url}/deals?state=CT`)
  for (const [y, part] of [
    [0.9, 'ended'],
    [0.3, 'open'],
  ] as const) {
    await page.goBack()
    await page.locator('figure.chart[data-chooses]').waitFor()
    await click('Days', 0.4, y)
    await page.waitForURL(`${side.url}/deals?state=CT&part=${part}`)
  }
  expect(complaints).toEqual([])
})

test('a chart is saved as a picture, in light colours, with its title, day and legend', async () => {
  const {page, complaints} = await openPage(`${side.url}/pages/clicks`, {colorScheme: 'dark'})
  const button = page.getByRole('figure', {name: 'Days'}).getByRole('button', {name: 'Chart as PNG'})
  await button.focus()
  const [saved] = await Promise.all([page.waitForEvent('download'), page.keyboard.press('Enter')])
  expect(saved.suggestedFilename()).toBe('Days-2026-03-02.png')
  const picture = readFileSync(await saved.path()).toString('base64')
  // The shares of colours that each series and the paper fill, and the number of colours above the chart: is something written
  // there?
  const seen = await page.evaluate<Record<'paper' | 'first' | 'second' | 'written', number>>(`(async () => {
    const image = new Image()
    image.src = 'data:image/png;base64,${picture}'
    await image.decode()
    const {width, height} = image
    const pen = new OffscreenCanvas(width, height).getContext('2d', {willReadFrequently: true})
    pen.drawImage(image, 0, 0)
    const read = (lines) => [...new Uint32Array(pen.getImageData(0, 0, width, lines).data.buffer)]
    const all = read(height)
    const shareOf = (colour) => all.filter((one) => (one & 0xffffff) === colour).length / all.length
    const shares = {paper: shareOf(0xffffff), first: shareOf(0x855a1d), second: shareOf(0xb8935b)}
    return {...shares, written: new Set(read(50)).size}
  })()`)
  expect(seen.first).toBeGreaterThan(0.2)
  expect(seen.second).toBeGreaterThan(0.2)
  expect(seen.paper).toBeGreaterThan(0.1)
  expect(seen.written).toBeGreaterThan(5)
  expect(complaints).toEqual([])
})

test('a page links back to all days, a report does not; what is no day is refused, and other charts choose none', async () => {
  const none = 'portfolio?day_from=2027-01-01'
  expect(await side.read(`/${none}`)).toContain('>All days</a>')
  expect((await renderReport(requireRelease(lab.folder), lab.config, none)).text).not.toContain('All days')
  expect((await side.get('/portfolio?day_from=<b>')).status).toBe(400)
  expect(await side.read('/pages/states')).toContain('A range needs a chart whose places are days or months.')
})
