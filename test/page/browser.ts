import chromium from '@sparticuz/chromium'
import {type Browser, chromium as playwright} from 'playwright-core'

/** A browser that crashes as it starts says nothing about our pages: it is started again, this often at most. */
const ATTEMPTS = 3

/** Starts a headless Chromium: the one npm brings on Linux, else the machine's own Chrome. */
export async function startBrowser(attempt = 1): Promise<Browser> {
  if (process.platform !== 'linux') return await playwright.launch({channel: 'chrome'})
  try {
    return await playwright.launch({
      executablePath: await chromium.executablePath(),
      // As a single process it ends with its first page.
      args: chromium.args.filter((arg) => arg !== '--single-process' && arg !== '--no-zygote'),
      headless: true,
    })
  } catch (error) {
    if (attempt === ATTEMPTS) throw error
    return await startBrowser(attempt + 1)
  }
}
