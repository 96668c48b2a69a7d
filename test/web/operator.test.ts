import {existsSync, mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import type {Page} from 'playwright-core'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {DAY_MS} from '../../src/core/clock.ts'
import {readJobs} from '../../src/schedule/job.ts'
import {claimRun, endRun, isoOf} from '../../src/schedule/job-runs.ts'
import {takeFileLock} from '../../src/store/files.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {setAccounts} from '../support/books.ts'
import {listJobRuns} from '../support/jobs.ts'
import {createLab, failureOf, someDeals} from '../support/lab.ts'
import {changeRecords, useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {
  expectToFit,
  type LabSide,
  OPERATOR,
  openPage,
  PAGE_TABLES,
  questionOf,
  serveLab,
  VIEWER,
} from './side.ts'

/** February is walked, with one unreadable record. On March 2 most deals are gone, which a guard refuses. */
const lab = await useLab({tables: PAGE_TABLES, deals: someDeals(80)})
const {store, faults} = lab.service
await lab.walk('2026-02-26T23:30:00-05:00')
changeRecords(lab, /^\/deals\?/, ([first]) => Object.assign(first ?? {}, {loan_amount: 'about 4711'}))
for (const day of ['2026-02-27', '2026-02-28']) await lab.walk(`${day}T23:30:00-05:00`)
faults.clear()
await lab.sync('2026-03-01T23:30:00-05:00')
for (const {id} of someDeals(40)) store.remove(id)
expect(await failureOf(lab.sync('2026-03-02T23:30:00-05:00'))).toMatchObject({code: 'GUARD_SHRINK'})
const side = await serve({})
const stateDb = side.stateDb

function serve(tokens: {webToken?: string; webViewerToken?: string}) {
  const env = {...lab.env, LOANTAPE_NOW: '2026-03-03T17:00:00Z'}
  return serveLab(lab, {...tokens, now: env.LOANTAPE_NOW, env, jobs: readJobs(lab.config)})
}

const post = (fields: Record<string, string>) => side.post('/actions', fields)

const RUN = {do: 'run', job: 'nightly'}

/** A form for each path that takes one. */
const FORMS: Record<string, Record<string, string>> = {
  '/actions': RUN,
  '/sql/queries': {name: 'mine', q: 'select 1'},
  '/filters': {save_as: 'mine', state: 'TX'},
  '/edit': {name: 'mine', text: 'x', do: 'save', from: 'none'},
}

/** Lists what was requested on the pages, newest first. */
const listActions = () =>
  stateDb.all(z.record(z.string(), z.unknown()), 'select * from page_action order by action_id desc')

test('nothing is done for another site, an anonymous caller or a viewer', async () => {
  await using guarded = await serve({webToken: OPERATOR, webViewerToken: VIEWER})
  const foreign = {origin: 'https://example.com'}
  const own = {origin: guarded.url, authorization: `Bearer ${OPERATOR}`}
  const attempts: [string, number, Record<string, string>, LabSide][] = [
    ['no origin', 403, {}, side],
    ['a foreign origin', 403, foreign, side],
    ['an origin that is hidden', 403, {origin: 'null'}, side],
    ['a page of a sister site', 403, {origin: side.url, 'sec-fetch-site': 'same-site'}, side],
    ['a foreign page', 403, {'sec-fetch-site': 'cross-site'}, side],
    ['another name for this machine', 403, {origin: 'http://evil.example', host: 'evil.example'}, side],
    ['an operator on a foreign page', 403, {...own, ...foreign}, guarded],
    ['an operator on no page', 403, {authorization: own.authorization}, guarded],
    ['a viewer', 403, {...own, authorization: `Bearer ${VIEWER}`}, guarded],
    ['a wrong token', 401, {...own, authorization: `Bearer ${OPERATOR}x`}, guarded],
    ['no token', 401, {origin: guarded.url}, guarded],
  ]
  for (const [who, status, headers, at] of attempts)
    for (const [path, fields] of Object.entries(FORMS))
      expect((await at.post(path, fields, headers)).status, `${who} ${path}`).toBe(status)
  expect(listActions()).toEqual([])
  expect(listJobRuns(stateDb, 10)).toEqual([])
  for (const dir of [lab.folder.queries, lab.folder.pages]) expect(existsSync(dir)).toBe(false)
  const saved = await guarded.post('/sql/queries', {name: 'ours', q: 'select 1'}, own)
  expect([saved.status, existsSync(join(lab.folder.queries, 'ours.sql'))]).toEqual([303, true])
  for (const name of ['', '.', '../state', 'a/b', 'a.sql', 'x'.repeat(101)]) {
    expect((await guarded.post('/sql/queries', {name, q: 'select 1'}, own)).status, name).toBe(400)
    expect((await guarded.post('/filters', {save_as: name, state: 'TX'}, own)).status, name).toBe(400)
  }
  for (const path of ['/quarantine/q_1', '/books/2026-02', '/deals/deal_000001/received'])
    expect(await guarded.read(path, VIEWER), path).toContain('for operators')
  const received = 'href="/deals/deal_000001/received'
  expect(await guarded.read('/deals/deal_000001', OPERATOR)).toContain(received)
  expect(await guarded.read('/deals/deal_000001', VIEWER)).not.toContain(received)
  for (const path of ['/runs', '/books', '/quarantine']) {
    expect(await guarded.read(path, VIEWER), path).not.toContain('method="post"')
    expect(await guarded.read(path, OPERATOR), path).toContain('method="post"')
  }
})

test.each([
  ['no form', {}, 400],
  ['a command of another kind', {do: 'prune'}, 400],
  ['a month that does not exist', {do: 'close', period: '2026-02 --why=x'}, 400],
  ['a day that does not exist', {do: 'build', as_of: '2026-02-30'}, 400],
  ['an invalid moment', {do: 'build', as_of: '2026-02-28', known_at: '--verify'}, 400],
  ['a job nobody knows', {do: 'run', job: 'nope'}, 409],
  ['a change that no guard held back', {do: 'accept', what: 'growth'}, 409],
])('%s does nothing', async (_, fields, status) => {
  const before = listActions()
  expect((await post(fields as Record<string, string>)).status).toBe(status)
  expect(listActions()).toEqual(before)
})

test('one command at a time is carried out', async () => {
  const answers = await Promise.all([post({do: 'replay'}), post({do: 'replay'})])
  expect(answers.map(({status}) => status).sort()).toEqual([303, 409])
})

test('a demo is read-only', async () => {
  await using demo = await createLab()
  mkdirSync(demo.folder.root)
  writeFileSync(demo.folder.demoMark, '')
  await using shown = await serveLab(demo)
  for (const [path, fields] of Object.entries(FORMS)) {
    const refused = await shown.post(path, fields)
    const said = [refused.status, await refused.text()]
    expect(said, path).toEqual([403, 'Not done: a demo is only looked at.\n'])
  }
  expect(existsSync(demo.folder.queries)).toBe(false)
})

/** Opens a page without JavaScript. */
const open = async (path: string) =>
  (await openPage(side.url + path, {width: 390, javaScriptEnabled: false})).page

/** Opens a question on a page and answers it with its button. */
async function act(page: Page, question: string, answer: string): Promise<void> {
  const asked = questionOf(page, question)
  await asked.locator('summary').click()
  await asked.getByRole('button', {name: answer}).click()
  expect(page.url()).toBe(`${side.url}/runs#what-people-did`)
}

/** Reads the newest line of what people did, once it has ended. */
async function readLast(page: Page): Promise<string[]> {
  await until(() => listActions()[0]?.ended_at)
  await page.goto(`${side.url}/runs`)
  return await page.locator('#what-people-did + .scroll tbody tr').first().locator('td').allTextContents()
}

test('a job is run on demand, once, and the page of its run reports it', async () => {
  const page = await open('/runs')
  await act(page, 'Run nightly', 'Run nightly')
  const [run] = listJobRuns(stateDb, 10)
  const number = run?.job_run_id ?? 0
  expect((await readLast(page)).slice(1)).toEqual([
    'web 127.0.0.1',
    'loantape run nightly',
    '',
    `Run ${number}: queued, asked for on the page`,
    '',
  ])
  expect(run).toMatchObject({job: 'nightly', state: 'queued', reason: 'asked for on the page'})
  expect((await post(RUN)).status).toBe(409)
  await page.locator(`a[href="/runs/${number}"]`).first().click()
  expect(await page.locator('main').textContent()).toContain('asked for on the page')
  const attempt = (ended: Partial<Parameters<typeof endRun>[2]>) => {
    const claimed = claimRun(stateDb, Date.parse('2099-01-01'), ['nightly'])
    const end = {exit_code: 0, error_code: null, error: null, summary: null, not_before: null, ...ended}
    if (claimed) endRun(stateDb, claimed, end, Date.parse('2026-07-01T04:00:00Z'))
  }
  const not_before = Date.parse('2026-07-01T04:01:00Z')
  attempt({exit_code: 6, error_code: 'SOURCE_DOWN', error: 'The source is down.', not_before})
  const again = ['failed', '2026-07-01 00:01:00 EDT']
  expect((await readLast(page)).slice(-2)).toEqual([`Run ${number}: failed`, again[1]])
  await page.goto(`${side.url}/runs/${number}`)
  expect((await page.locator('dd').allTextContents()).slice(0, 2)).toEqual(again)
  expect(await page.locator('tbody').textContent()).toContain('SOURCE_DOWN')
  const checks = {passed: 2, warned: 1, results: [{name: 'x', rows: [{deal_id: 'deal_000001'}]}]}
  attempt({summary: JSON.stringify({steps: [{do: 'sync', result: {checks}}]})})
  expect((await readLast(page)).at(-2)).toBe(`Run ${number}: done`)
  await page.goto(`${side.url}/runs/${number}`)
  const facts = await page.locator('dd').allTextContents()
  expect([facts[0], facts.at(-1)]).toEqual(['done', '2'])
  const line =
    '{"level":"info","time":"2026-07-01T04:00:00Z","msg":"step begins","step":"sync"}\nno line of ours'
  stateDb.update('job_attempt', {job_run_id: number, attempt: 2}, {log: line})
  await page.reload()
  const logged = page.locator('h2:text-is("Log") + .scroll tbody td')
  expect(await logged.allTextContents()).toEqual([
    ...['2', '2026-07-01 00:00:00 EDT', 'info', 'step begins', 'step=sync'],
    ...['2', '', '', 'no line of ours', ''],
  ])
  const steps = await page.locator('h2:text-is("Steps") + .scroll tbody tr').allTextContents()
  expect(steps).toEqual(['syncchecks passed2', 'syncchecks warned1'])
  expect((await side.get('/runs/999')).status).toBe(404)
  await expectToFit(side, `/runs/${number}`, await openPage(page.url(), {colorScheme: 'dark'}))
})

test('a refusal is a page with links to the others and back for people, and plain text for tools', async () => {
  await using guarded = await serve({webToken: OPERATOR})
  const form = {
    method: 'POST',
    body: new URLSearchParams({do: 'run', job: 'nope'}),
    headers: {origin: side.url, referer: `${side.url}/runs?part=funded`},
  }
  const attempts: [url: string, status: number, words: string, init?: RequestInit][] = [
    [`${side.url}/actions`, 409, 'no job', form],
    [`${side.url}/nowhere`, 404, 'Not found'],
    [guarded.url, 401, 'Token missing'],
    [`${side.url}/data/query.csv?q=select+nothing`, 400, 'Binder Error'],
    [`${side.url}/%zz`, 400, 'not a valid url'],
  ]
  for (const [url, status, words, init] of attempts)
    for (const [accept, type] of [
      ['text/html', 'text/html'],
      ['text/*', 'text/plain'],
    ] as const) {
      const answer = await fetch(url, {...init, headers: {...init?.headers, accept}})
      const text = await answer.text()
      expect([answer.status, answer.headers.get('content-type')?.split(';')[0]], url).toEqual([status, type])
      expect(text, url).toContain(words)
      if (type === 'text/plain') continue
      expect(text, url).toContain('<a href="/tables">')
      expect(text, url).toContain(`<a href="${init ? '/runs?part=funded' : '/'}">Back</a>`)
    }
  const referer = `${side.url}//evil.example/x`
  expect(await side.read('/nowhere', {accept: 'text/html', referer})).toContain('<a href="/">Back</a>')
})

test('quarantined records are shown by reason and replayed when an operator asks', async () => {
  const page = await open('/quarantine')
  const cells = async (table: number) =>
    await page.locator('tbody').nth(table).locator('tr').first().locator('td').allTextContents()
  expect((await cells(0)).filter((_, index) => index !== 1).slice(0, 3)).toEqual(['loan_amount', '1', '2'])
  expect((await cells(1)).slice(0, 2)).toEqual(['deal_000001', 'loan_amount'])
  expect(await page.content()).not.toContain('about 4711')
  expect(await page.locator('a[href="/deals/deal_000001"]').count()).toBe(1)
  await page.locator('tbody').first().locator('a').click()
  expect(page.url()).toContain('path=loan_amount')
  await page.locator('a[href^="/quarantine/q_"]').click()
  expect(await page.locator('pre').textContent()).toContain('"loan_amount":"about 4711"')
  await page.goto(`${side.url}/quarantine`)
  await act(page, 'Read them once more', 'Replay the quarantine')
  expect((await readLast(page)).slice(2, 5)).toEqual([
    'loantape quarantine replay',
    '',
    '0 records can be read now, 0 versions appended; 1 still waits.',
  ])
})

test('a month is closed with a remark, and a refused closing says why', async () => {
  expect((await lab.run(['accounting', 'init'])).code).toBe(0)
  setAccounts(lab.folder)
  const page = await open('/books')
  await page.locator('summary:text-is("Close 2026-02")').click()
  await page.getByLabel('Remark').fill('--all well <b>')
  await page.getByRole('button', {name: 'Yes, close 2026-02'}).click()
  const [, , what, why, words] = await readLast(page)
  expect([what, why]).toEqual(['loantape period close 2026-02', '--all well <b>'])
  expect(words).toMatch(/^Closed 2026-02: /)
  const {events} = JSON.parse((await lab.run(['period', 'list', '--json'])).stdout)
  expect(events).toMatchObject([
    {action: 'close', who: expect.stringMatching(/^web 127/), why: '--all well <b>'},
  ])
  await post({do: 'close', period: '2026-02', why: 'a fraud'})
  // Every page shows the command while it runs, also to viewers of some tables.
  expect(listActions()[0]).toMatchObject({command: 'loantape period close 2026-02', why: 'a fraud'})
  const [, , , , refused] = await readLast(page)
  expect(refused).toContain('closed already')
  expect(await page.locator('#what-people-did + .scroll .failed').count()).toBe(1)
  expect(await side.read('/books')).toContain('--all well')
})

test('a release that is not kept is built on request, and shown', async () => {
  const asked = '/portfolio?as_of=2026-02-28&known_at=2026-02-27'
  const none = await side.read(asked)
  expect(none).toContain('Build the release of 2026-02-28')
  const fields = Object.fromEntries(
    [...none.matchAll(/type="hidden" name="(do|as_of|known_at)" value="([^"]*)"/g)].map(([, name, value]) => [
      name,
      value,
    ]),
  )
  expect(fields).toEqual({do: 'build', as_of: '2026-02-28', known_at: '2026-02-28T10:59:59.999999Z'})
  expect((await post(fields)).status).toBe(303)
  await until(() => listActions()[0]?.ended_at)
  expect(await side.read(asked)).toContain('as of <b>2026-02-28</b>')
})

