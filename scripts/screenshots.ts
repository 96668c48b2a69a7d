import {mkdirSync} from 'node:fs'
import {join} from 'node:path'
import {addDays} from '../src/core/clock.ts'
import {advanceDay, seedPortfolio} from '../src/service/portfolio.ts'
import {openStateDb} from '../src/store/state-db.ts'
import {startWeb} from '../src/web/web-server.ts'
import {createLab} from '../test/support/lab.ts'
import {startBrowser} from '../test/web/browser.ts'

// Takes the README's pictures: the workbench after sixty nights of a synthetic portfolio.
const FOLDER = join(import.meta.dirname, '../docs/images')
const PICTURES = {morning: '/', portfolio: '/portfolio'}
const SEED = 'picture'
const FIRST_DAY = '2026-01-05'
const NIGHTS = 60

await using lab = await createLab({tables: 'all'})
const {store} = lab.service
seedPortfolio(store, {deals: 2500, seed: SEED, today: FIRST_DAY})
for (let night = 0; night < NIGHTS; night += 1) {
  const day = addDays(FIRST_DAY, night)
  if (night > 0) advanceDay(store, {seed: SEED, day})
  const now = `${day}T23:30:00-05:00`
  if (night === NIGHTS - 1) await lab.sync(now)
  else await lab.walk(now)
}
using stateDb = openStateDb(lab.folder.stateDb)
const tools = {stateDb, folder: lab.folder, listJobs: () => [], env: lab.env}
await using side = await startWeb({...lab.config, webPort: 0}, tools, lab.createWorld())
const browser = await startBrowser()
try {
  mkdirSync(FOLDER, {recursive: true})
  for (const [name, path] of Object.entries(PICTURES)) {
    const page = await browser.newPage({viewport: {width: 1280, height: 800}, colorScheme: 'light'})
    await page.goto(side.url + path)
    await page.locator('#live').getByText('idle').waitFor()
    await page.screenshot({path: join(FOLDER, `${name}.png`)})
    await page.close()
  }
} finally {
  await browser.close()
}
