import {afterEach, beforeEach, expect, test} from 'vitest'
import {certifyWalk} from '../../src/load/certify.ts'
import {
  dropWalk,
  findOpenWalk,
  findPast,
  readCursors,
  resumeWalk,
  storePages,
} from '../../src/load/walk-state.ts'
import type {Database} from '../../src/warehouse/database.ts'
import {openWarehouse} from '../../src/warehouse/warehouse.ts'
import {anyRow, createFolder, type TestFolder} from '../support/data.ts'
import {aRecord} from '../support/record.ts'
import {
  beginWalk,
  groupPages,
  micros,
  pagesOf,
  readWalk,
  stageWalk,
  stream,
  walk,
  workInParts,
} from '../support/walks.ts'

const DAY_1 = '2026-02-02T23:30:00Z'
const DAY_2 = '2026-02-03T23:30:00Z'

const a = (fields = {}) => aRecord({id: 'a', ...fields})
const b = (fields = {}) => aRecord({id: 'b', ...fields})

let data: TestFolder
let db: Database

beforeEach(async () => {
  data = createFolder()
  db = await openWarehouse(data.folder)
  await workInParts(db, 2)
})

afterEach(async () => {
  await db[Symbol.asyncDispose]()
  data[Symbol.dispose]()
})

const countStored = () =>
  db.one(
    anyRow,
    `select
       (select count(*) from warehouse.raw.staged_deal) as staged,
       (select count(*) from warehouse.raw.page) as pages,
       (select count(*) from warehouse.raw.quarantine) as quarantined`,
  )

/** The first two pages of a longer walk. */
async function storeTwoPages() {
  const begun = await beginWalk(db, {at: DAY_1})
  const pages = pagesOf({at: DAY_1, pages: [[a()], [b(), b({id: 'c', status: ''})]]}, 1, false)
  return storePages(db, begun, groupPages(begun, pages), 250)
}

test('stored pages leave their records, their bad records and the next cursor', async () => {
  const walked = await storeTwoPages()
  expect(await countStored()).toEqual({staged: '2', pages: '2', quarantined: '1'})
  expect(await readWalk(db, walked.walkId)).toMatchObject({
    state: 'walking',
    next_cursor: 'c2',
    cursor_received_at: '2026-02-02 23:30:01',
    is_complete: false,
    pages: '2',
    records: '3',
    quarantined: '1',
    unreadable_ids: '0',
    waited_ms: '250',
    envelope: 'top level',
  })
})

test('an interrupted walk is found as it was stored', async () => {
  const walked = await storeTwoPages()
  expect(await findOpenWalk(db, stream)).toEqual(walked)
})

test('a resumed walk goes on from its last page and counts all of them', async () => {
  const stored = await storeTwoPages()
  const resumed = await resumeWalk(db, stored)
  const rest = pagesOf({at: DAY_1, pages: [[aRecord({id: 'd'})]]}, 3)
  const ended = await storePages(db, resumed, groupPages(resumed, rest), 0)
  expect(await certifyWalk(db, stream, ended)).toEqual({
    walkId: stored.walkId,
    businessDate: '2026-02-02',
    pages: 3,
    records: 4,
    distinct: 3,
    duplicates: 0,
    quarantined: 1,
    amountTotal: '1050000.00',
    resumed: 1,
  })
})

test('the cursors of a walk are those it used and the one it goes on with', async () => {
  expect(await readCursors(db, await storeTwoPages())).toEqual(['c1', 'c2'])
})

test('pages that cannot be stored leave neither records nor a moved cursor', async () => {
  const before = await storeTwoPages()
  const [good, bad] = pagesOf({at: DAY_1, pages: [[aRecord({id: 'd'})], [aRecord({id: 'e'})]]}, 3)
  const tooLarge = bad!.normalised.observations.map((observation) => ({
    ...observation,
    values: observation.values.map((value) => (typeof value === 'bigint' ? 10n ** 30n : value)),
  }))
  const group = groupPages(before, [good!, {...bad!, normalised: {observations: tooLarge, quarantined: []}}])
  await expect(storePages(db, before, group, 0)).rejects.toThrow()
  expect(await countStored()).toEqual({staged: '2', pages: '2', quarantined: '1'})
  expect(await findOpenWalk(db, stream)).toEqual(before)
})

test('a group without pages stores nothing', async () => {
  const begun = await beginWalk(db, {at: DAY_1})
  expect(await storePages(db, begun, groupPages(begun, []), 10)).toBe(begun)
})

