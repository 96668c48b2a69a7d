import {existsSync, readdirSync, readFileSync} from 'node:fs'
import type {BrowserContextOptions, Locator, Page} from 'playwright-core'
import {expect, onTestFinished} from 'vitest'
import type {Config} from '../../src/core/config.ts'
import {codeOf} from '../../src/core/errors.ts'
import type {World} from '../../src/core/types.ts'
import type {Job} from '../../src/schedule/job.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {startWeb} from '../../src/web/web-server.ts'
import {FEW_TABLES} from '../support/data.ts'
import type {Lab} from '../support/lab.ts'
import {until} from '../support/until.ts'
import {listFaults, listMisfits, listViolations, startBrowser} from './browser.ts'

/** The tables the workbench pages read, in the form `--select` takes. */
export const PAGE_TABLES: string = `${FEW_TABLES} +mart.portfolio_breakdown +mart.movement +mart.position_daily +mart.portfolio_monthly +mart.pipeline_aging +mart.data_quality +mart.document_coverage +mart.limit_status +mart.funded_rollforward +mart.funded_rollforward_deal +mart.concentration +mart.top_exposure +mart.vintage +accounting.journal_line +accounting.opening_line +accounting.loan_register +accounting.tie_out`

/** The tokens of guarded servers: for acting, and for looking. */
export const OPERATOR = 'a-token-of-24-characters'
export const VIEWER = 'another-token-for-those-who-look'

type Tools = Parameters<typeof startWeb>[1]

/** Who asks: a token, or headers. */
type Asker = string | Record<string, string>

/** A web side over a lab's data folder, with its own connection to the state database; disposing it, or the lab, closes both. */
export type LabSide = Awaited<ReturnType<typeof serveLab>>

/** What a browser sends for a name and a token. */
export const basic = (name: string, token: string) => ({
  authorization: `Basic ${Buffer.from(`${name}:${token}`).toString('base64')}`,
})

/** A block of SQL in the Markdown of a page. */
export const block = (asked: string, sql: string): string => `\`\`\`sql ${asked}\n${sql}\n\`\`\`\n\n`

/** The questions of a page, each with its answers, that are asked in these words. */
export const questionOf = (page: Page, words: string): Locator =>
  page.locator('details.ask').filter({has: page.locator(`summary:text-is("${words}")`)})

/** Returns the text of markup, with spaces collapsed. */
export const textOf = (markup: string): string =>
  markup
    .replaceAll(/<[^>]+>/g, ' ')
    .replaceAll('&#39;', "'")
    .replaceAll(/\s+/g, ' ')

/** Reads what the chart of this title, or the first, is drawn from. */
export const chartIn = (markup: string, title = '') =>
  JSON.parse(
    (new RegExp(`aria-label="${title}[^>]* data-option="([^"]*)"`).exec(markup)?.[1] ?? 'null').replaceAll(
      '&quot;',
      '"',
    ),
  )

/** Opens a page until the test ends. `complaints` are its console messages, its errors and its requests to other servers. */
export async function openPage(
  url: string,
  {width = 1280, ...options}: BrowserContextOptions & {width?: number} = {},
): Promise<{page: Page; complaints: string[]}> {
  const page = await (await startBrowser()).newPage({viewport: {width, height: 900}, ...options})
  onTestFinished(() => page.close())
  const complaints: string[] = []
  page.on('console', (message) => complaints.push(message.text()))
  page.on('pageerror', (error) => complaints.push(error.message))
  const own = url.startsWith('file:') ? url : new URL(url).origin
  page.on('request', (request) => {
    if (!request.url().startsWith(own) && !request.url().startsWith('data:')) complaints.push(request.url())
  })
  await page.goto(url)
  return {page, complaints}
}

