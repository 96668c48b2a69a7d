import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {readConditions} from '../../src/alarm/conditions.ts'
import {buildRelease} from '../../src/pipeline/build.ts'
import {ingestRates, type RatesResult} from '../../src/pipeline/rates.ts'
import {requireJob} from '../../src/schedule/job.ts'
import {runJob} from '../../src/schedule/run-job.ts'
import {acquireLock} from '../../src/state/lock.ts'
import {openStateDb} from '../../src/state/state-db.ts'
import {verifyWarehouse} from '../../src/warehouse/verify-warehouse.ts'
import {createGate, type Handler, sendJson, startTestServer} from '../source/test-server.ts'
import {createLab, failureOf, type Lab, someDeals} from '../support/lab.ts'

let lab: Lab

beforeEach(async () => {
  lab = await createLab({tables: '+core.deal +mart.rate_daily +mart.run'})
  mkdirSync(lab.folder.root)
})

afterEach(() => lab[Symbol.asyncDispose]())

const fileOf = (name: string) => join(lab.folder.root, name)

const SOFR = {name: 'sofr', format: 'csv', date: 'date', rate_name: 'SOFR', value: 'value'}
const csvFeed = () => ({...SOFR, file: fileOf('sofr.csv')})
const jsonFeed = (url: string, fields: object = {}) => ({
  ...SOFR,
  name: 'json',
  format: 'json',
  url,
  ...fields,
})

const writeCsv = (...rows: string[]) =>
  writeFileSync(fileOf('sofr.csv'), ['date,value', ...rows, ''].join('\n'))

function withFeeds(...feeds: object[]): Lab['config'] {
  writeFileSync(fileOf('rates.json'), JSON.stringify({feeds}))
  return {...lab.config, retries: 0, requestTimeoutSeconds: 60, ratesFile: fileOf('rates.json')}
}

const ingest = (now: string, ...feeds: object[]): Promise<RatesResult> =>
  ingestRates(withFeeds(...feeds), lab.createWorld(now))

const EVENING = '2026-03-02T21:00:00-05:00'
const NEXT_EVENING = '2026-03-03T21:00:00-05:00'

async function serve(handler: Handler, use: (url: string) => Promise<void>): Promise<void> {
  await using server = await startTestServer(handler)
  await use(server.url)
}

test('what is new or changed is appended once, and what was known is not', async () => {
  writeCsv('2026-02-27,4.33', '2026-03-02,4.31')
  expect(await ingest(EVENING, csvFeed())).toMatchObject({
    outcome: 'appended',
    feeds: [{appended: 2, known: 0}],
  })
  expect(await ingest(EVENING, csvFeed())).toMatchObject({
    outcome: 'unchanged',
    feeds: [{appended: 0, known: 2}],
  })
  writeCsv('2026-03-02,4.32', '2026-03-03,4.30')
  expect(await ingest(NEXT_EVENING, csvFeed())).toMatchObject({feeds: [{appended: 2, known: 0}]})
  writeCsv('2026-03-02,4.31')
  expect(await ingest(NEXT_EVENING, csvFeed())).toMatchObject({feeds: [{appended: 1}]})
  expect(await lab.queryHistory('select seq, rate_date, value from rate order by seq')).toEqual([
    {seq: '1', rate_date: '2026-02-27', value: '4.33000000'},
    {seq: '2', rate_date: '2026-03-02', value: '4.31000000'},
    {seq: '3', rate_date: '2026-03-02', value: '4.32000000'},
    {seq: '4', rate_date: '2026-03-03', value: '4.30000000'},
    {seq: '5', rate_date: '2026-03-02', value: '4.31000000'},
  ])
  expect(await verifyWarehouse(lab.folder)).toEqual({walks: 0, faults: []})
})

test('the next build releases them, and a past date shows what was known then', async () => {
  lab.service.store.insert(someDeals(2))
  await lab.walk('2026-03-02T23:30:00-05:00')
  writeCsv('2026-02-27,4.33', '2026-03-02,4.31')
  await ingest(EVENING, csvFeed())
  const first = await buildRelease(lab.config, {}, lab.createWorld(EVENING))
  expect(first.outcome).toBe('released')
  const daily = `select cast(day as varchar) as day, value from mart.rate_daily order by day desc limit 2`
  expect(await lab.query(daily)).toEqual([
    {day: '2026-03-02', value: '4.31000000'},
    {day: '2026-03-01', value: '4.33000000'},
  ])
  writeCsv('2026-03-02,4.99')
  await ingest(NEXT_EVENING, csvFeed())
  await lab.sync('2026-03-03T23:30:00-05:00')
  expect(await lab.query(daily)).toEqual([
    {day: '2026-03-03', value: '4.99000000'},
    {day: '2026-03-02', value: '4.99000000'},
  ])
  const past = await buildRelease(lab.config, {asOf: '2026-03-02'}, lab.createWorld(NEXT_EVENING))
  expect(past).toMatchObject({outcome: 'unchanged', release_id: first.release_id})
})

