import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {DAY_MS} from '../../src/core/clock.ts'
import {advanceDay, seedPortfolio} from '../../src/service/portfolio.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {expectRefused} from '../cli/outcome.ts'
import {useLab, useShared} from '../support/set-up.ts'
import {listViolations} from './browser.ts'
import {basic, OPERATOR, openPage, PAGE_TABLES, questionOf, serveLab, VIEWER} from './side.ts'

const LIMITS =
  'name,dimension,bucket,scope,kind,limit_value,warn_at_pct\n=A1 <b>,state,TX,open,amount,1000,90\n'
const own = await useShared(writeSqlFolder({'seeds/limit.csv': LIMITS}))
const config = {sqlDir: own.path}
const lab = await useLab({tables: `${PAGE_TABLES} +core.note`})
seedPortfolio(lab.service.store, {deals: 60, seed: 'notes', today: '2026-03-02'})
for (const day of ['02', '03', '04']) {
  advanceDay(lab.service.store, {seed: 'notes', day: `2026-03-${day}`})
  await (day < '04' ? lab.walk : lab.sync)(`2026-03-${day}T23:30:00-05:00`, {config})
}
const world = lab.createWorld('2026-03-05T14:00:00Z')
const side = await serveLab(lab, {...config, world})
const HOSTILE = '<img src=x>\n=1+1 \u202Eabc "&\u05d0'

/** Fills in a form of a page, which then reloads. */
async function answer(path: string, question: string, text?: string) {
  const {page, complaints} = await openPage(side.url + path, {width: 390, colorScheme: 'dark'})
  const asked = questionOf(page, question)
  await asked.locator('summary').click()
  if (text !== undefined) await asked.locator('textarea').fill(text)
  await asked.locator('button').click()
  expect(page.url()).toBe(`${side.url}${path}#notes`)
  expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(390)
  expect([await page.locator('img').count(), complaints]).toEqual([0, []])
  // The notes of all pages are alike, and this is the smallest of them.
  if (path.startsWith('/deals/')) expect(await listViolations(page)).toEqual([])
  return await page.locator('#notes + .scroll tbody tr').allTextContents()
}

test('a note about a day stands on Morning, in Compare and in charts over days and months', async () => {
  expect((await answer('/', 'Note something about day 2026-03-04', HOSTILE))[0]).toContain('stands')
  const replaced = await answer('/compare?as_of=2026-03-04', 'Replace note 1', 'a holiday')
  expect(replaced[0]).toMatch(/a holiday.*web 127\.0\.0\.1.*stands/)
  expect(replaced[1]).toMatch(/<img src=x>\n=1\+1 ⟨U\+202E⟩abc.*replaced by 2 of web 127\.0\.0\.1/s)
  const {page} = await openPage(`${side.url}/portfolio`)
  expect(await page.locator('.noted li').allTextContents()).toEqual(['2026-03-04: a holiday web 127.0.0.1'])
  expect(await page.locator('figure:has(+ .noted) [role=img]').first().innerHTML()).toContain('dasharray')
  expect(await listViolations(page)).toEqual([])
})

test('a note about a limit that is not known is refused', async () => {
  const ended = lab.run(['note', 'add', '--limit', 'b>', '--text', 'x', '--json'])
  await expectRefused(ended, 'UNKNOWN_NAME', "Limit 'b>' in --limit: expected one of =A1 <b>.")
})

test('a report shows what was noted before its release was built, and Runs beside how long runs took', async () => {
  await lab.sync('2026-03-05T23:30:00-05:00', {config})
  const out = join(lab.folder.root, '../portfolio.html')
  expect(await lab.run(['report', '--page', 'portfolio', '--out', out])).toMatchObject({code: 0})
  expect(readFileSync(out, 'utf8')).toMatch(/<ol class="noted small"><li>2026-03-04: .*a holiday/)
  const days = [3, 2, 1].map((back) => new Date(Date.now() - back * DAY_MS).toISOString().slice(0, 10))
  for (const day of days)
    side.stateDb.insert('job_run', {
      ...{job: 'nightly', slot: day, state: 'done', attempt: 1, not_before: 0},
      ...{started_at: `${day}T12:00:00.000Z`, ended_at: `${day}T12:05:00.000Z`},
    })
  const noted = ['note', 'add', '--who', 'ben', '--day', String(days[1]), '--text', 'The source was slow.']
  expect(await lab.run(noted)).toMatchObject({code: 0})
  const {page} = await openPage(`${side.url}/runs`)
  const listed = await page.locator('.noted li').allTextContents()
  expect(listed).toEqual([`${days[1]}: The source was slow. ben`])
})

test('notes about a deal and a limit stand beside them until they are withdrawn', async () => {
  const [deal] = await lab.query('select deal_id from core.deal order by 1 limit 1')
  const path = `/deals/${deal?.deal_id}`
  const [row] = await answer(path, `Note something about deal ${deal?.deal_id}`, HOSTILE)
  const [, no = ''] = /^(\d+)/.exec(row ?? '') ?? []
  expect((await answer(path, `Withdraw note ${no}`))[0]).toContain('withdrawn by web 127.0.0.1')
  await answer('/portfolio', 'Note something about limit =A1 <b>', 'agreed')
  expect(await side.readText('/portfolio')).toContain('noted agreed (web 127.0.0.1)')
  await lab.sync('2026-03-05T23:30:00-05:00', {config})
  for (const format of ['csv', 'xlsx', 'json'])
    expect((await side.get(`/data/core.note.${format}`)).status).toBe(200)
  expect(await side.read('/data/core.note.csv')).toMatch(/'=A1 <b>/)
})

test('who may only look sees notes and writes none; a name given beside the token signs them', async () => {
  await using guarded = await serveLab(lab, {...config, world, webToken: OPERATOR, webViewerToken: VIEWER})
  const form = {do: 'note', about: 'day', subject: '2026-03-03', note: 'seen'}
  const as = (name: string, token: string) => ({origin: guarded.url, ...basic(name, token)})
  expect((await guarded.post('/actions', form, as('anna', VIEWER))).status).toBe(403)
  for (const wrong of [{note: ' '}, {note: 'x'.repeat(60_000)}, {note: 'a\u0000'}, {about: 'month'}])
    expect((await guarded.post('/actions', {...form, ...wrong}, as('anna', OPERATOR))).status).toBe(400)
  const again = {do: 'note', about: 'replaces', subject: '1', note: 'twice'}
  for (const [note, said] of [
    [again, /does not stand.* Your text: twice/],
    [{...form, note: 'a\u000bb'}, /expected 1 to 500 characters.* Your text: a/],
  ] as const) {
    const headers = {...as('anna', OPERATOR), accept: 'text/html'}
    expect(await (await guarded.post('/actions', note, headers)).text()).toMatch(said)
  }
  const both = ['anna', 'ben\n<b>'].map((name) => guarded.post('/actions', form, as(name, OPERATOR)))
  for (const {status} of await Promise.all(both)) expect(status).toBe(303)
  const {stdout} = await lab.run(['note', 'list'])
  expect(stdout).toMatch(/anna \(web 127\.0\.0\.1\): seen.*ben<b> \(web/s)
  const page = await guarded.read('/compare?as_of=2026-03-05', VIEWER)
  expect(page).toContain('<h2 id="notes">')
  expect(page).not.toContain('<textarea')
})
