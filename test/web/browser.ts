import {mkdirSync, rmdirSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import chromium from '@sparticuz/chromium'
import axe from 'axe-core'
import {HtmlValidate} from 'html-validate'
import {type Browser, type LaunchOptions, type Page, chromium as playwright} from 'playwright-core'
import {codeOf} from '../../src/core/errors.ts'
import {until} from '../support/until.ts'

/** How often a browser is started at most: a crash on start says nothing about our pages. */
const ATTEMPTS = 3

const WAIT_MS = 1_700_000

const UNWANTED = /^--(single-process|no-zygote|use-gl|use-angle|enable-unsafe-swiftshader)\b/

let shared: Promise<Browser> | undefined

/** Starts a headless Chromium, which all files of a worker share: npm's on Linux, otherwise the machine's own Chrome. */
export function startBrowser(): Promise<Browser> {
  shared ??= launch()
  return shared
}

/** Lists a page's violations of accessibility (axe), and where they are. */
export async function listViolations(
  page: Page,
  impacts: readonly string[] = ['serious', 'critical'],
): Promise<{id: string; where: string}[]> {
  await page.evaluate(axe.source)
  return page.evaluate(`axe.run({resultTypes: ['violations']}).then(({violations}) => violations
    .filter(({impact}) => ${JSON.stringify(impacts)}.includes(impact))
    .map(({id, nodes}) => ({id, where: nodes[0].html})))`)
}

/** Waits until a page has its width, and the charts that scripts drew have theirs. */
export const untilDrawn = (page: Page): Promise<boolean> =>
  until(() =>
    page.evaluate<boolean>(`innerWidth === ${page.viewportSize()?.width} &&
      [...document.querySelectorAll('figure.chart > [role=img] > div svg')].every((drawn) =>
        Math.abs(drawn.getBoundingClientRect().width - drawn.closest('[role=img]').clientWidth) < 1)`),
  )

/** Opens all parts of a page and lists what is cut off or out of reach at its present width: the page itself, and controls. */
export async function listMisfits(page: Page): Promise<string[]> {
  await page.evaluate(`document.querySelectorAll('details').forEach((part) => (part.open = true))`)
  await untilDrawn(page)
  return page.evaluate(`(() => {
    const {scrollWidth, clientWidth} = document.documentElement
    const controls = document.querySelectorAll('a[href], button, input, select, textarea, summary')
    const shown = [...controls].filter((one) => one.checkVisibility() && !one.matches('.skip'))
    // What can be scrolled to is not lost.
    const isOut = (one) =>
      !one.closest('.scroll, pre, .graph, .cm-scroller') &&
      [...one.getClientRects()].some(({left, right}) => left < -0.5 || right > clientWidth + 0.5)
    const isCut = (one) => one.matches('button, select, summary') && one.scrollWidth > one.clientWidth + 1
    const wrong = shown.filter((one) => isOut(one) || isCut(one)).map((one) => one.outerHTML.slice(0, 200))
    return [...(scrollWidth > clientWidth ? ['the page is ' + scrollWidth + ' wide'] : []), ...wrong]
  })()`)
}

const validator = new HtmlValidate({extends: ['html-validate:standard']})

/** Lists what is wrong with a page's markup by the standard. */
export async function listFaults(markup: string): Promise<string[]> {
  const {results} = await validator.validateString(markup)
  return results.flatMap(({messages}) =>
    messages.map(({line, column, message}) => `${line}:${column} ${message}`),
  )
}

async function launch(attempt = 1): Promise<Browser> {
  const browser = await playwright.launch(await findBrowser()).catch((error: unknown) => {
    if (attempt === ATTEMPTS) throw error
    return launch(attempt + 1)
  })
  const newPage = browser.newPage.bind(browser)
  browser.newPage = async (options) => {
    const page = await newPage(options)
    // Shortly before the suite's limit would end the test: this one says what was awaited.
    page.setDefaultTimeout(WAIT_MS)
    return page
  }
  return browser
}

/**
 * Shows every text in the package's font, so that it is as wide on every machine; characters that the font lacks come from the
 * machine's fonts.
 */
const FONTS = `<?xml version="1.0"?>
<fontconfig>
  <dir>${join(tmpdir(), 'fonts')}</dir>
  <dir>/usr/share/fonts</dir>
  <cachedir>${join(tmpdir(), 'fonts-cache')}</cachedir>
  <match target="font">
    <edit name="hinting" mode="assign"><bool>false</bool></edit>
  </match>
  <match target="pattern">
    <edit name="family" mode="assign" binding="strong"><string>Open Sans</string></edit>
  </match>
</fontconfig>
`

/** Unpacks the browser, one worker at a time, so that no worker starts a half-unpacked one. */
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
  const executablePath = await unpackBrowser()
  // One file per process: a browser of another process may be reading its own.
  const fonts = join(tmpdir(), `chromium-${process.pid}.fonts`)
  writeFileSync(fonts, FONTS)
  return {
    executablePath,
    env: {...process.env, FONTCONFIG_FILE: fonts},
    // In single-process mode the browser ends with its first page; a software GPU is slower than none.
    args: [...chromium.args.filter((arg) => !UNWANTED.test(arg)), '--disable-gpu'],
    headless: true,
    timeout: 0,
  }
}