test('a deal applied after rates is recorded later than they are', async () => {
  lab.service.store.insert(someDeals(2))
  writeCsv('2026-03-02,4.31')
  await ingest('2026-03-09T21:00:00-05:00', csvFeed())
  await lab.walk('2026-03-03T23:30:00-05:00')
  expect(
    await lab.queryHistory(
      'select (select max(recorded_at) from walk) > max(recorded_at) as is_later from rate',
    ),
  ).toEqual([{is_later: true}])
})

test('a feed that fails and a row that cannot be read harm nothing else, and an alarm says so', async () => {
  writeCsv('2026-03-02,4.31', '2026-03-03,oops')
  await serve(endWith(200, '<html>'), async (url) => {
    const result = await ingest(
      EVENING,
      jsonFeed(url),
      {...csvFeed(), name: 'gone', file: '/nowhere/x.csv'},
      csvFeed(),
    )
    expect(result).toMatchObject({
      outcome: 'appended',
      faulty: 3,
      feeds: [
        {feed: 'json', outcome: 'failed', problems: [expect.stringContaining('[RATES_FORMAT]')]},
        {feed: 'gone', outcome: 'failed', problems: [expect.stringContaining('ENOENT')]},
        {feed: 'sofr', outcome: 'read', rows: 2, appended: 1, rejected: 1},
      ],
    })
  })
  using stateDb = openStateDb(lab.folder.stateDb)
  const alarmOf = () =>
    readConditions(stateDb, lab.config, Date.now(), undefined).find(({name}) => name === 'rates')
  expect(alarmOf()).toMatchObject({state: 'faulty', title: '3 of 3 rate feeds could not be read whole'})
  writeCsv('2026-03-02,4.31')
  await ingest(EVENING, csvFeed())
  expect(alarmOf()).toMatchObject({state: 'ok'})
})

const endWith =
  (status: number, body?: string): Handler =>
  (_request, response) => {
    response.writeHead(status).end(body)
  }

const hangUp: Handler = (_request, response) => {
  response.destroy()
}

test.each<[string, Handler, RegExp]>([
  ['is not there', endWith(404), /RATES_ANSWER.*status 404/],
  ['refuses the key', endWith(401), /SOURCE_UNAUTHORIZED/],
  ['fails', endWith(503), /SOURCE_FAILING/],
  ['hangs up', hangUp, /SOURCE_UNREACHABLE/],
  [
    'never ends',
    (_request, response) => sendJson(response, {data: [], has_more: true, next_cursor: 'again'}),
    /RATES_ENDLESS/,
  ],
])('a feed that %s is reported, and no query of its URL is repeated', async (_name, handler, words) => {
  await serve(handler, async (url) => {
    const {feeds} = await ingest(EVENING, jsonFeed(`${url}/x?api_key=hush`, {rows: 'data'}))
    expect(feeds).toMatchObject([{outcome: 'failed', problems: [expect.stringMatching(words)]}])
    expect(JSON.stringify(feeds)).not.toContain('hush')
  })
})

test('rates of the service are read to their last page with the key of the source', async () => {
  const call = (body: object) =>
    fetch(`${lab.service.url}/rates`, {
      method: 'POST',
      headers: {authorization: `Bearer ${lab.config.apiKey}`, 'content-type': 'application/json'},
      body: JSON.stringify(body),
    })
  const rate = {provider: 'acme', loan_program: 'bridge_30yr'}
  await call({...rate, rate_pct: 7.125, effective_at: '2026-03-02T15:00:00Z'})
  await call({...rate, rate_pct: 7.0001, effective_at: '2026-03-02T09:00:00Z'})
  await call({...rate, rate_pct: 6.5, effective_at: '2026-03-03T03:00:00Z'})
  const feed = {
    name: 'service',
    url: `${lab.service.url}/rates?limit=1`,
    format: 'json',
    rows: 'data',
    date: 'effective_at',
    rate: ['provider', 'loan_program'],
    value: 'rate_pct',
  }
  expect(await ingest(EVENING, feed)).toMatchObject({feeds: [{outcome: 'read', rows: 3, appended: 1}]})
  expect(await lab.queryHistory('select rate, rate_date, value from rate')).toEqual([
    {rate: 'acme/bridge_30yr', rate_date: '2026-03-02', value: '6.50000000'},
  ])
})

