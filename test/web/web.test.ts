import {hash} from 'node:crypto'
import {chmodSync, cpSync, mkdirSync, readFileSync, truncateSync, writeFileSync} from 'node:fs'
import {beforeEach, expect, test} from 'vitest'
import {readJobs} from '../../src/schedule/job.ts'
import {listTapes} from '../../src/store/recorded.ts'
import {requireRelease} from '../../src/store/release.ts'
import {
  listNamedDeals,
  listWaitingEvents,
  settleEvents,
  settleWalkCoverage,
} from '../../src/sync/webhook-events.ts'
import {readRow, type SourceRow, startFleetWeb} from '../../src/web/fleet.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {createLab, failureOf, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {signEvent} from '../support/webhooks.ts'
import {basic, OPERATOR, PAGE_TABLES, serveLab, VIEWER} from './side.ts'

const SECRET = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
const PREVIOUS = `whsec_${Buffer.alloc(32, 2).toString('base64')}`
const STRANGER = `whsec_${Buffer.alloc(32, 3).toString('base64')}`
const HASHED = `sha256:${hash('sha256', OPERATOR)}`

const lab = await useLab({tables: PAGE_TABLES, deals: someDeals(3), releasedAt: '2026-06-01T16:00:00Z'})
const config = {jobs: readJobs(lab.config), webhookSecret: `${SECRET}, ${PREVIOUS}`}
const open = await serveLab(lab, config)
const pages = {'pages/deals.md': '# x\n\n```sql\nselect deal_id from core.deal\n```\n'}
const {path: sqlDir} = lab.beside.use(writeSqlFolder(pages))
const tokens = {webToken: HASHED, webViewerToken: VIEWER, sqlDir}
const guarded = await serveLab(lab, {...config, ...tokens})
/** A server that shows viewers only some tables. */
const some = await serveLab(lab, {...tokens, viewerTables: 'mart.*, core.deal_history'})
const read = (path: string, as = VIEWER) => some.read(path, as)
const stateDb = open.stateDb

beforeEach(() => stateDb.db.exec('delete from webhook_event'))

test.each([
  [
    {webPort: Number(new URL(open.url).port)},
    'WEB_ADDRESS',
    /'127\.0\.0\.1:\d+' \(EADDRINUSE\).*LOANTAPE_WEB_PORT/,
  ],
  [{webHost: '0.0.0.0'}, 'WEB_TOKEN_MISSING', /'0\.0\.0\.0' in LOANTAPE_WEB_HOST/],
])('a server with %j does not start, and names the setting: %s', async (address, code, words) => {
  const message = expect.stringMatching(words)
  expect(await failureOf(serveLab(lab, address))).toMatchObject({code, exitCode: 2, message})
})