test('a walk refused by a guard is accepted, and can then not be accepted again', async () => {
  const page = await open('/runs')
  expect(await page.locator('.notice').textContent()).toContain('Refused: ')
  expect((await post({do: 'accept', what: 'change'})).status).toBe(409)
  await page.locator('summary:text-is("Accept it")').click()
  await page.locator('input[name="why"]').fill('the pilot book was sold')
  await page.locator('summary:text-is("Accept it")').click()
  await act(page, 'Accept it', 'Walk again and accept')
  const [, , what, why, words] = await readLast(page)
  expect([what, why]).toEqual(['loantape sync --accept shrink', 'the pilot book was sold'])
  expect(words).toContain('Walk of 2026-03-03 complete')
  expect(await page.locator('summary:text-is("Accept it")').count()).toBe(0)
  expect((await post({do: 'accept', what: 'shrink'})).status).toBe(409)
  const walks = await page.locator('h2:has-text("Last walks") ~ .scroll').first().textContent()
  expect(walks).toMatch(/2026-03-03.*shrink accepted by .*: the pilot book was sold/)
  const charts = await open('/portfolio')
  const [noted] = await charts.locator('.noted li').allTextContents()
  expect(noted).toMatch(/^2026-03-03: Accepted shrink: the pilot book was sold \S/)
})

