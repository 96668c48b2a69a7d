import {mkdirSync, readFileSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {buildRelease} from '../../src/build/build.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import {verifyWarehouse} from '../../src/record/verify.ts'
import {readConditions} from '../../src/schedule/alarms.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {feedParser, parseRates} from '../../src/sync/rate-feed.ts'
import {ingestRates, type RatesResult, readRateFeeds} from '../../src/sync/rates.ts'
import {openTapes} from '../../src/sync/tapes.ts'
import {createGate, type Handler, startTestServer} from '../source/test-server.ts'
import {LEAST_TABLES} from '../support/data.ts'
import {failureOf, type Lab, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'

const lab = await useLab({tables: `${LEAST_TABLES} +mart.rate_daily`})

beforeEach(() => {
  rmSync(lab.folder.root, {recursive: true, force: true})
  mkdirSync(lab.folder.root)
  for (const id of lab.service.store.ids()) lab.service.store.remove(id)
})

const fileOf = (name: string) => join(lab.folder.root, name)

const SOFR = {name: 'sofr', rate: 'SOFR'}
const csvFeed = () => ({...SOFR, csv: fileOf('sofr.csv')})
const urlFeed = (csv: string) => ({...SOFR, name: 'far', csv})

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

const countRates = (appended: number, known: number) => ({feeds: [{appended, known}]})

test('new and changed rates are appended once and released by the next build; a past date shows what was known then', async () => {
  lab.service.store.insert(someDeals(2))
  await lab.walk('2026-03-02T20:30:00-05:00')
  writeCsv('2026-02-27,4.33', '2026-03-02,4.31')
  expect(await ingest(EVENING, csvFeed())).toMatchObject({outcome: 'appended', ...countRates(2, 0)})
  expect(await ingest(EVENING, csvFeed())).toMatchObject({outcome: 'unchanged', ...countRates(0, 2)})
  const first = await buildRelease(lab.config, {}, lab.createWorld(EVENING))
  expect(first.outcome).toBe('released')
  const daily = `select cast(day as varchar) as day, value from mart.rate_daily order by day desc limit 2`
  expect(await lab.query(daily)).toEqual([
    {day: '2026-03-02', value: '4.31000000'},
    {day: '2026-03-01', value: '4.33000000'},
  ])

  writeCsv('2026-03-02,4.32', '2026-03-03,4.30')
  expect(await ingest(NEXT_EVENING, csvFeed())).toMatchObject(countRates(2, 0))
  writeCsv('2026-03-02,4.31')
  expect(await ingest(NEXT_EVENING, csvFeed())).toMatchObject(countRates(1, 0))
  expect(await lab.queryHistory('select seq, rate_date, value from rate order by seq')).toEqual([
    {seq: '1', rate_date: '2026-02-27', value: '4.33000000'},
    {seq: '2', rate_date: '2026-03-02', value: '4.31000000'},
    {seq: '3', rate_date: '2026-03-02', value: '4.32000000'},
    {seq: '4', rate_date: '2026-03-03', value: '4.30000000'},
    {seq: '5', rate_date: '2026-03-02', value: '4.31000000'},
  ])
  await lab.sync('2026-03-03T21:30:00-05:00')
  expect(await verifyWarehouse(lab.folder, lab.createWorld())).toEqual({walks: 2, faults: []})
  expect(await lab.query(daily)).toEqual([
    {day: '2026-03-03', value: '4.30000000'},
    {day: '2026-03-02', value: '4.31000000'},
  ])
  const past = await buildRelease(lab.config, {asOf: '2026-03-02'}, lab.createWorld(NEXT_EVENING))
  expect(past).toMatchObject({outcome: 'unchanged', release_id: first.release_id})
})

test('rates read while the clock steps back are not stored; those of a clock that stays ahead stop the next run, and go by their day', async () => {
  lab.service.store.insert(someDeals(2))
  await lab.walk('2026-03-02T20:30:00-05:00')
  writeCsv('2026-03-02,4.31')
  const ahead = ['2027-03-02T23:00:00-05:00']
  const clock = {now: () => Date.parse(ahead.pop() ?? EVENING)}
  const stepped = ingestRates(withFeeds(csvFeed()), {...lab.createWorld(), clock})
  expect(await failureOf(stepped)).toMatchObject({code: 'CLOCK_STEPPED', exitCode: 6})
  await ingest('2027-03-02T23:00:00-05:00', csvFeed())
  const stopped = {
    code: 'CLOCK_BACKWARDS',
    exitCode: 2,
    message: expect.stringContaining(': 2027-03-02.'),
  }
  expect(await failureOf(ingest(NEXT_EVENING, csvFeed()))).toMatchObject(stopped)
  expect(await failureOf(lab.walk(NEXT_EVENING))).toMatchObject(stopped)
  const env = {LOANTAPE_NOW: NEXT_EVENING}
  for (const args of [['quarantine', 'replay'], ['doctor']])
    expect((await lab.run(args, env)).code, args.join(' ')).not.toBe(0)
  const without = ['rebuild', '--apply', '--without', '2027-03-02', '--why', 'the clock was a year ahead']
  expect(await lab.run(without, env)).toMatchObject({code: 0})
  expect(await ingest(NEXT_EVENING, csvFeed())).toMatchObject(countRates(1, 0))
  await lab.walk(NEXT_EVENING)
  const last = 'select max(recorded_at)::date as day from settle'
  expect(await lab.queryHistory(last)).toEqual([{day: '2026-03-04'}])
})

test('once days begin later, rates count for no earlier day than the last walk', async () => {
  const [walked, read] = ['2026-03-03T01:00:00-05:00', '2026-03-03T01:10:00-05:00']
  await lab.walk(walked, {config: {dayCutoff: '00:00'}})
  writeCsv('2026-03-02,4.31')
  await ingestRates({...withFeeds(csvFeed()), dayCutoff: '06:00'}, lab.createWorld(read))
  expect(await lab.queryHistory('select business_date from rate')).toEqual([{business_date: '2026-03-03'}])
  const before = lab.walk('2026-03-03T01:05:00-05:00', {config: {dayCutoff: '06:00'}})
  expect(await failureOf(before)).toMatchObject({message: expect.stringContaining(': 2026-03-03.')})
})

const endWith =
  (status: number, body?: string): Handler =>
  (_request, response) => {
    response.writeHead(status).end(body)
  }

const FAILING: [Handler, string][] = [
  [endWith(200, '<html>'), '[RATES_FEED]'],
  [endWith(404), 'status 404'],
  [endWith(503), '[SOURCE_FAILING]'],
]

test('a file of very many rows is stored, and again from its tape, whatever stands before it there', async () => {
  writeCsv('2026-03-02,4.33')
  await ingest(EVENING, csvFeed())
  {
    using stateDb = openStateDb(lab.folder.stateDb)
    using tapes = openTapes(lab.config, {folder: lab.folder, stateDb}, lab.createWorld(EVENING))
    const unreadable = {kind: 'rates', feed: 'of another version'}
    await failureOf(tapes.settleOfDay('2026-03-02', unreadable, () => Promise.reject(new Error('broken'))))
  }
  writeCsv('2026-03-02,4.31\n'.repeat(130_000))
  expect(await ingest(EVENING, csvFeed())).toMatchObject(countRates(1, 0))
  rmSync(lab.folder.warehouse)
  await bringUpToDate(lab.config, lab.createWorld(EVENING))
  expect(await lab.queryHistory('select value from rate order by seq')).toEqual([
    {value: '4.33000000'},
    {value: '4.31000000'},
  ])
})

test('failing feeds and an unreadable row harm nothing else; run rates prints them, and an alarm reports them', async () => {
  writeCsv('2026-03-02,4.31', '2026-03-03,oops')
  await using server = await startTestServer((request, response, turn) =>
    FAILING[Number(request.query.get('case'))]?.[0](request, response, turn),
  )
  const far = FAILING.map((_, index) => ({
    ...urlFeed(`${server.url}/x?api_key=hush&case=${index}`),
    name: `far_${index}`,
  }))
  const gone = {...csvFeed(), name: 'gone', csv: '/nowhere/x.csv'}
  const read = await ingest(EVENING, ...far, gone, csvFeed())
  expect(read).toMatchObject({
    outcome: 'appended',
    faulty: 5,
    feeds: [
      ...FAILING.map(([, words]) => ({outcome: 'failed', problems: [expect.stringContaining(words)]})),
      {feed: 'gone', outcome: 'failed', problems: [expect.stringContaining('ENOENT')]},
      {feed: 'sofr', outcome: 'read', rows: 2, appended: 1, rejected: 1},
    ],
  })
  expect(JSON.stringify(read)).not.toContain('hush')
  using stateDb = openStateDb(lab.folder.stateDb)
  const look = {config: lab.config, release: undefined, jobs: []}
  const alarmOf = () => readConditions(stateDb, look, Date.now()).find(({name}) => name === 'rates')
  expect(alarmOf()).toMatchObject({state: 'faulty', title: '5 of 5 rate feeds could not be read whole'})
  withFeeds(csvFeed())
  const {stdout} = await lab.run(['run', 'rates'], {LOANTAPE_RATES_FILE: fileOf('rates.json')})
  expect(stdout).toContain('Rates of sofr: 2 rows, 0 new, 1 known')
  expect(stdout).toContain('row 2: value: expected')
  expect(alarmOf()?.words).toContain('row 2: value: expected')
  writeCsv('2026-03-02,4.31')
  await ingest(EVENING, csvFeed())
  expect(alarmOf()).toMatchObject({state: 'ok'})
  await ingest(EVENING, gone)
  expect(alarmOf()).toMatchObject({state: 'faulty'})
  expect(await ingest(EVENING)).toMatchObject({outcome: 'unchanged', feeds: []})
  expect(alarmOf()).toMatchObject({state: 'ok', title: 'no feed of rates is named'})
  const nowhere = {...withFeeds(), dataDir: '/proc/nowhere'}
  for (const config of [withFeeds(), nowhere])
    expect(await ingestRates(config, lab.createWorld())).toMatchObject({outcome: 'not_configured'})
})

test("the service's rates are read to the last page with the source's key", async () => {
  const headers = {authorization: `Bearer ${lab.config.apiKey}`, 'content-type': 'application/json'}
  const add = (rate_pct: number, effective_at: string) => {
    const body = JSON.stringify({provider: 'acme', loan_program: 'bridge_30yr', rate_pct, effective_at})
    return fetch(`${lab.service.url}/rates`, {method: 'POST', headers, body})
  }
  await add(7.0001, '2026-03-02T09:00:00Z')
  for (let count = 0; count < 100; count += 1) await add(7, '2026-03-02T15:00:00Z')
  await add(6.5, '2026-03-03T03:00:00Z')
  const service = {name: 'service'}
  expect(await ingest(EVENING, service)).toMatchObject({feeds: [{outcome: 'read', rows: 102, appended: 1}]})
  expect(await lab.queryHistory('select rate, rate_date, value from rate')).toEqual([
    {rate: 'acme/bridge_30yr', rate_date: '2026-03-02', value: '6.50000000'},
  ])
})

test("the source's key and query go to the service alone and follow no redirect, and to no other service", async () => {
  await using other = await startTestServer(endWith(200, 'date,value\n'))
  await using source = await startTestServer((_request, response) => {
    response.writeHead(302, {location: `${other.url}/stolen`}).end()
  })
  const [feed, moved] = [urlFeed(`${other.url}/x/?series=A&series=B`), urlFeed(`${source.url}/b`)]
  const feeds = withFeeds({name: 'service'}, feed, {...moved, name: 'moved'})
  const tell = async (baseUrl: string) => {
    const config = {...feeds, baseUrl, baseUrlQuery: '?key=of_source'}
    const read = await ingestRates(config, lab.createWorld(EVENING))
    return read.feeds.map(({problems}) => problems.join())
  }
  const redirected = expect.stringContaining('SOURCE_REDIRECTED')
  expect(await tell(source.url)).toEqual([redirected, '', redirected])
  const asked = [...source.requests, ...other.requests]
  expect(asked.map(({path, headers, query}) => [path, headers.authorization, query.get('key')])).toEqual([
    ['/v1/rates', `Bearer ${lab.config.apiKey}`, 'of_source'],
    ['/v1/b', undefined, null],
    ['/v1/x/', undefined, null],
  ])
  expect(other.requests[0]?.query.getAll('series')).toEqual(['A', 'B'])
  await lab.walk(EVENING)
  expect(await tell(other.url)).toContainEqual(expect.stringMatching(/^\[SOURCE_PINNED\]/))
  expect(other.requests.map(({path}) => path)).not.toContain('/v1/rates')
})

test('the wait that the source told a feed holds for the next feeds and runs, too', async () => {
  const wait = {kind: 'status', status: 429, headers: {'retry-after': '7200'}} as const
  lab.service.faults.add({match: {path: '/rates', times: 1}, fault: wait})
  const failed = {
    outcome: 'failed',
    problems: [expect.stringMatching(/^\[SOURCE_RATE_LIMITED\] .*another 7\d{3} s/)],
  }
  expect(await ingest(EVENING, {name: 'service'})).toMatchObject({feeds: [failed]})
  const asked = lab.service.requests.count
  expect(await ingest(EVENING, {name: 'service'})).toMatchObject({feeds: [failed]})
  expect(await failureOf(lab.walk(EVENING))).toMatchObject({code: 'SOURCE_RATE_LIMITED'})
  expect(lab.service.requests.count).toBe(asked)
})

test('a feed that hangs keeps no other run waiting, and does not supersede what that run stores', async () => {
  const [asked, answer] = [createGate(), createGate()]
  await using server = await startTestServer(async (_request, response, turn) => {
    if (turn > 0) return void response.end('date,value\n2026-03-02,4.32\n')
    asked.open()
    await answer.opened
    response.end('date,value\n2026-02-27,4.33\n2026-03-02,4.31\n')
  })
  let now = EVENING
  const clock = {now: () => Date.parse(now)}
  const ingestNow = () => ingestRates(withFeeds(urlFeed(server.url)), {...lab.createWorld(), clock})
  const earlier = ingestNow()
  await asked.opened
  now = '2026-03-02T21:01:00-05:00'
  expect(await ingestNow()).toMatchObject(countRates(1, 0))
  answer.open()
  expect(await earlier).toMatchObject(countRates(1, 1))
  const last =
    'select rate_date, arg_max(value, seq) as value from rate group by rate_date order by rate_date'
  expect(await lab.queryHistory(last)).toEqual([
    {rate_date: '2026-02-27', value: '4.33000000'},
    {rate_date: '2026-03-02', value: '4.32000000'},
  ])
})

const read = (csv: string) => parseRates(feedParser.parse(SOFR), csv, 'America/New_York')

const aRate = (units: bigint, rateDate = '2026-03-02') => expect.objectContaining({rateDate, units})
const rejection = (words: RegExp) => expect.stringMatching(words)

test.each([
  ['2026-03-02,1234567890.12345678', aRate(123_456_789_012_345_678n)],
  ['2026-03-02,-0.1', aRate(-10_000_000n)],
  ['2026-03-02,5.3300000000', aRate(533_000_000n)],
  ['2026-03-02,.', null],
  ['2026-03-02,', null],
  ['2026-03-02,abc', rejection(/^row 2: value: expected a decimal number/)],
  ['2026-03-02,4.123456789', rejection(/^row 2: value/)],
  ['2026-03-02,1e3', rejection(/^row 2: value/)],
  ['2026-03-02,12345678901', rejection(/^row 2: value/)],
  ['2026-02-30,4.31', rejection(/^row 2: date: expected a day/)],
  ['0026-03-02,4.31', rejection(/^row 2: date/)],
  ['2026-03-02', rejection(/CSV_RECORD_INCONSISTENT/)],
])('the row %s is read to the last digit, means no value, or is rejected alone', (row, expected) => {
  const rows = read(`date,value\n2026-03-01,4.30\n${row}\n2026-03-03,4.32\n`)
  expect(rows).toHaveLength(3)
  const others = [aRate(430_000_000n, '2026-03-01'), aRate(432_000_000n, '2026-03-03')]
  expect(rows).toEqual(expect.arrayContaining([expected, ...others]))
  expect(rows.filter((one) => typeof one === 'string').join()).not.toMatch(/abc|4\.123|1e3/)
})

test('rates of the service are dated by their instant, and an unreadable one is reported alone', () => {
  const instant = {rate_pct: 7.125, effective_at: '2026-03-03T01:00:00Z'}
  const rate = {provider: 'acme', loan_program: 'bridge', ...instant}
  const data = [rate, {...rate, provider: ''}, {...rate, rate_pct: '7'}, {...rate, effective_at: 'soon'}, 7]
  const page = JSON.stringify({data, has_more: false})
  const rows = parseRates(feedParser.parse({name: 'service'}), page, 'America/New_York')
  expect(rows).toEqual([
    {rate: 'acme/bridge', rateDate: '2026-03-02', instant: 1_772_499_600_000_000n, units: 712_500_000n},
    expect.stringMatching(/^row 2: provider: expected a text/),
    expect.stringMatching(/^row 3: rate_pct/),
    expect.stringMatching(/^row 4: effective_at/),
    expect.stringMatching(/^row 5: /),
  ])
})

test('a text that is not a CSV with the columns is refused', () => {
  for (const csv of ['<html>', '', 'day,value\n2026-03-01,1\n'])
    expect(() => read(csv), csv).toThrow(/^Feed 'sofr': column 'date' is not in its header/)
})

test('a wrong feeds file is named with its field', () => {
  const wrong: [object, RegExp][] = [
    [{name: 'A b'}, /feeds\.0\.name: expected lower-case/],
    [{csv: undefined}, /feeds\.0\.rate: expected together with csv, and only then/],
    [{rate: undefined}, /feeds\.0\.rate: expected together with csv, and only then/],
    [{csv: 'https://me:hush@x.example/'}, /feeds\.0\.csv: expected a URL without user/],
    [{valeu: 'x'}, /feeds\.0: Unrecognized key/],
  ]
  for (const [fields, words] of wrong) {
    const config = withFeeds({...csvFeed(), ...fields})
    expect(() => readRateFeeds(config)).toThrow(words)
    expect(() => readRateFeeds(config)).toThrow(/^Rate feeds in '.*rates\.json'/)
  }
  expect(() => readRateFeeds(withFeeds(csvFeed(), csvFeed()))).toThrow(/feeds: expected each name once/)
  const missing = {...lab.config, ratesFile: fileOf('none.json')}
  expect(() => readRateFeeds(missing)).toThrow(expect.objectContaining({code: 'RATES_FILE', exitCode: 2}))
})

test('the feeds that docs/rates.md shows can be read', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/rates.md'), 'utf8')
  const [, shown = ''] = /```json\n(.*?)```/s.exec(page) ?? []
  writeFileSync(fileOf('rates.json'), shown)
  const feeds = readRateFeeds({...lab.config, ratesFile: fileOf('rates.json')})
  expect(feeds.map(({name}) => name)).toEqual(['pricing', 'treasury-10y', 'sofr'])
})
