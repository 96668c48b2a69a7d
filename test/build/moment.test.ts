import {expect, test} from 'vitest'
import type {Database} from '../../src/store/database.ts'
import {readSourceBridge, resolveMoment} from '../../src/store/moment.ts'
import {openHistory, openWarehouse} from '../../src/store/warehouse.ts'
import {failureOf} from '../support/lab.ts'
import {aRecord} from '../support/record.ts'
import {useFolder} from '../support/set-up.ts'
import {stageWalk, type WalkSpec, walk} from '../support/walks.ts'

const DAY_1 = '2026-02-02T23:30:00Z'
const LATER = '2026-02-02T23:45:00Z'
const DAY_2 = '2026-02-03T23:30:00Z'
const DAY_3 = '2026-02-04T23:30:00Z'
const TODAY = '2026-02-05'

const same = [[aRecord()]]
const changed = [[aRecord({status: 'funded'})]]

const data = useFolder()

async function add(spec: WalkSpec, how: 'applied' | 'refused' = 'applied'): Promise<void> {
  await using warehouse = await openWarehouse(data.folder)
  await (how === 'applied' ? walk(warehouse, spec) : stageWalk(warehouse, spec))
}

async function inHistory<T>(read: (db: Database) => Promise<T>): Promise<T> {
  await using db = await openHistory(data.folder)
  const found = await read(db)
  return found
}

const resolve = () => inHistory((db) => resolveMoment(db, {}, TODAY))

test('by default a release is made for the last business date and the last walk that brought something new', async () => {
  const told = {asOf: '2026-02-02', knownAt: '2026-02-02 23:30:00.000000'}
  await add({at: DAY_1, pages: same})
  expect(await resolve()).toEqual(told)
  // An unchanged walk on the same day brings nothing new.
  await add({at: LATER, pages: same})
  expect(await resolve()).toEqual(told)
  await add({at: '2026-02-02T23:50:00Z', pages: changed})
  expect(await resolve()).toEqual({...told, knownAt: '2026-02-02 23:50:00.000000'})
  // A walk of another day does.
  await add({at: DAY_2, pages: changed})
  const second = {asOf: '2026-02-03', knownAt: '2026-02-03 23:30:00.000000'}
  expect(await resolve()).toEqual(second)
  await add({at: DAY_3, pages: same}, 'refused')
  expect(await resolve()).toEqual(second)
})

test('a requested moment is used as given if its date lies between the first walk and today', async () => {
  await add({at: DAY_1, pages: same})
  await inHistory(async (db) => {
    const asked = {asOf: '2026-02-02', knownAt: '2026-02-02 23:59:00'}
    expect(await resolveMoment(db, asked, TODAY)).toEqual(asked)
    for (const asOf of ['2026-02-02', '2026-02-04', TODAY])
      expect(await resolveMoment(db, {asOf}, TODAY)).toMatchObject({asOf})
    for (const asOf of ['2026-02-01', '2026-02-06']) {
      const refusal = await failureOf(resolveMoment(db, {asOf}, TODAY))
      expect(refusal).toMatchObject({code: 'MOMENT_RANGE', exitCode: 2})
      expect(refusal.message).toContain(`Date '${asOf}': expected 2026-02-02 (the first walk) to 2026-02-05`)
    }
    // Nothing was stored by then.
    const moment = {asOf: '2026-02-02', knownAt: '2026-02-01 00:00:00'}
    const refusal = await failureOf(readSourceBridge(db, moment))
    expect(refusal).toMatchObject({code: 'MOMENT_RANGE', exitCode: 2})
  })
})

test('the bridge of a moment is that of the last walk that counts then', async () => {
  await add({at: DAY_1, pages: same})
  await add({at: DAY_2, pages: [[aRecord(), aRecord({id: 'b'})]]})
  const bridges = await inHistory(async (db) => [
    await readSourceBridge(db, {asOf: '2026-02-03', knownAt: '2026-02-03 23:30:00'}),
    await readSourceBridge(db, {asOf: '2026-02-02', knownAt: '2026-02-03 23:30:00'}),
    await readSourceBridge(db, {asOf: '2026-02-03', knownAt: '2026-02-03 23:29:59'}),
  ])
  expect(bridges.map(({business_date, present}) => [business_date, present])).toEqual([
    ['2026-02-03', {deals: 2, amount: '700000.00'}],
    ['2026-02-02', {deals: 1, amount: '350000.00'}],
    ['2026-02-02', {deals: 1, amount: '350000.00'}],
  ])
})
