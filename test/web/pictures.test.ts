import {existsSync, mkdirSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import type {Page} from 'playwright-core'
import {expect, test} from 'vitest'
import {PLACES} from '../../src/web/http-server.ts'
import {until} from '../support/until.ts'
import {startBrowser, untilDrawn} from './browser.ts'
import {useLender} from './lender.ts'
import {openPage} from './side.ts'

// Compares each page, light on a desk and dark on a phone, with its stored picture, to find what is out of place, missing,
// unreadable or of another colour. Colours do not depend on the width. `npm run pictures` takes new pictures; review them with
// `git diff`. The pictures are the same on every Linux machine: npm brings the Chromium and its font (`browser.ts`), the
// lender's clocks are stopped, and what differs between runs is masked. Pictures are compared by the mean colour of squares as
// high as a line, so that another number or a smoother edge is no difference, but a line more or less is.

const FOLDER = join(import.meta.dirname, '../golden/pictures')
const LOOKS = [
  ['wide', 1280, 'light'],
  ['narrow', 390, 'dark'],
] as const

/** Pixels of a picture per pixel of the page. */
const SCALE = 0.5

/** The side of a square in pixels of a picture; how far its colours may be off, of 255; the share of squares that may be off. */
const SQUARE = 8
const TOLERANCE = 20
const SHARE = 0.005

/** How often a page is looked at before it counts as different. */
const MOST_LOOKS = 20

const {lab, side} = await useLender()
const [deal] = await lab.query(
  `select deal_id from core.deal join (select deal_id from core.document group by all having count(*) > 1) using (deal_id)
   where status = 'funded' and funded_on > date '2026-01-05' order by deal_id limit 1`,
)
const QUERY =
  'select state, status, count(*) as deals, sum(loan_amount) as amount from core.deal group by all order by all limit 12'

/** Every page of the navigation, and that of a deal. */
const PAGES: [name: string, path: string][] = [
  ...PLACES.map(([title, path]): [string, string] => [
    title.toLowerCase(),
    path === '/sql' ? `${path}?q=${encodeURIComponent(QUERY)}` : path,
  ]),
  ['deal', `/deals/${deal?.deal_id}`],
]

test.runIf(process.platform === 'linux').each(PAGES)('%s looks as it did', async (name, path) => {
  const page = await open(path)
  for (const [form, width, colorScheme] of LOOKS) {
    await page.emulateMedia({colorScheme})
    await page.setViewportSize({width, height: 900})
    await untilDrawn(page)
    await expectPicture(page, `${name}-${form}-${colorScheme}`)
  }
})

async function open(path: string): Promise<Page> {
  const context = {deviceScaleFactor: SCALE, locale: 'en-US', timezoneId: 'UTC'}
  const {page} = await openPage(side.url + path, context)
  if (path.startsWith('/sql?')) {
    await page.getByRole('button', {name: 'Run'}).click()
    await page.locator('.downloads').waitFor()
    await page.locator('.cm-editor').waitFor()
  }
  await page.locator('#live').getByText('idle').waitFor()
  const blank = page.locator('figure.chart:not(:has(> [role=img] > div svg))')
  await until(async () => (await blank.count()) === 0)
  await page.evaluate(MASK)
  return page
}

/** Masks ids that depend on the version, instants and durations of this run, and arrows, which the font lacks. */
const MASK = `(() => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  while (texts.nextNode())
    texts.currentNode.data = texts.currentNode.data
      .replaceAll(/\\b[0-9a-f]{12,}\\b/g, (id) => '0'.repeat(id.length))
      .replaceAll(/(?!2025|2026-0[123])\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d(:\\d\\d)?/g, '2026-03-05 08:00:00')
      .replaceAll(/\\b[\\d.]+ (ms|s|MB|KB)\\b/g, '1.0 $1')
      .replaceAll(/[\\u2190-\\u21ff\\u2700-\\u27bf]/g, '>')
})()`

/** Compares the whole page with its picture. `UPDATE_GOLDEN=1` takes a new one where they differ, never in CI. */
async function expectPicture(page: Page, name: string): Promise<void> {
  const file = join(FOLDER, `${name}.png`)
  const isTaken = Boolean(process.env.UPDATE_GOLDEN)
  if (isTaken && process.env.CI) throw new Error('UPDATE_GOLDEN is refused in CI')
  expect(isTaken || existsSync(file), `${name}: there is no picture; npm run pictures takes it`).toBe(true)
  const before = existsSync(file) ? await readSquares(readFileSync(file)) : []
  let looks = 0
  // A chart may still be moving to its last form. Looking again hides nothing: what is wrong stays wrong.
  await until(async () => {
    looks += 1
    const shown = await page.screenshot({fullPage: true})
    const now = await readSquares(shown)
    const off = listOff(now, before)
    const most = now.flat().length * SHARE
    if (now.length === before.length && off.length <= most) return true
    if (looks < MOST_LOOKS) return false
    if (isTaken) {
      mkdirSync(FOLDER, {recursive: true})
      writeFileSync(file, shown)
      return true
    }
    expect(now.length, `${name}: lines`).toBe(before.length)
    expect(
      off.length,
      `${name}: other than its picture at ${off.slice(0, 4).join('; ')}`,
    ).toBeLessThanOrEqual(most)
    return true
  })
}

/** Lists where two pictures differ in colour, in pixels of the page. */
function listOff(now: number[][][], before: number[][][]): string[] {
  return now.flatMap((line, row) =>
    line.flatMap((square, column) => {
      const other = before[row]?.[column] ?? []
      return square.some((value, part) => Math.abs(value - (other[part] ?? 0)) > TOLERANCE)
        ? [`${(column * SQUARE) / SCALE}, ${(row * SQUARE) / SCALE}`]
        : []
    }),
  )
}

let table: Promise<Page> | undefined

/** Returns the mean colour of each square of a picture, line by line. */
async function readSquares(picture: Buffer): Promise<number[][][]> {
  table ??= (await startBrowser()).newPage()
  return (await table).evaluate(`(async () => {
    const image = new Image()
    image.src = 'data:image/png;base64,${picture.toString('base64')}'
    await image.decode()
    const {width, height} = image
    const context = new OffscreenCanvas(width, height).getContext('2d')
    context.drawImage(image, 0, 0)
    const {data} = context.getImageData(0, 0, width, height)
    return Array.from({length: Math.ceil(height / ${SQUARE})}, (_, row) =>
      Array.from({length: Math.ceil(width / ${SQUARE})}, (_, column) => {
        const [sum, x0, y0] = [[0, 0, 0], column * ${SQUARE}, row * ${SQUARE}]
        const [x1, y1] = [Math.min(x0 + ${SQUARE}, width), Math.min(y0 + ${SQUARE}, height)]
        for (let y = y0; y < y1; y += 1)
          for (let x = x0; x < x1; x += 1)
            for (let part = 0; part < 3; part += 1) sum[part] += data[4 * (y * width + x) + part]
        return sum.map((value) => value / ((x1 - x0) * (y1 - y0)))
      }))
  })()`)
}