test('the later request wins when a record is seen twice, and the walk counts as shifted', async () => {
  const {certificate, walk: walked} = await stageWalk(db, {
    at: DAY_1,
    pages: [[a({loan_amount: 1}), b({loan_amount: 5})], [a({loan_amount: 2})]],
  })
  expect(certificate).toMatchObject({records: 3, distinct: 2, duplicates: 1, amountTotal: '7.00'})
  expect(await readWalk(db, walked.walkId)).toMatchObject({is_shifted: true, ended_how: 'complete'})
})

test('a record twice on one page counts as its later place says', async () => {
  const {certificate} = await stageWalk(db, {at: DAY_1, pages: [[a({loan_amount: 1}), a({loan_amount: 2})]]})
  expect(certificate).toMatchObject({distinct: 1, duplicates: 1, amountTotal: '2.00'})
})

test('an undisturbed walk is not shifted', async () => {
  const {walk: walked} = await stageWalk(db, {at: DAY_1, pages: [[a()], [b()]]})
  expect(await readWalk(db, walked.walkId)).toMatchObject({is_shifted: false, duplicates: '0'})
})

test('the certificate of an empty walk has an amount of zero', async () => {
  const {certificate} = await stageWalk(db, {at: DAY_1, pages: [[]]})
  expect(certificate).toMatchObject({pages: 1, records: 0, distinct: 0, amountTotal: '0.00'})
})

test('the digest of the cursor chain depends on the cursors', async () => {
  const digestOf = async (pages: unknown[][]) =>
    (await readWalk(db, (await walk(db, {at: DAY_1, pages})).walk.walkId)).cursor_digest
  const [one, again, longer] = [
    await digestOf([[a()]]),
    await digestOf([[b()]]),
    await digestOf([[a()], [b()]]),
  ]
  expect(one).toMatch(/^[0-9a-f]{64}$/)
  expect(again).toBe(one)
  expect(longer).not.toBe(one)
})

test('a record whose id cannot be read is counted in the certificate', async () => {
  const {walk: walked} = await stageWalk(db, {at: DAY_1, pages: [[a(), 'no record', a({id: 5})]]})
  expect(await readWalk(db, walked.walkId)).toMatchObject({quarantined: '2', unreadable_ids: '2'})
})

test('bad records are kept whole and each has an id of its own', async () => {
  const bad = a({loan_amount: 'much'})
  await stageWalk(db, {at: DAY_1, pages: [[bad, bad], [bad]]})
  const rows = await db.all(
    anyRow,
    'select quarantine_id, record_id, path, source, record, business_date, replayed_at from warehouse.raw.quarantine',
  )
  expect(rows).toHaveLength(3)
  expect(new Set(rows.map((row) => row.quarantine_id)).size).toBe(3)
  for (const row of rows) {
    expect(row).toMatchObject({
      record_id: 'a',
      path: 'loan_amount',
      source: 'list',
      business_date: '2026-02-02',
      replayed_at: null,
    })
    expect(JSON.parse(String(row.record))).toEqual(bad)
  }
})

test('an abandoned walk drops what it staged and its bad records', async () => {
  const {walkId} = await storeTwoPages()
  await dropWalk(db, stream, walkId, {state: 'abandoned', how: 'cursor too old'})
  expect(await countStored()).toEqual({staged: '0', pages: '0', quarantined: '0'})
  expect(await findOpenWalk(db, stream)).toBeUndefined()
  expect(await readWalk(db, walkId)).toMatchObject({
    state: 'abandoned',
    ended_how: 'cursor too old',
    records: '3',
  })
})

test('a refused walk keeps its bad records as evidence', async () => {
  const {walkId} = await storeTwoPages()
  await dropWalk(db, stream, walkId, {state: 'refused', how: 'too many quarantined'})
  expect(await countStored()).toEqual({staged: '0', pages: '0', quarantined: '1'})
})

test('the past is that of walks that were applied: one that was refused or abandoned leaves nothing to respect', async () => {
  expect(await findPast(db, stream)).toBeUndefined()
  await walk(db, {at: DAY_1, pages: [[a(), b()]]})
  const {walk: refused} = await stageWalk(db, {at: DAY_2, pages: [[]]})
  await dropWalk(db, stream, refused.walkId, {state: 'refused', how: 'guard'})
  expect(await findPast(db, stream)).toEqual({
    businessDate: '2026-02-02',
    startedAt: micros(DAY_1),
    records: 2,
  })
})
