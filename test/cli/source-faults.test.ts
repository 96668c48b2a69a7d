import {expect, test} from 'vitest'
import {realClock} from '../../src/core/clock.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import type {Fault} from '../support/faults.ts'
import {type Ended, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {startSpoiltService} from '../support/spoilt-service.ts'
import {readFailure, readJson, readStanding} from './outcome.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'

const lab = await useLab({
  tables: '+core.deal +mart.portfolio_summary',
  deals: someDeals(60),
  releasedAt: DAY_1,
})
const before = await readStanding(lab.folder)

/** One test's own copy of the data folder, and faults only its runs meet: its page size tells them apart. */
interface Case {
  folder: DataFolder
  /** Syncs the second day. */
  sync(env?: Record<string, string>, ...options: string[]): Promise<Ended>
  /** Spoils the answers to pages. */
  spoilPages(fault: Fault, match?: {nth?: number | number[]}): void
  /** Expects a run to end so, say these words and what is kept, and leave the current release as it was. */
  expectRefused(run: Promise<Ended>, end: {code: unknown; exitCode: number}, words: RegExp): Promise<void>
}

let cases = 0

function openCase(): Case {
  cases += 1
  const pageSize = String(12 + cases)
  const folder = lab.copyFolder(`data-${pageSize}`)
  return {
    folder,
    sync: (env, ...options) =>
      lab.run(
        ['sync', '--json', ...options],
        {
          LOANTAPE_DATA_DIR: folder.root,
          LOANTAPE_NOW: DAY_2,
          LOANTAPE_PAGE_SIZE: pageSize,
          LOANTAPE_DETAIL: 'off',
          LOANTAPE_LOG_LEVEL: 'error',
          ...env,
        },
        {retries: 1},
      ),
    spoilPages: (fault, match) =>
      lab.service.faults.add({match: {path: `/deals?limit=${pageSize}`, ...match}, fault}),
    async expectRefused(run, end, words) {
      const failure = readFailure(await run)
      expect(failure).toMatchObject({...end, message: expect.stringMatching(words)})
      expect(failure.message).toMatch(/kept|as before|unchanged|changed|applied/)
      expect(await readStanding(folder)).toEqual(before)
    },
  }
}

const spoilDeals = (change: (deal: object, index: number) => object[]): Fault => ({
  kind: 'mutate',
  change: (page) => ({...page, data: (page.data as object[]).flatMap(change)}),
})

const broken: [behaviour: string, fault: Fault, page: number, code: string, words: RegExp][] = [
  ['a web page instead of JSON', {kind: 'html'}, 1, 'SOURCE_NOT_JSON', /text\/html.*LOANTAPE_BASE_URL/],
  [
    'a cursor that loops back',
    {kind: 'repeat_cursor'},
    2,
    'SOURCE_CURSOR_LOOP',
    /met before.*next run starts a new walk/,
  ],
  ['has_more that is text', {kind: 'envelope', shape: 'string_has_more'}, 1, 'SOURCE_', /has_more.*/],
  ['a next page without its cursor', {kind: 'envelope', shape: 'no_cursor'}, 1, 'SOURCE_', /next_cursor/],
]

for (const [behaviour, fault, page, code, words] of broken) {
  test.concurrent(`${behaviour} breaks the contract and leaves everything as it was`, async () => {
    const {sync, spoilPages, expectRefused} = openCase()
    spoilPages(fault, page === 1 ? {} : {nth: page})
    await expectRefused(sync(), {code: expect.stringMatching(`^${code}`), exitCode: 7}, words)
  })
}

test.concurrent('moved paging fields are refused until accepted, and are the new normal from then on', async () => {
  const {sync, spoilPages, expectRefused} = openCase()
  spoilPages({kind: 'envelope', shape: 'pagination'})
  await expectRefused(sync(), {code: expect.anything(), exitCode: 7}, /pagination.*--accept envelope/)
  expect(readJson(await sync({}, '--accept', 'envelope'))).toMatchObject({outcome: 'released'})
  expect(readJson(await sync())).toMatchObject({outcome: 'unchanged'})
})

test.concurrent('too many unreadable records are refused, naming the field', async () => {
  const {sync, spoilPages, expectRefused} = openCase()
  spoilPages(spoilDeals((deal) => [{...deal, loan_amount: 'about a million'}]))
  const words = /60 of 60 records.*loan_amount \(60.*Nothing was applied.*then run again/
  await expectRefused(sync(), {code: 'SOURCE_QUARANTINE', exitCode: 7}, words)
})

test.concurrent('a walk that lost more deals than a day can explain is refused until accepted', async () => {
  const {sync, spoilPages, expectRefused} = openCase()
  spoilPages({kind: 'mutate', change: (page) => ({...page, data: (page.data as object[]).slice(2)})})
  const words = /\d+ of 60 known deals are absent.*Nothing was applied.*--accept shrink/
  await expectRefused(sync(), {code: 'GUARD_SHRINK', exitCode: 8}, words)
  const accept = ['--accept', 'growth,shrink', '--accept', 'change']
  expect(readJson(await sync({}, ...accept))).toMatchObject({outcome: 'released'})
})

test.concurrent('texts no workbook or database accepts are quarantined, and the night is exported without them', async () => {
  const {folder, sync, spoilPages} = openCase()
  const bad = ['secret\0', 'secret'.padEnd(8193, 'x')]
  let told = 0
  spoilPages(spoilDeals((deal) => [{...deal, ...(told < bad.length && {property_address: bad[told++]})}]))
  expect(readJson(await sync())).toMatchObject({outcome: 'released', walk: {quarantined: 2}})
  const env = {LOANTAPE_DATA_DIR: folder.root}
  const listed = await lab.run(['quarantine', 'list'], env)
  expect(listed.stdout).toMatch(/property_address.*expected text without NUL/)
  expect(listed.stdout).toMatch(/property_address.*expected at most 8192 characters/)
  expect(listed.stdout).not.toContain('secret')
  expect(await lab.run(['export', 'xlsx'], env)).toMatchObject({code: 0})
})

test.concurrent('a clock behind the last walk is refused', async () => {
  const {sync, expectRefused} = openCase()
  await expectRefused(
    sync({LOANTAPE_NOW: '2026-02-01T23:30:00-05:00'}),
    {code: 'CLOCK_BACKWARDS', exitCode: 2},
    /in LOANTAPE_NOW: earlier than the last walk.*Nothing was changed\. Correct the clock/,
  )
})

test.concurrent('a first run against a mistyped address does not bind the folder to it', async () => {
  const {folder, sync} = openCase()
  const fresh = {LOANTAPE_DATA_DIR: `${folder.root}-fresh`}
  const mistyped = {...fresh, LOANTAPE_BASE_URL: lab.service.url.replace('/v1', '/v2')}
  const failure = readFailure(await sync(mistyped))
  expect(failure).toMatchObject({code: 'SOURCE_NOT_FOUND', exitCode: 7})
  expect(failure.message).toMatch(/GET \/deals.*Check LOANTAPE_BASE_URL, its path prefix included/)
  expect(readJson(await sync(fresh))).toMatchObject({outcome: 'released', changes: {created: 60}})
})

test.concurrent('another base URL is refused for this folder until accepted', async () => {
  const {sync, expectRefused} = openCase()
  const start = () => startSpoiltService({apiKeys: [lab.env.LOANTAPE_API_KEY ?? ''], clock: realClock})
  await using moved = await start()
  moved.store.insert(someDeals(60))
  await using foreign = await start()
  foreign.store.insert(someDeals(70).slice(60))
  const there = {LOANTAPE_BASE_URL: moved.url}
  const pinned = {code: 'SOURCE_PINNED', exitCode: 2}
  const words = `${moved.url}.*${lab.service.url}.*Nothing was changed\\. Use another folder.*--accept source`
  await expectRefused(sync(there), pinned, new RegExp(words))
  expect(moved.requests.count).toBe(0)

  const other = {LOANTAPE_BASE_URL: foreign.url}
  const doubt = readFailure(await sync(other, '--accept', 'source'))
  expect(doubt).toMatchObject({code: 'GUARD_SHRINK', exitCode: 8})
  expect(doubt.message).not.toContain('--accept')
  expect(readFailure(await sync(other))).toMatchObject(pinned)
  expect(readJson(await sync(there, '--accept', 'source'))).toMatchObject({changes: {unchanged: 60}})
})
