import {cpSync} from 'node:fs'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {dataFolderAt} from '../../src/store/data-folder.ts'
import type {Database} from '../../src/store/database.ts'
import {readHistoryId} from '../../src/store/moment.ts'
import {openHistory, openWarehouse} from '../../src/store/warehouse.ts'
import {appendRates, stageRates} from '../../src/sync/rate-feed.ts'
import {settle} from '../../src/sync/settle.ts'
import {anyRow, type TestFolder} from '../support/data.ts'
import {aRecord} from '../support/record.ts'
import {useFolder} from '../support/set-up.ts'
import {micros, walk} from '../support/walks.ts'

let data: TestFolder

useFolder((made) => {
  data = made
})

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

test('everything stored for good has a settle row, the last of which names a release; what stores nothing has none', async () => {
  {
    await using db = await openWarehouse(data.folder)
    await walkAmount(db, '2026-02-02', 100)
    expect(await readRates(db, '2026-02-02')).toEqual({read: 1, appended: 1})
    expect(await readRates(db, '2026-02-03')).toEqual({read: 1, appended: 0})
    await walkAmount(db, '2026-02-03', 100)
    const settles = await readSettles(db)
    expect(settles.map(({kind}) => kind)).toEqual(['walk', 'rates', 'walk'])
  }
  await using db = await openHistory(data.folder)
  const ids = await db.column(z.string(), 'select history_id from history.raw.settle order by seq')
  expect(new Set(ids).size).toBe(3)
  expect(await readHistoryId(db, '2026-02-02 23:39:59')).toMatchObject({historyId: ids[0]})
  expect(await readHistoryId(db, '2026-02-03 23:29:59')).toMatchObject({historyId: ids[1]})
  expect(await readHistoryId(db, '2026-02-03 23:30:00')).toMatchObject({historyId: ids[2]})
})

test('two histories that saw different things at one instant have different ids from there on', async () => {
  const copy = dataFolderAt(`${data.folder.root}/copy`)
  {
    await using db = await openWarehouse(data.folder)
    await walkAmount(db, '2026-02-02', 100)
  }
  cpSync(data.folder.warehouse, copy.warehouse)
  const ends = []
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
