import {afterAll, afterEach, beforeAll, beforeEach, describe, expect, test} from 'vitest'
import type {Database} from '../../src/store/database.ts'
import {readSourceBridge, resolveMoment} from '../../src/store/moment.ts'
import {openHistory, openWarehouse} from '../../src/store/warehouse.ts'
import {createFolder, type TestFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {aRecord} from '../support/record.ts'
import {stageWalk, type WalkSpec, walk} from '../support/walks.ts'

const DAY_1 = '2026-02-02T23:30:00Z'
const DAY_2 = '2026-02-03T23:30:00Z'
const TODAY = '2026-02-05'

const same = [[aRecord()]]
const changed = [[aRecord({status: 'funded'})]]

let data: TestFolder

beforeEach(() => {
  data = createFolder()
})

afterEach(() => data[Symbol.dispose]())

/** What `read` finds in the history of these walks. */
async function withHistory<T>(walks: readonly WalkSpec[], read: (db: Database) => Promise<T>): Promise<T> {
  {
    await using warehouse = await openWarehouse(data.folder)
    for (const spec of walks) await walk(warehouse, spec)
  }
  await using db = await openHistory(data.folder)
  return await read(db)
}

const momentOf = (walks: readonly WalkSpec[]) => withHistory(walks, (db) => resolveMoment(db, {}, TODAY))

test('by default a release is made for the last business date and the last apply that told something', async () => {
  const walks = [
    {at: DAY_1, pages: same},
    {at: DAY_2, pages: changed},
  ]
  expect(await momentOf(walks)).toEqual({asOf: '2026-02-03', knownAt: '2026-02-03 23:30:00.000000'})
})

test('an unchanged walk of a new business date tells something: that day was observed', async () => {
  const walks = [
    {at: DAY_1, pages: same},
    {at: DAY_2, pages: same},
  ]
  expect(await momentOf(walks)).toEqual({asOf: '2026-02-03', knownAt: '2026-02-03 23:30:00.000000'})
})

test('an unchanged walk of the same day tells nothing', async () => {
  const walks = [
    {at: DAY_1, pages: same},
    {at: '2026-02-02T23:45:00Z', pages: same},
  ]
  expect(await momentOf(walks)).toEqual({asOf: '2026-02-02', knownAt: '2026-02-02 23:30:00.000000'})
})

test('a changed walk of the same day tells something', async () => {
  const walks = [
    {at: DAY_1, pages: same},
    {at: '2026-02-02T23:45:00Z', pages: changed},
  ]
  expect(await momentOf(walks)).toMatchObject({knownAt: '2026-02-02 23:45:00.000000'})
})

test('an empty first walk is something to build from', async () => {
  expect(await momentOf([{at: DAY_1, pages: [[]]}])).toEqual({
    asOf: '2026-02-02',
    knownAt: '2026-02-02 23:30:00.000000',
  })
})

test('a history without an applied walk says what to do', async () => {
  const refusal = await failureOf(momentOf([]))
  expect(refusal).toMatchObject({code: 'HISTORY_MISSING'})
  expect(refusal.message).toContain('loantape sync')
})

test('a refused walk does not move the moment', async () => {
  {
    await using warehouse = await openWarehouse(data.folder)
    await walk(warehouse, {at: DAY_1, pages: same})
    await stageWalk(warehouse, {at: DAY_2, pages: changed})
  }
  await using db = await openHistory(data.folder)
  expect(await resolveMoment(db, {}, TODAY)).toMatchObject({asOf: '2026-02-02'})
})

describe('after one walk', () => {
  let once: TestFolder
  let db: Database

  beforeAll(async () => {
    once = createFolder()
    {
      await using warehouse = await openWarehouse(once.folder)
      await walk(warehouse, {at: DAY_1, pages: same})
    }
    db = await openHistory(once.folder)
  })

  afterAll(async () => {
    await db[Symbol.asyncDispose]()
    once[Symbol.dispose]()
  })

  test('what was asked for is kept', async () => {
    const asked = {asOf: '2026-02-02', knownAt: '2026-02-02 23:59:00'}
    expect(await resolveMoment(db, asked, TODAY)).toEqual(asked)
  })

  test.each(['2026-02-02', '2026-02-04', TODAY])(
    'a release can be made for %s, from the first walk to today',
    async (asOf) => {
      expect(await resolveMoment(db, {asOf}, TODAY)).toMatchObject({asOf})
    },
  )

  test.each(['2026-02-01', '2026-02-06'])('no release is made for %s, outside of that', async (asOf) => {
    const refusal = await failureOf(resolveMoment(db, {asOf}, TODAY))
    expect(refusal).toMatchObject({code: 'MOMENT_RANGE', exitCode: 2})
    expect(refusal.message).toContain(`Date '${asOf}': expected 2026-02-02 (the first walk) to 2026-02-05`)
  })

  test('a moment before anything was stored is refused', async () => {
    const moment = {asOf: '2026-02-02', knownAt: '2026-02-01 00:00:00'}
    const refusal = await failureOf(readSourceBridge(db, moment))
    expect(refusal).toMatchObject({code: 'MOMENT_RANGE', exitCode: 2})
  })
})

test('the bridge of a moment is that of the last walk which counts then', async () => {
  const walks = [
    {at: DAY_1, pages: same},
    {at: DAY_2, pages: [[aRecord(), aRecord({id: 'b'})]]},
  ]
  const bridges = await withHistory(walks, async (db) => [
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
