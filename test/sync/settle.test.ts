import {expect, test} from 'vitest'
import {z} from 'zod'
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