test('a release damaged under the server is not ready until it is repaired', async () => {
  const {database} = requireRelease(lab.folder)
  const whole = readFileSync(database)
  const world = lab.createWorld()
  let now = Date.now()
  await using side = await serveLab(lab, {
    world: {...world, realClock: {...world.realClock, now: () => now}},
  })
  const ready = async () => {
    now += 60_000
    const answer = await side.get('/readyz')
    return [answer.status, await answer.text()]
  }
  expect(await guarded.read('/healthz'), 'without a token').toBe('ok\n')
  expect(await guarded.read('/readyz'), 'without a token').toBe('ready\n')
  expect(await ready()).toEqual([200, 'ready\n'])
  chmodSync(database, 0o644)
  truncateSync(database, 20_000)
  expect(await ready()).toEqual([503, expect.stringMatching(/^not ready: [A-Z_]+\n$/)])
  expect(await side.read('/healthz')).toBe('ok\n')
  writeFileSync(database, Buffer.alloc(whole.length))
  for (const path of ['/data/core.deal.csv', '/data/query.csv?q=select+1', '/sql?q=select+1']) {
    const text = await side.read(path)
    expect(text, path).toMatch(/portfolio\.duckdb('|&#39;) does not open: /)
    expect(text, path).not.toContain('Correct the statement')
  }
  const tables = await side.readText('/tables')
  for (const words of ['The filter cannot be offered: ', 'portfolio_summary']) expect(tables).toContain(words)
  writeFileSync(database, whole)
  expect(await ready()).toEqual([200, 'ready\n'])
})

test('the workbench and metrics ask for a token, as Bearer or as a password; a viewer sees all but what is for operators', async () => {
  const every = ['/', '/deals/deal_000001', '/data/core.deal.csv', '/sql?q=select+1', '/metrics']
  const received = '/deals/deal_000001/received'
  const operators = [received, received.replace('/r', '/%72'), `${received}?x`, '/books/2026-06?for=xero']
  for (const path of [...every, ...operators]) {
    const statusFor = async (as?: Parameters<typeof guarded.get>[1]) => (await guarded.get(path, as)).status
    for (const as of [{}, `${OPERATOR}x`, HASHED, basic('me', '')])
      expect(await statusFor(as), path).toBe(401)
    const operator = operators.includes(path) ? basic('me', OPERATOR) : OPERATOR
    expect(await statusFor(operator), path).toBe(200)
    expect(await statusFor(VIEWER), path).toBe(operators.includes(path) ? 403 : 200)
  }
})

const query = (sql: string) => `/data/query.csv?q=${encodeURIComponent(sql)}`

test('viewers can read the tables they are given, in every way, and are told which', async () => {
  expect(await guarded.read('/tables', VIEWER)).toContain('Viewers can read all of these tables')
  expect(await read(query('select count(*) as n from mart.portfolio_summary'))).toBe('n\n1\n')
  expect(await read(query('select count(*) as n from CORE.Deal_History'))).toBe('n\n3\n')
  for (const format of ['csv', 'xlsx', 'json', 'parquet'])
    expect((await some.get(`/data/core.deal_history.${format}`, VIEWER)).status, format).toBe(200)
  const table = await read('/tables/core.deal_history')
  expect(table).toContain('deal_000001')
  const [, summary = ''] = /href="(\/sql\?q=summarize[^"]*)"/.exec(table) ?? []
  expect(await read(summary)).toContain('approx_unique')
  expect((await some.get('/', VIEWER)).url).toBe(`${some.url}/tables`)
  const text = await read('/tables')
  expect(text).toContain('/tables/mart.run')
  expect(text).not.toMatch(/Viewers can read all|\/tables\/(core\.deal"|accounting)/)
})

test.each([
  query('select count(*) from core.deal'),
  query('select count(*) from release.core.deal'),
  query('select count(*) from kept.work.deal_standing'),
  query('with x as (from core.deal) select * from x'),
  query('select (select max(deal_id) from core.deal) from mart.portfolio_summary'),
  query(`select 1 from mart.portfolio_summary where exists (from "core"."deal")`),
  ...['limit', 'funded_on', 'account'].map((name) => query(`from seed.${name}`)),
  query('summarize core.deal'),
  '/data/core.deal.csv',
  '/data/core.deal.parquet',
  '/tables/core.deal',
  '/deals',
  '/deals/deal_000001',
  '/portfolio',
  '/books',
  '/compare',
  '/runs',
  '/quarantine',
  '/nowhere',
])('viewers cannot read %s', async (path) => {
  const answer = await some.get(path, VIEWER)
  expect(answer.status).toBeGreaterThanOrEqual(400)
  expect(await answer.text()).not.toMatch(/deal_00000|Main St/)
  if (!path.startsWith('/data') || path.includes('release.')) return
  const operator = await some.get(path, OPERATOR)
  expect(operator.status, await operator.text()).toBe(200)
  // The browser may still hold what an operator downloaded.
  const tag = {'if-none-match': operator.headers.get('etag') ?? ''}
  expect((await some.get(path, {authorization: `Bearer ${VIEWER}`, ...tag})).status).not.toBe(304)
})

test("a page that comes with loantape shows a viewer no more than one's own page", async () => {
  const portfolio = await read('/pages/portfolio')
  expect(portfolio).toMatch(
    /pages\/parts\/figures\.md, line \d+: Query refused: table &#39;core\.deal&#39; is not for viewers/,
  )
  for (const page of [portfolio, await read('/pages/pipeline'), await read('/pages/data_quality')])
    expect(page).not.toMatch(/&quot;seed\.|href=""|deal_00000|Main St/)
  for (const as of [VIEWER, OPERATOR]) expect(await read('/pages/portfolio', as)).toContain('1,050,000.00')
})

test('a table a viewer cannot read is not in the catalogue, on own pages, or revealed by a filter', async () => {
  const tables = await read(query('select distinct table_name from duckdb_columns() where not internal'))
  expect(tables).not.toMatch(/deal|journal|mart/)
  const page = await read('/pages/deals')
  expect(page).toContain('table &#39;core.deal&#39; is not for viewers')
  expect(page).not.toContain('deal_000001')
  expect(await read('/pages/deals', OPERATOR)).toContain('deal_000001')
  const asked = query('select count(*) as n from core.deal_history')
  const paths = [`${asked}&`, '/data/mart.portfolio_summary.parquet?', '/pages/deals?', '/sql?q=select+1&']
  for (const filter of ['status=draft', 'amount_from=1', 'person=x'])
    for (const path of paths) {
      const refused = await some.get(path + filter, VIEWER)
      expect(refused.status, path).toBe(403)
      expect(await refused.text(), path).toContain('Its filter reads table')
    }
  expect(await read('/tables?person=x')).toContain('href="/tables">The page without it')
  expect(await read('/tables')).not.toContain('class="filter"')
  expect(await read('/tables', OPERATOR)).toContain('class="filter"')
})

test('a viewer is offered what a viewer may open and do', async () => {
  const pages = [
    '/tables',
    '/tables/core.deal_history',
    '/sql?q=from core.deal_history',
    '/pages',
    '/nowhere',
  ]
  for (const side of [some, guarded]) {
    const offered = new Map<string, string>()
    for (const page of pages) {
      const text = await side.read(page, {authorization: `Bearer ${VIEWER}`, accept: 'text/html'})
      expect(text, page).not.toContain('method="post"')
      // Rights depend on the path, and on the tables that a query reads, whatever the format.
      for (const [, href = '', path = '', query] of text.matchAll(/href="((\/[^"#?]*)([^"#]*))/g)) {
        const what = path.replace(/\.(csv|xlsx|json|parquet)$/, '')
        const asked = /^\/(sql|data\/query)/.test(path) ? what + query : what
        // Where all tables may be read, one stands for all.
        const key = side === guarded ? asked.replace(/\b(core|mart|accounting)\.\w+/, '') : asked
        offered.set(key, href.replaceAll('&amp;', '&'))
      }
    }
    expect([...offered.keys()]).toContain('/sql')
    for (const href of offered.values()) expect((await side.get(href, VIEWER)).status, href).toBe(200)
  }
  expect(await read('/tables?as_of=2026-06-01')).not.toContain('/compare')
  expect(await read('/tables/core.deal_history', OPERATOR)).toContain('href="/deals/deal_000001"')
  expect(await read('/sql?q=select+1', OPERATOR)).toContain('action="/sql/queries"')
})

test('metrics tell a viewer of the tables that are readable, and a fleet shows its page to one of some tables', async () => {
  const text = await read('/metrics')
  expect(text).toContain('loantape_release_rows{table="core.deal_history"} 3')
  expect(text).not.toContain('table="core.deal"')
  expect(await read('/metrics', OPERATOR)).toContain('loantape_release_rows{table="core.deal"} 3')
  const limited = {...lab.config, ...tokens, viewerTables: 'mart.*', webPort: 0}
  const alarm = {name: 'limits', state: '1 exceeded: "Texas"', title: '', words: '', since: '2026-06-01'}
  const row = {...readRow('acme', () => expect.fail()), alarms: [alarm]} as SourceRow
  await using fleet = await startFleetWeb(limited, () => [row], lab.createWorld())
  for (const path of ['/', '/metrics']) {
    const answer = await fetch(fleet.url + path, {headers: {authorization: `Bearer ${VIEWER}`}})
    expect([answer.status, answer.url]).toEqual([200, fleet.url + path])
    expect(await answer.text()).not.toContain('Texas')
  }
})

test('every answer has the security headers, and no file is served', async () => {
  const statuses = {
    '/': 200,
    '/state.sqlite': 404,
    '/..%2f..%2fetc/passwd': 404,
    '/current/manifest.json': 404,
    '/%zz': 400,
  }
  for (const [path, status] of Object.entries(statuses)) {
    const answer = await open.get(path)
    expect(answer.headers.get('content-security-policy')).toContain("default-src 'none'")
    expect(answer.headers.get('x-content-type-options')).toBe('nosniff')
    expect(answer.status, path).toBe(status)
  }
})

test("metrics report the last walk, the release and answers, named by Prometheus' rules", async () => {
  const text = await open.read('/metrics')
  for (const line of [
    'loantape_last_walk{what="records"} 3',
    'loantape_sync_total{what="records"} 3',
    'loantape_release_rows{table="core.deal"} 3',
    'loantape_web_answers_total{status="200"}',
    'loantape_process_resident_memory_bytes',
  ])
    expect(text).toContain(line)
  expect(text).toMatch(/loantape_source_answers\{status="200"\} [4-9]/)
  expect(text).toMatch(/loantape_last_success_age_seconds \d/)
  const types = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)]
  for (const [, name = '', type] of types) {
    expect(name.endsWith('_total'), name).toBe(type === 'counter')
    expect(name).toMatch(/^loantape(_[a-z0-9]+)+$/)
    expect(text).toMatch(new RegExp(`^# HELP ${name} \\S`, 'm'))
  }
})

test('what webhooks missed is shown once a walk was compared; if webhooks are off, none is taken or missed', async () => {
  await using deaf = await serveLab(lab)
  const VALUE = /^loantape_webhook_missed_changes \d+$/m
  expect(await open.read('/metrics')).not.toMatch(VALUE)
  const walkId = listTapes(stateDb).at(-1)?.name ?? ''
  settleWalkCoverage(stateDb, walkId, {changes: 5, missed: 2}, Date.now())
  expect(await open.read('/metrics')).toContain('\nloantape_webhook_missed_changes 2\n')
  expect(await open.read('/runs')).toContain('no webhook told of 2')
  expect(await deaf.read('/metrics')).not.toMatch(VALUE)
  expect(await deaf.read('/runs')).not.toContain('no webhook')
  const sent = await fetch(`${deaf.url}/webhooks/deals`, {method: 'POST', body: '{}'})
  expect(sent.status, 'without a secret').toBe(404)
})

test('without a release it is not ready, pages say so, and what is not known has no value among the metrics', async () => {
  await using empty = await createLab()
  mkdirSync(empty.folder.root)
  writeFileSync(empty.folder.stateDb, '')
  await using side = await serveLab(empty)
  expect((await side.get('/readyz')).status).toBe(503)
  expect(await side.read('/')).toContain('No release')
  // A copy of the folder may lack its link.
  cpSync(lab.folder.releases, empty.folder.releases, {recursive: true})
  expect(await side.read('/')).toMatch(/loantape build<.* makes it again if it was lost/)
  expect(await side.read('/runs')).toContain('none yet')
  expect((await side.get('/data/core.deal.csv')).status).toBe(503)
  expect(await side.read('/metrics')).not.toMatch(/^loantape_(last_success_age|release_age)_seconds \d/m)
})

const anEvent = (type: string, data?: object) => JSON.stringify({type, data})

/** Sends an event as the service would; `fields` make it wrong. */
async function sendEvent(
  fields: {secret?: string; id?: string; shiftMs?: number; body?: string; sent?: string} = {},
): Promise<number> {
  const {secret = SECRET, id = 'evt_1', shiftMs = 0} = fields
  const {body = anEvent('deal.updated', {id: 'deal_000001', deal_id: 'deal_000001'}), sent = body} = fields
  const headers = signEvent(secret, id, body, new Date(Date.now() + shiftMs))
  return (await fetch(`${guarded.url}/webhooks/deals`, {method: 'POST', headers, body: sent})).status
}

const waiting = () => listWaitingEvents(stateDb).map(({event_id, deal_id}) => `${event_id} ${deal_id}`)

test('an event signed by the present or the previous secret is stored before it is acknowledged, and once', async () => {
  expect(await sendEvent()).toBe(202)
  expect(waiting()).toEqual(['evt_1 deal_000001'])
  expect(await sendEvent()).toBe(200)
  expect(waiting()).toHaveLength(1)
  settleEvents(stateDb, {eventIds: ['evt_1'], outcome: 'applied'}, Date.now())
  expect(await sendEvent(), 'settled').toBe(200)
  expect(waiting()).toEqual([])
  expect(await sendEvent({secret: PREVIOUS, id: 'evt_2'}), 'signed during a rotation').toBe(202)
})

test.each([
  ['of a task', 'task.completed', {id: 'task_000001'}],
  ['of an unknown kind', 'office.moved', {id: 42}],
  ['that only pings', 'ping', undefined],
])('an event %s that names no deal is recorded, and nothing waits for it', async (_, type, data) => {
  const body = anEvent(type, data)
  expect(await sendEvent({body})).toBe(202)
  expect(await sendEvent({body})).toBe(200)
  expect([waiting(), listNamedDeals(stateDb)]).toEqual([[], []])
  expect(await sendEvent({id: 'evt_2', body: anEvent(type, {deal_id: 'deal_1'})})).toBe(202)
  expect(waiting()).toEqual(['evt_2 deal_1'])
})

/** As long as the id of a deal that a sync takes. */
const LONGEST = 'd'.repeat(8192)

test('an event may name any deal that a sync takes', async () => {
  expect(await sendEvent({body: anEvent('deal.updated', {id: LONGEST})})).toBe(202)
  expect(waiting()).toEqual([`evt_1 ${LONGEST}`])
})

test.each([
  ['of a stranger', {secret: STRANGER}, 401],
  ['over another body', {sent: anEvent('deal.deleted', {id: 'deal_000002'})}, 401],
  ['of six minutes ago', {shiftMs: -360_000}, 401],
  ['of six minutes ahead', {shiftMs: 360_000}, 401],
  ['over something other than an event', {body: '[]'}, 400],
  ['over something other than JSON', {body: 'deal_000001'}, 400],
  ['over an event that names no deal', {body: anEvent('deal.updated', {})}, 400],
  ['over too long an id', {body: anEvent('deal.updated', {id: `${LONGEST}d`})}, 400],
  ['over too long a body', {body: `"${'x'.repeat(70_000)}"`}, 413],
])('a signature %s is refused and nothing is stored', async (_, fields, status) => {
  expect(await sendEvent(fields)).toBe(status)
  expect(waiting()).toEqual([])
})
