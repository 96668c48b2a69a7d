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

const breaches: [fault: Fault, page: number | undefined, code: string, words: RegExp][] = [
  [{kind: 'repeat_cursor'}, 2, 'SOURCE_CURSOR_LOOP', /met before.*new walk/],
  [
    {kind: 'envelope', shape: 'no_cursor'},
    undefined,
    'SOURCE_CURSOR_MISSING',
    /next_cursor.*source\.json.*docs\/sources\.md/,
  ],
]

test('a source that breaks the contract leaves everything as it was, and is named even if the state database takes no record', async () => {
  for (const [fault, page, code, words] of breaches) {
    spoilPages(fault, page)
    await expectNothingNew(sync(), code, 7, words)
    lab.service.faults.clear()
  }
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

test('moved paging fields are refused until accepted, and are the new normal from then on', async () => {
  spoilPages({kind: 'envelope', shape: 'pagination'})
  await expectNothingNew(sync(), 'SOURCE_ENVELOPE_CHANGED', 7, /pagination.*--accept envelope/)
  expect(readJson(await sync({}, '--accept', 'envelope'))).toMatchObject({outcome: 'released'})
  expect(readJson(await sync())).toMatchObject({outcome: 'unchanged'})
})

test('own pages that cannot be read are told with the reason', async () => {
  const match = {path: /^\/deals\/./, nth: 2}
  lab.service.faults.add({match, fault: {kind: 'status', status: 404}})
  const env = {LOANTAPE_NOW: DAY_2, LOANTAPE_DETAIL: 'on', LOANTAPE_LOG_LEVEL: 'warn'}
  const {stdout, stderr} = await lab.run(['sync'], env)
  expect(stdout).toContain(
    'Own pages: 1 read, 1 could not be read; the log and `loantape quarantine list` say why.',
  )
  const [told, ...more] = stderr.trim().split('\n')
  const reason = expect.stringContaining('of a deal that is listed')
  expect(JSON.parse(told ?? '')).toMatchObject({path: '/deals/{id}', reason})
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

test('a night that has nine times the deals, created at other times, is refused until both are accepted; one that tells more precisely when is not', async () => {
  const others = (deal: object) =>
    Array.from({length: 9}, (_, n) => ({...deal, created_at: '2025-01-05', ...(n > 0 && {id: randomUUID()})}))
  spoilPages(spoilDeals(others))
  const more = /540 deals where there were 60, more than 100 % more; an amount of 189000000\.00/
  await expectNothingNew(sync(), 'GUARD_GROWTH', 8, more)
  const changed = /Refused: 60 of 60 known deals change their created_at, more than 20 %/
  await expectNothingNew(sync({}, '--accept', 'growth'), 'GUARD_CHANGE', 8, changed)
  expect(readJson(await sync({}, '--accept', 'growth,change'))).toMatchObject({outcome: 'released'})
  lab.service.faults.clear()
  expect(readJson(await sync({}, '--accept', 'shrink'))).toMatchObject({changes: {updated: 60}})
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
