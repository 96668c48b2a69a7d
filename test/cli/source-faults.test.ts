import {randomUUID} from 'node:crypto'
import {writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {realClock} from '../../src/core/clock.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import type {Fault} from '../support/faults.ts'
import {DAY_1, DAY_2, type Ended, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {startSpoiltService} from '../support/spoilt-service.ts'
import {expectRefused, readJson, readStanding} from './outcome.ts'

const lab = await useLab({
  tables: '+core.deal +mart.portfolio_summary',
  deals: someDeals(60),
  releasedAt: DAY_1,
})
const before = await readStanding(lab.folder)
beforeEach(lab.remember())

/** Syncs the second day. */
const sync = (env: Record<string, string> = {}, ...options: string[]): Promise<Ended> =>
  lab.run(
    ['sync', '--json', ...options],
    {
      LOANTAPE_NOW: DAY_2,
      LOANTAPE_PAGE_SIZE: '20',
      LOANTAPE_DETAIL: 'off',
      LOANTAPE_LOG_LEVEL: 'error',
      ...env,
    },
    {retries: 1},
  )

/** Spoils the answers to pages. */
const spoilPages = (fault: Fault, nth?: number) =>
  lab.service.faults.add({match: {path: '/deals?', ...(nth !== undefined && {nth})}, fault})

/** Expects a run to end with this error, to say these words and what is kept, and to leave the current release as it was. */
async function expectNothingNew(run: Promise<Ended>, code: string, exitCode: number, words: RegExp) {
  const kept = /kept|as before|unchanged|changed|applied/
  await expectRefused(run, code, [words, kept], exitCode)
  expect(await readStanding(lab.folder)).toEqual(before)
}

const spoilDeals = (change: (deal: object, index: number) => object[]): Fault => ({
  kind: 'mutate',
  change: (page) => ({...page, data: (page.data as object[]).flatMap(change)}),
})

test.each<[behaviour: string, fault: Fault, page: number | undefined, code: string, words: RegExp]>([
  ['a cursor that loops back', {kind: 'repeat_cursor'}, 2, 'SOURCE_CURSOR_LOOP', /met before.*new walk/],
  [
    'text as has_more',
    {kind: 'envelope', shape: 'string_has_more'},
    undefined,
    'SOURCE_ENVELOPE',
    /has_more/,
  ],
  [
    'a next page without its cursor',
    {kind: 'envelope', shape: 'no_cursor'},
    undefined,
    'SOURCE_CURSOR_MISSING',
    /next_cursor.*source\.json.*docs\/sources\.md/,
  ],
])('%s breaks the contract and leaves everything as it was', async (_, fault, page, code, words) => {
  spoilPages(fault, page)
  await expectNothingNew(sync(), code, 7, words)
})

test('an error is told even if the state database takes no record of it', async () => {
  const change = (page: object) => {
    using stateDb = openStateDb(lab.folder.stateDb)
    stateDb.db.exec(
      `create trigger full before update of ended_at on run begin select raise(abort, 'database or disk is full'); end`,
    )
    return {...page, has_more: 'yes'}
  }
  spoilPages({kind: 'mutate', change}, 1)
  await expectNothingNew(sync(), 'SOURCE_ENVELOPE', 7, /has_more/)
})

test('a web page instead of JSON is an outage, from which the next run continues', async () => {
  spoilPages({kind: 'html'})
  const words = /text\/html.*The next run continues from there.*LOANTAPE_BASE_URL/
  await expectNothingNew(sync(), 'SOURCE_NOT_JSON', 6, words)
})

test('moved paging fields are refused until accepted, and are the new normal from then on', async () => {
  spoilPages({kind: 'envelope', shape: 'pagination'})
  await expectNothingNew(sync(), 'SOURCE_ENVELOPE_CHANGED', 7, /pagination.*--accept envelope/)
  expect(readJson(await sync({}, '--accept', 'envelope'))).toMatchObject({outcome: 'released'})
  expect(readJson(await sync())).toMatchObject({outcome: 'unchanged'})
})

test.each<[what: string, fault: Fault, why: string, nth?: number]>([
  ['a status', {kind: 'status', status: 422}, 'status 422'],
  ['no record under data', {kind: 'mutate', change: (body) => body.data}, "no record in its 'data'"],
  ['404', {kind: 'status', status: 404}, 'only 404 or 410'],
  ['404, though the list has that deal,', {kind: 'status', status: 404}, 'of a deal that is listed', 2],
])('own pages that answer with %s are told with the reason', async (_what, fault, why, nth) => {
  lab.service.faults.add({match: {path: /^\/deals\/./, ...(nth && {nth})}, fault})
  const env = {LOANTAPE_NOW: DAY_2, LOANTAPE_DETAIL: 'on', LOANTAPE_LOG_LEVEL: 'warn'}
  const {stdout, stderr} = await lab.run(['sync'], env)
  const read = nth ? '1 read, 1' : '0 read, 2'
  expect(stdout).toContain(
    `Own pages: ${read} could not be read; the log and \`loantape quarantine list\` say why.`,
  )
  const [told, ...more] = stderr.trim().split('\n')
  expect(JSON.parse(told ?? '')).toMatchObject({path: '/deals/{id}', reason: expect.stringContaining(why)})
  expect(more).toEqual([])
})

test('too many unreadable records are refused, naming each field and reason', async () => {
  spoilPages(
    spoilDeals((deal) => [
      {...deal, loan_amount: Object(deal).id === 'deal_000007' ? -1 : 'about a million'},
    ]),
  )
  const words =
    /60 of 60 records.*loan_amount \(59: expected a decimal number.*loan_amount \(1: .*not negative.*Nothing was applied.*then run again/
  await expectNothingNew(sync(), 'SOURCE_QUARANTINE', 7, words)
})

test('a walk that lost more deals than a day can explain is refused until accepted', async () => {
  spoilPages({kind: 'mutate', change: (page) => ({...page, data: (page.data as object[]).slice(2)})})
  const words = /\d+ of 60 known deals are absent.*Nothing was applied.*--accept shrink/
  await expectNothingNew(sync(), 'GUARD_SHRINK', 8, words)
  const accept = ['--accept', 'growth,shrink', '--accept', 'change']
  expect(readJson(await sync({}, ...accept))).toMatchObject({outcome: 'released'})
})

test('a night that tells otherwise when deals were created is refused until accepted, one that tells it more precisely is not', async () => {
  spoilPages(spoilDeals((deal) => [{...deal, created_at: '2025-01-05'}]))
  const words = /Refused: 60 of 60 known deals change their created_at, more than 20 %/
  await expectNothingNew(sync(), 'GUARD_CHANGE', 8, words)
  expect(readJson(await sync({}, '--accept', 'change'))).toMatchObject({outcome: 'released'})
  lab.service.faults.clear()
  expect(readJson(await sync())).toMatchObject({outcome: 'released', changes: {updated: 60}})
})

test('a night on which every deal appears nine times, under other ids, is refused until accepted', async () => {
  const others = (deal: object) =>
    Array.from({length: 9}, (_, n) => ({...deal, ...(n > 0 && {id: randomUUID()})}))
  spoilPages(spoilDeals(others))
  const words = /540 deals where there were 60, more than 100 % more; an amount of 189000000\.00/
  await expectNothingNew(sync(), 'GUARD_GROWTH', 8, words)
  expect(readJson(await sync({}, '--accept', 'growth'))).toMatchObject({outcome: 'released'})
})

test('texts no workbook or database accepts are quarantined, and the night is exported without them', async () => {
  const bad = ['secret\0', 'secret'.padEnd(8193, 'x')]
  let told = 0
  spoilPages(spoilDeals((deal) => [{...deal, ...(told < bad.length && {property_address: bad[told++]})}]))
  expect(readJson(await sync())).toMatchObject({outcome: 'released', walk: {quarantined: 2}})
  const listed = await lab.run(['quarantine', 'list'])
  expect(listed.stdout).toMatch(/property_address.*expected text without NUL/)
  expect(listed.stdout).toMatch(/property_address.*expected at most 8192 characters/)
  expect(listed.stdout).not.toContain('secret')
  expect(await lab.run(['export', 'xlsx'])).toMatchObject({code: 0})
})

test('a first run against a mistyped address does not bind the folder to it', async () => {
  const fresh = {LOANTAPE_DATA_DIR: `${lab.folder.root}-fresh`}
  const mistyped = {...fresh, LOANTAPE_BASE_URL: lab.service.url.replace('/v1', '/v2')}
  const words = /GET \/deals.*Check LOANTAPE_BASE_URL, its path prefix included/
  await expectRefused(sync(mistyped), 'SOURCE_NOT_FOUND', words, 7)
  expect(readJson(await sync(fresh))).toMatchObject({outcome: 'released', changes: {created: 60}})
})

test('another base URL is refused for this folder until accepted', async () => {
  const start = () => startSpoiltService({apiKeys: [lab.env.LOANTAPE_API_KEY ?? ''], clock: realClock})
  await using moved = await start()
  moved.store.insert(someDeals(60))
  await using foreign = await start()
  foreign.store.insert(someDeals(70).slice(60))
  const there = {LOANTAPE_BASE_URL: moved.url}
  const words = `${moved.url}.*${lab.service.url}.*Nothing was changed\\. Use another folder.*--accept source`
  await expectNothingNew(sync(there), 'SOURCE_PINNED', 2, new RegExp(words))
  const file = join(lab.folder.root, 'deals.csv')
  writeFileSync(file, 'external_reference,property_address,loan_amount\nx,1 Elm St,1\n')
  await expectRefused(lab.run(['push', 'deals', file, '--json'], there), 'SOURCE_PINNED')
  expect(moved.requests.count).toBe(0)

  const other = {LOANTAPE_BASE_URL: foreign.url}
  const doubt = await expectRefused(sync(other, '--accept', 'source'), 'GUARD_SHRINK', [], 8)
  expect(doubt.message).not.toContain('--accept')
  await expectRefused(sync(other), 'SOURCE_PINNED')
  expect(readJson(await sync(there, '--accept', 'source'))).toMatchObject({changes: {unchanged: 60}})
})
