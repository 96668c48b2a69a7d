import {mkdirSync, rmdirSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import chromium from '@sparticuz/chromium'
import axe from 'axe-core'
import {type Browser, type LaunchOptions, type Page, chromium as playwright} from 'playwright-core'
import {codeOf} from '../../src/core/errors.ts'
import {until} from '../support/until.ts'

/** A browser that crashes on start says nothing about our pages, so it is started again, at most this often. */
const ATTEMPTS = 3

const UNWANTED = /^--(single-process|no-zygote|use-gl|use-angle|enable-unsafe-swiftshader)\b/

let shared: Promise<Browser> | undefined

/** A headless Chromium shared by all files of a worker: the one npm brings on Linux, else the machine's own Chrome. */
export function startBrowser(): Promise<Browser> {
  shared ??= launch()
  return shared
}

/** The parts of a page that a screen reader cannot read, and where they are. */
export async function listViolations(
  page: Page,
  impacts: readonly string[] = ['serious', 'critical'],
): Promise<{id: string; where: string}[]> {
  await page.evaluate(axe.source)
  return page.evaluate(`axe.run({resultTypes: ['violations']}).then(({violations}) => violations
    .filter(({impact}) => ${JSON.stringify(impacts)}.includes(impact))
    .map(({id, nodes}) => ({id, where: nodes[0].html})))`)
}

async function launch(attempt = 1): Promise<Browser> {
  const browser = await playwright.launch(await findBrowser()).catch((error: unknown) => {
    if (attempt === ATTEMPTS) throw error
    return launch(attempt + 1)
  })
  const newPage = browser.newPage.bind(browser)
  browser.newPage = async (options) => {
    const page = await newPage(options)
    // Either the awaited thing happens, or the suite's own limit ends the test.
    page.setDefaultTimeout(0)
    return page
  }
  return browser
}

/** Unpacks the browser, one worker at a time: another worker would start a half-unpacked one. */
async function unpackBrowser(): Promise<string> {
  const turn = join(tmpdir(), 'chromium.turn')
  await until(() => {
    try {
      mkdirSync(turn)
      return true
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error
      return false
    }
  })
  try {
    return await chromium.executablePath()
  } finally {
    rmdirSync(turn)
  }
}

async function findBrowser(): Promise<LaunchOptions> {
  if (process.platform !== 'linux') return {channel: 'chrome', timeout: 0}
  return {
    executablePath: await unpackBrowser(),
    // In single-process mode the browser ends with its first page; a software GPU is slower than none.
    args: [...chromium.args.filter((arg) => !UNWANTED.test(arg)), '--disable-gpu'],
    headless: true,
    timeout: 0,
  }
}
