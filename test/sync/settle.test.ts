import {cpSync} from 'node:fs'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import type {Database} from '../../src/store/database.ts'
import {readHistoryId} from '../../src/store/moment.ts'
import {openHistory, openWarehouse} from '../../src/store/warehouse.ts'
import {appendRates, stageRates} from '../../src/sync/rate-feed.ts'
import {settle} from '../../src/sync/settle.ts'
import {anyRow, createFolder, type TestFolder} from '../support/data.ts'
import {aRecord} from '../support/record.ts'
import {micros, walk} from '../support/walks.ts'

let data: TestFolder

beforeEach(() => {
  data = createFolder()
})

afterEach(() => data[Symbol.dispose]())

const readSettles = (db: Database) =>
  db.all(anyRow, 'select seq, kind, recorded_at, history_id from warehouse.raw.settle order by seq')

const walkAmount = (db: Database, day: string, amount: number) =>
  walk(db, {at: `${day}T23:30:00Z`, pages: [[aRecord({loan_amount: amount})]]})

async function readRates(db: Database, day: string): Promise<{read: number; appended: number}> {
  const at = micros(`${day}T23:40:00Z`)
  await stageRates(db, [{rate: 'SOFR', rateDate: '2026-02-02', instant: 0n, units: 430_000_000n}])
  const reading = {feed: 'ny-fed', observedAt: at, businessDate: day}
  let counted = {read: 0, appended: 0}
  await settle(db, {kind: 'rates', walkId: null, now: at}, async (recorded) => {
    counted = await appendRates(db, reading, recorded)
    return ''
  })
  return counted
}

test('everything stored for good has a settle row; a run that stores nothing has none', async () => {
  await using db = await openWarehouse(data.folder)
  await walkAmount(db, '2026-02-02', 100)
  expect(await readRates(db, '2026-02-02')).toEqual({read: 1, appended: 1})
  expect(await readRates(db, '2026-02-03')).toEqual({read: 1, appended: 0})
  await walkAmount(db, '2026-02-03', 100)
  const settles = await readSettles(db)
  expect(settles.map(({kind}) => kind)).toEqual(['walk', 'rates', 'walk'])
  expect(new Set(settles.map(({history_id}) => history_id)).size).toBe(3)
})

test('a release is named by the last settle it knows of', async () => {
  {
    await using db = await openWarehouse(data.folder)
    await walkAmount(db, '2026-02-02', 100)
    await walkAmount(db, '2026-02-03', 100)
  }
  await using db = await openHistory(data.folder)
  const ids = await db.all(anyRow, 'select history_id from history.raw.settle order by seq')
  expect(await readHistoryId(db, '2026-02-03 23:29:59')).toMatchObject({historyId: ids[0]?.history_id})
  expect(await readHistoryId(db, '2026-02-03 23:30:00')).toMatchObject({historyId: ids[1]?.history_id})
})

test('two histories that saw different things at one instant have different ids from there on', async () => {
  const copy = dataFolderAt(`${data.folder.root}/copy`)
  {
    await using db = await openWarehouse(data.folder)
    await walkAmount(db, '2026-02-02', 100)
  }
  cpSync(data.folder.warehouse, copy.warehouse)
  const ends: Record<string, unknown>[][] = []
  for (const [folder, amount] of [
    [data.folder, 110],
    [copy, 120],
  ] as const) {
    await using db = await openWarehouse(folder)
    await walkAmount(db, '2026-02-03', amount)
    ends.push(await readSettles(db))
  }
  const [one, other] = ends
  expect(one?.[0]).toEqual(other?.[0])
  expect(one?.[1]).toMatchObject({recorded_at: other?.[1]?.recorded_at})
  expect(one?.[1]?.history_id).not.toBe(other?.[1]?.history_id)
})
