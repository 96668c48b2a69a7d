import chromium from '@sparticuz/chromium'
import {type Browser, chromium as playwright} from 'playwright-core'

/** Starts a headless Chromium: the one npm brings on Linux, else the machine's own Chrome. */
export async function startBrowser(): Promise<Browser> {
  if (process.platform !== 'linux') return await playwright.launch({channel: 'chrome'})
  return await playwright.launch({
    executablePath: await chromium.executablePath(),
    // As a single process it ends with its first page.
    args: chromium.args.filter((arg) => arg !== '--single-process' && arg !== '--no-zygote'),
    headless: true,
  })
}