test('what came of an action is noted once the state database can be written again, and until then said once', async () => {
  const told: unknown[] = []
  let tries = 0
  const {realClock, log, ...rest} = lab.createWorld()
  const world = {
    ...rest,
    log: {...log, error: (...said: unknown[]) => void told.push(said)},
    realClock: {
      ...realClock,
      sleep: (ms: number, signal?: AbortSignal) => {
        tries += told.length
        return realClock.sleep(told.length > 0 ? 10 : ms, signal)
      },
    },
  }
  await using busy = await serveLab(lab, {world})
  using other = new DatabaseSync(lab.folder.stateDb)
  {
    // The command waits for the warehouse, so it does not end before that.
    using _held = await takeFileLock(lab.folder.warehouseLock, 'write', 0)
    void busy.post('/actions', {do: 'build', as_of: '2026-02-28'})
    await until(() => listActions()[0]?.command === 'loantape build --as-of 2026-02-28')
    other.exec('begin immediate')
  }
  await until(() => tries > 2)
  expect(told).toHaveLength(1)
  expect(listActions()[0]?.ended_at).toBeNull()
  other.exec('rollback')
  await until(() => listActions()[0]?.ended_at)
})

test('the next server reports what a killed one left unfinished', async () => {
  const began_at = new Date().toISOString()
  const ended = listActions()
  stateDb.insert('page_action', {who: 'web 127.0.0.1', command: 'loantape quarantine replay', began_at})
  await using _next = await serve({})
  expect(listActions()[0]).toMatchObject({
    exit_code: null,
    words: expect.stringContaining('server ended'),
  })
  expect(listActions().slice(1)).toEqual(ended)
})