/** Expects an opened page to fit a desk and a phone, to be readable aloud, to show data as text, and to report no error. */
export async function expectToFit(
  side: LabSide,
  path: string,
  {page, complaints}: Awaited<ReturnType<typeof openPage>>,
): Promise<void> {
  const keepsOrder = /^\/(tables|sql|books$)/.test(path)
  // Scripts draw charts again after the page has loaded.
  const blank = page.locator('figure.chart:not(:has(> [role=img] > div svg))')
  await until(async () => (await blank.count()) === 0)
  expect(await listMisfits(page)).toEqual([])
  expect(await page.title()).not.toBe('stolen')
  expect(await page.locator('img').count()).toBe(0)
  expect(await listViolations(page)).toEqual([])
  expect(await listFaults(await side.read(path))).toEqual([])

  // A desktop screen at 200 %.
  await page.setViewportSize({width: 640, height: 450})
  expect(await listMisfits(page)).toEqual([])

  await page.setViewportSize({width: 390, height: 900})
  await page.emulateMedia({colorScheme: 'dark'})
  expect(await listMisfits(page)).toEqual([])
  expect(complaints).toEqual([])
  // No row's first amount is cut off, except in a table or query that keeps its column order; no date is broken, and no cell is
  // wider than the page.
  const found = await page.evaluate(`[...document.querySelectorAll('.scroll')].flatMap((scroll) =>
    [...scroll.querySelectorAll('tbody tr')].flatMap((row) => {
      const cells = [...row.querySelectorAll('td')]
      const amount = !${keepsOrder} && cells.find((cell) => /^[−+]?[$]/.test(cell.textContent))
      const isCut = amount && amount.getBoundingClientRect().right > scroll.getBoundingClientRect().right + 0.5
      const days = cells.filter((cell) => /^\\d{4}-\\d\\d-\\d\\d$/.test(cell.textContent))
      const broken = days.filter((cell) => {
        const range = document.createRange()
        range.selectNodeContents(cell)
        return range.getBoundingClientRect().height > 26
      })
      const wide = cells.filter((cell) => cell.offsetWidth > scroll.clientWidth)
      return [...(isCut ? [amount] : []), ...broken, ...wide].map((cell) => cell.textContent)
    }))`)
  expect(found).toEqual([])
}

/** Serves a lab's folder on a free port, until it or the lab is disposed. */
export async function serveLab(
  lab: Lab,
  {
    world = lab.createWorld(),
    folder = lab.folder,
    jobs = [],
    env = lab.env,
    ...config
  }: Partial<Config & Omit<Tools, 'stateDb' | 'listJobs'>> & {jobs?: Job[]; world?: World} = {},
) {
  const opened = lab.beside.use(new AsyncDisposableStack())
  const stateDb = openStateDb(existsSync(folder.root) ? folder.stateDb : ':memory:')
  opened.defer(() => {
    if (stateDb.db.isOpen) stateDb[Symbol.dispose]()
  })
  const tools = {stateDb, folder, listJobs: () => jobs, env}
  const side = opened.use(await startWeb({...lab.config, webPort: 0, ...config}, tools, world))
  const get = (path: string, as: Asker = {}) =>
    fetch(side.url + path, {headers: typeof as === 'string' ? {authorization: `Bearer ${as}`} : as})
  const read = async (path = '/', as?: Asker) => (await get(path, as)).text()
  return {
    url: side.url,
    stateDb,
    get,
    /** Returns the body of a path's answer. */
    read,
    /** Returns the text of a page, without its markup. */
    readText: async (path?: string, as?: Asker) => textOf(await read(path, as)),
    /** Returns the body of an answer; `work` is done while the answer waits for the processes that read the release. */
    async readWhile(path: string, work: () => void) {
      await read(path)
      const readers = listProcesses('release-questions', process.pid).map(Number)
      expect(readers).not.toEqual([])
      for (const pid of readers) process.kill(pid, 'SIGSTOP')
      const opening = read(path)
      // The second request is answered after the first has begun.
      await get('/healthz')
      work()
      for (const pid of readers) process.kill(pid, 'SIGCONT')
      return await opening
    },
    /** Sends a form as a page of this server does, unless `headers` say otherwise; follows no redirect. */
    post: (
      path: string,
      fields: Record<string, string>,
      headers: Record<string, string> = {origin: side.url},
    ) =>
      fetch(side.url + path, {
        method: 'POST',
        redirect: 'manual',
        body: new URLSearchParams(fields),
        headers,
      }),
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  }
}

/** Lists the ids of processes whose command line contains a text; with `parent`, only of its children. */
export function listProcesses(text: string, parent?: number): string[] {
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .filter((pid) => {
      try {
        const [, rest = ''] = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')
        const isOurs = parent === undefined || rest.split(' ')[1] === String(parent)
        return isOurs && readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(text)
      } catch (error) {
        // The process ended meanwhile.
        if (['ENOENT', 'ESRCH'].includes(codeOf(error))) return false
        throw error
      }
    })
}
