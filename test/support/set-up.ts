import {afterAll, afterEach, beforeAll, beforeEach, expect} from 'vitest'
import type {RunStep, WireRecord, World} from '../../src/core/types.ts'
import type {Database} from '../../src/store/database.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {rebuildHead} from '../../src/sync/stream-tables.ts'
import {anyRow, createFolder, type TestFolder} from './data.ts'
import type {Lab} from './lab.ts'
import {forgetAll, stream} from './walks.ts'

/** Sets up one lab for a file's tests and restores it before each: faster than setting it up again. */
export function useLab(setUp: () => Promise<Lab>): void {
  let lab: Lab
  let goBack: () => void
  beforeAll(async () => {
    lab = await setUp()
    goBack = lab.remember()
  })
  beforeEach(() => goBack())
  afterAll(() => lab[Symbol.asyncDispose]())
}

/** A world in which a run dies at a step, on its first or a later occurrence. */
export function dyingAt(step: RunStep, nth = 1): Pick<World, 'onStep'> {
  let times = 0
  return {
    onStep(reached) {
      times += reached === step ? 1 : 0
      if (times === nth) throw new Error('died')
    },
  }
}

/** Changes the records of every list under a path before the service answers with it. */
export function changeLists(
  {service}: Lab,
  path: string | RegExp,
  change: (records: Record<string, unknown>[]) => void,
): void {
  const changeBody = (body: WireRecord) => {
    change(body.data as Record<string, unknown>[])
    return body
  }
  service.faults.add({match: {path}, fault: {kind: 'mutate', change: changeBody}})
}

let linked = 0

/** Inserts a borrower of a deal; returns its id. */
export function linkBorrower(
  {service}: Lab,
  dealId: string,
  email = `person${linked + 1}@example.com`,
): string {
  linked += 1
  const [id, createdAt] = [`bor_${String(linked).padStart(6, '0')}`, 1_768_046_400_000 + linked]
  service.database.run(
    `insert into borrower (id, deal_id, first_name, last_name, email, has_ssn_last_four, created_at)
     values (?, ?, 'Adalbert', 'Querfeldein', ?, 1, ?)`,
    [id, dealId, email, createdAt],
  )
  return id
}

/** Opens an empty data folder for each test of a file. */
export function useFolder(use: (data: TestFolder) => void): void {
  let data: TestFolder
  beforeEach(() => {
    data = createFolder()
    use(data)
  })
  afterEach(() => data[Symbol.dispose]())
}

const UNTIED_WALKS = `
  from warehouse.raw.walk
  where state = 'applied' and (
    records <> created + updated + restored + unchanged + duplicates + quarantined
    or present_deals <> distinct_records + kept_quarantined_deals + kept_missing_deals + adjusted_deals
    or present_amount <> amount_total + kept_quarantined_amount + kept_missing_amount + adjusted_amount)`

/** The latest states, without what a walk notes that finds nothing new. */
const HEADS = 'select * exclude (detail_at, list_hash) from warehouse.raw.deal_head order by deal_id'

/**
 * Opens one warehouse for a file's tests and empties it before each: faster than making a new one. Whatever a test stores, its
 * walks tie out, and its latest states are those of its versions.
 */
export function useWarehouse(use: (db: Database) => void): void {
  let data: TestFolder
  let db: Database
  beforeAll(async () => {
    data = createFolder()
    db = await openWarehouse(data.folder)
    use(db)
  })
  beforeEach(() => forgetAll(db))
  afterEach(async () => {
    expect(await db.all(anyRow, UNTIED_WALKS)).toEqual([])
    const heads = await db.all(anyRow, HEADS)
    await rebuildHead(db, stream)
    expect(await db.all(anyRow, HEADS)).toEqual(heads)
  })
  afterAll(async () => {
    await db[Symbol.asyncDispose]()
    data[Symbol.dispose]()
  })
}
