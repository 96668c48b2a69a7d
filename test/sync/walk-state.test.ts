import {expect, test} from 'vitest'
import type {Database} from '../../src/store/database.ts'
import {storeWalk} from '../../src/sync/apply.ts'
import {certifyWalk} from '../../src/sync/settle.ts'
import {findPast, listReadIds} from '../../src/sync/walk.ts'
import {anyRow} from '../support/data.ts'
import {aRecord} from '../support/record.ts'
import {beginWalk, micros, pagesOf, readWalk, stageLines, stageWalk, stream, walk} from '../support/walks.ts'
import {useWarehouse} from './warehouse.ts'

const DAY_1 = '2026-02-02T23:30:00Z'
const DAY_2 = '2026-02-03T23:30:00Z'

const a = (fields = {}) => aRecord({id: 'a', ...fields})
const b = (fields = {}) => aRecord({id: 'b', ...fields})

let db: Database

useWarehouse((opened) => {
  db = opened
})

const countRows = () =>
  db.one(
    anyRow,
    `select
       (select count(*) from temp.staged_deal) as staged,
       (select count(*) from temp.staged_quarantine) as rejected,
       (select count(*) from warehouse.raw.quarantine) as quarantined`,
  )

/** The first two pages of a longer walk. */
async function stageTwoPages() {
  const begun = await beginWalk(db, {at: DAY_1})
  const pages = pagesOf({at: DAY_1, pages: [[a()], [b(), b({id: 'c', status: ''})]]}, 1, false)
  await stageLines(begun, pages)
  return begun
}

test('staged pages leave their records, bad records and next cursor on the stage, and nothing in the warehouse', async () => {
  const {walk: walked} = await stageTwoPages()
  expect(await countRows()).toEqual({staged: '2', rejected: '1', quarantined: '0'})
  expect(walked).toMatchObject({
    cursors: ['', 'c1'],
    nextCursor: 'c2',
    cursorReceivedAt: micros('2026-02-02T23:30:01Z'),
    isComplete: false,
    pages: 2,
    records: 3,
    quarantined: 1,
    unreadableIds: 0,
    waitedMs: 250,
    envelope: 'data | top level',
  })
  expect(await db.all(anyRow, 'from warehouse.raw.walk')).toEqual([])
})

test('a resumed walk counts all of its pages, and the ids of its bad records are read, too', async () => {
  const unit = await stageTwoPages()
  const {walk: walked} = unit
  expect((await Array.fromAsync(listReadIds(db, stream, walked))).sort()).toEqual(['a', 'b', 'c'])
  await stageLines(unit, pagesOf({at: DAY_1, pages: [[aRecord({id: 'd'})]]}, 3))
  expect(await certifyWalk(db, stream, walked)).toEqual({
    walkId: walked.walkId,
    businessDate: '2026-02-02',
    pages: 3,
    records: 4,
    distinct: 3,
    duplicates: 0,
    quarantined: 1,
    amountTotal: '1050000.00',
    resumed: 0,
  })
})

test('staging without an answer changes nothing', async () => {
  const begun = await beginWalk(db, {at: DAY_1})
  const before = structuredClone(begun.walk)
  await stageLines(begun, [])
  expect(begun.walk).toEqual(before)
  expect(await countRows()).toMatchObject({staged: '0', rejected: '0'})
})

test('if a record is seen twice, the later request or page position wins, and a list that moved is shifted', async () => {
  const {certificate, walk: walked} = await walk(db, {
    at: DAY_1,
    pages: [[a({loan_amount: 1}), b({loan_amount: 5})], [a({loan_amount: 2})]],
  })
  expect(certificate).toMatchObject({records: 3, distinct: 2, duplicates: 1, amountTotal: '7.00'})
  expect(await readWalk(db, walked.walkId)).toMatchObject({is_shifted: true, ended_how: 'complete'})
  const {certificate: once} = await stageWalk(db, {
    at: DAY_2,
    pages: [[a({loan_amount: 1}), a({loan_amount: 2})]],
  })
  expect(once).toMatchObject({distinct: 1, duplicates: 1, amountTotal: '2.00'})
})

test('an empty walk has an amount of zero and is not shifted', async () => {
  const {certificate, walk: walked} = await walk(db, {at: DAY_1, pages: [[]]})
  expect(certificate).toMatchObject({pages: 1, records: 0, distinct: 0, amountTotal: '0.00'})
  expect(await readWalk(db, walked.walkId)).toMatchObject({is_shifted: false, duplicates: '0'})
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

test('bad records are counted and located on the tape, and nothing they hold is kept', async () => {
  const bad = a({loan_amount: 'much'})
  const {walk: walked} = await walk(db, {
    at: DAY_1,
    pages: [
      [bad, bad],
      [bad, 'no record', a({id: 5})],
    ],
  })
  expect(await readWalk(db, walked.walkId)).toMatchObject({quarantined: '5', unreadable_ids: '2'})
  const rows = await db.all(
    anyRow,
    `select quarantine_id, record_id, path, source, place, business_date, replayed_at
     from warehouse.raw.quarantine order by place`,
  )
  expect(new Set(rows.map((row) => row.quarantine_id)).size).toBe(5)
  const kept = {source: 'list', business_date: '2026-02-02', replayed_at: null}
  expect(rows).toMatchObject([
    ...['1/0', '1/1', '2/0'].map((place) => ({...kept, place, record_id: 'a', path: 'loan_amount'})),
    ...['2/1', '2/2'].map((place) => ({...kept, place, record_id: null})),
  ])
})

test.each([
  ['an abandoned', 'abandoned', '0'],
  ['a refused', 'refused', '1'],
] as const)('%s walk leaves the stage and keeps this many bad records: %s', async (_, state, quarantined) => {
  const {walk: walked} = await stageTwoPages()
  await storeWalk(db, stream, walked, {state, how: 'cursor too old', tapeHead: 'a'})
  expect(await countRows()).toEqual({staged: '0', rejected: '0', quarantined})
  expect(await readWalk(db, walked.walkId)).toMatchObject({state, ended_how: 'cursor too old', records: '3'})
})

test('only applied walks make the past: a refused or abandoned one leaves nothing to respect', async () => {
  expect(await findPast(db, stream)).toBeUndefined()
  await walk(db, {at: DAY_1, pages: [[a(), b()]]})
  const {walk: refused} = await stageWalk(db, {at: DAY_2, pages: [[]]})
  await storeWalk(db, stream, refused, {state: 'refused', how: 'guard', tapeHead: 'a'})
  expect(await findPast(db, stream)).toEqual({
    businessDate: '2026-02-02',
    startedAt: micros(DAY_1),
  })
})