test('the key of the source goes only below its base URL, and along no redirect', async () => {
  await using other = await startTestServer((_request, response) => sendJson(response, []))
  await using source = await startTestServer((request, response) => {
    if (request.path === '/v1/moved') response.writeHead(302, {location: `${other.url}/stolen`}).end()
    else sendJson(response, [])
  })
  writeFileSync(fileOf('feed.key'), 'key_of_feed\n')
  const beside = source.url.replace(/\/v1$/, '/v10/x')
  const config = {
    ...withFeeds(
      jsonFeed(`${source.url}/moved`, {name: 'moved'}),
      jsonFeed(beside, {name: 'beside'}),
      jsonFeed(`${other.url}/a`, {name: 'other'}),
      jsonFeed(`${other.url}/b`, {name: 'own', key_file: fileOf('feed.key')}),
    ),
    baseUrl: source.url,
    baseUrlQuery: '?key=of_source',
  }
  const {feeds} = await ingestRates(config, lab.createWorld(EVENING))
  expect(feeds[0]).toMatchObject({problems: [expect.stringContaining('SOURCE_REDIRECTED')]})
  const keys = [...source.requests, ...other.requests].map(({path, headers}) => [path, headers.authorization])
  expect(keys).toEqual([
    ['/v1/moved', `Bearer ${lab.config.apiKey}`],
    ['/v10/x', undefined],
    ['/v1/a', undefined],
    ['/v1/b', 'Bearer key_of_feed'],
  ])
  for (const {query} of [...source.requests, ...other.requests]) expect([...query]).toEqual([])
})

test('a feed is asked for as its URL says, names that repeat included', async () => {
  await using server = await startTestServer((_request, response) => sendJson(response, []))
  await ingest(EVENING, jsonFeed(`${server.url}/x/?series=A&series=B`))
  expect(server.requests).toMatchObject([{path: '/v1/x/'}])
  expect(server.requests[0]?.query.getAll('series')).toEqual(['A', 'B'])
})

test('without feeds the shipped job says so and does nothing', async () => {
  const job = await requireJob(lab.config, 'rates')
  const request = {job, slot: undefined}
  const result = await runJob({...lab.config, dataDir: '/proc/nowhere'}, request, lab.createWorld(EVENING))
  expect(result.steps).toEqual([
    {do: 'ingest_rates', result: {run_id: null, outcome: 'not_configured', faulty: 0, feeds: []}},
  ])
  const missing = {...lab.config, ratesFile: fileOf('none.json')}
  expect(await failureOf(ingestRates(missing, lab.createWorld()))).toMatchObject({
    code: 'RATES_FILE',
    exitCode: 2,
  })
})

test('rates wait for nobody: while another run holds the warehouse they are refused', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  using _lock = acquireLock(stateDb, {runId: 'other', command: 'sync'}, lab.createWorld())
  writeCsv('2026-03-02,4.31')
  expect(await failureOf(ingest(EVENING, csvFeed()))).toMatchObject({code: 'RUN_IN_PROGRESS', exitCode: 4})
})

test('a feed that hangs keeps nobody from the warehouse', async () => {
  lab.service.store.insert(someDeals(2))
  const [asked, answer] = [createGate(), createGate()]
  await serve(
    async (_request, response) => {
      asked.open()
      await answer.opened
      sendJson(response, [{date: '2026-03-02', value: 4.31}])
    },
    async (url) => {
      const hanging = ingest(EVENING, jsonFeed(url))
      await asked.opened
      expect(await lab.sync('2026-03-02T23:30:00-05:00')).toMatchObject({outcome: 'released'})
      answer.open()
      expect(await hanging).toMatchObject({outcome: 'appended', feeds: [{appended: 1}]})
    },
  )
})

test('run rates prints what became of each feed', async () => {
  writeCsv('2026-03-02,4.31', '2026-03-03,oops')
  withFeeds(csvFeed())
  const none = lab.run(['run', 'rates'])
  const some = await lab.run(['run', 'rates'], {LOANTAPE_RATES_FILE: fileOf('rates.json')})
  expect(some).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('Rates of sofr: 2 rows, 1 new, 0 known'),
  })
  expect(some.stdout).toContain('row 2: value: expected')
  expect(await none).toMatchObject({code: 0, stdout: expect.stringContaining('no feeds')})
})