test('each day says in words how its runs ended, and how long the longest took', async () => {
  const [before = '', day = '', after = ''] = [9, 8, 7].map((back) =>
    isoOf(Date.now() - back * DAY_MS).slice(0, 10),
  )
  const add = (state: string, started: string, ended: string, more = {}) =>
    stateDb.insert('job_run', {
      ...{job: 'weekly', state, attempt: 1, not_before: 0},
      ...{started_at: `${started}:00.000Z`, ended_at: `${ended}:00.000Z`, ...more},
    })
  add('skipped', `${before}T17:00`, `${before}T17:00`)
  // These belong to the same evening in New York.
  add('done', `${day}T17:00`, `${day}T17:03`)
  add('done', `${after}T03:00`, `${after}T03:45`)
  add('queued', `${day}T18:00`, `${day}T18:30`, {error_code: 'SOURCE_DOWN', not_before: Date.UTC(2099, 0)})
  const {page} = await openPage(`${side.url}/runs`)
  const cells = (tone: string) => page.locator(`.matrix td.shade-${tone}`).allTextContents()
  expect(await cells('failed')).toEqual([`${day.slice(5)} 1 failed, 2 done`])
  expect(await cells('warned')).toEqual([`${before.slice(5)} 1 skipped`])
  expect(await page.locator('figure.chart').getAttribute('data-option')).toMatch(
    /"name":"weekly","data":\[(\["[\d-]+",null\],)*\["[\d-]+",45\]/,
  )
  expect(await page.locator('main').textContent()).toMatch(
    /weekly \d+ failed, SOURCE_DOWN \(attempt 1\), and is tried again at 2098-12-31 19:00/,
  )
})

test.each(['/quarantine', '/runs', '/books'])(
  '%s fits a desk and a phone with all its questions, and can be read aloud',
  async (path) => expectToFit(side, path, await openPage(side.url + path, {colorScheme: 'dark'})),
)

test('a hundred thousand quarantined records are counted, and shown a page at a time', async () => {
  {
    await using db = await openWarehouse(lab.folder, lab.createWorld())
    await db.run(
      `insert into history.raw.quarantine by name
       select 'q_' || range as quarantine_id, 'deal' as stream, 'w_1' as walk_id, 'list' as source,
         'lost_' || range // 2 as record_id, 'status' as path, 'expected a text' as reason,
         timestamp '2026-02-01' + to_minutes(range) as observed_at, date '2026-02-01' as business_date,
         timestamp '2026-02-01' as recorded_at, '1/0' as place
       from range(100000)`,
    )
  }
  const first = await side.readText('/quarantine')
  expect(first).toMatch(/ 50,000 100,000 .* page 1 of 1,001 /)
  const rowsOf = (page: string) => page.split('<h2>Records</h2>')[1]?.match(/<tr>/g)?.length
  expect(rowsOf(await side.read('/quarantine'))).toBe(51)
  for (const last of [1001, 1002]) expect(rowsOf(await side.read(`/quarantine?page=${last}`))).toBe(2)
})

test('an action on a full disk says so', async () => {
  const {page_count: pages} = stateDb.one(z.object({page_count: z.number()}), 'pragma page_count')
  stateDb.run(`pragma max_page_count = ${pages}`)
  const long = {do: 'note', about: 'day', subject: '2026-03-02', note: 'x'.repeat(500)}
  let said = ''
  for (let turn = 0; turn < 20; turn += 1) said = await (await post(long)).text()
  stateDb.run('pragma max_page_count = 1073741823')
  expect(said).toMatch(
    /^The disk or its quota is full: State database '.*' cannot be used: database or disk is full\.\n$/,
  )
})
