import {mkdirSync, rmSync} from 'node:fs'
import {afterAll, afterEach, beforeEach, expect} from 'vitest'
import type {RunStep, WireRecord, World} from '../../src/core/types.ts'
import type {Database} from '../../src/store/database.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {rebuildHead} from '../../src/sync/stream-tables.ts'
import {anyRow, createFolder, createWorld, type TestFolder} from './data.ts'
import {createLab, failureOf, type Lab, type LabOptions} from './lab.ts'
import {forgetAll, stream, UNTIED_WALKS} from './walks.ts'

/** Shares an object among all tests of a file, and disposes it after the last. */
export async function useShared<T extends Disposable | AsyncDisposable>(made: T | Promise<T>): Promise<T> {
  const shared = await made
  afterAll(() => (Symbol.asyncDispose in shared ? shared[Symbol.asyncDispose]() : shared[Symbol.dispose]()))
  return shared
}

export const useLab = (options?: LabOptions): Promise<Lab> => useShared(createLab(options))

/** Makes a run die the `nth` time it reaches a step. */
export function dyingAt(step: RunStep, nth = 1): Pick<World, 'onStep'> {
  let times = 0
  return {
    onStep(reached) {
      times += reached === step ? 1 : 0
      if (times === nth) throw new Error('died')
    },
  }
}

/** Changes the records of every answer under a path, of a list or of one own page, before the service sends it. */
export function changeRecords(
  {service}: Lab,
  path: string | RegExp,
  change: (records: Record<string, unknown>[]) => void,
): void {
  const changeBody = (body: WireRecord) => {
    change([body.data].flat() as Record<string, unknown>[])
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

/** Creates a data folder that is emptied before each test of a file. */
export function useFolder(): TestFolder {
  const data = createFolder()
  beforeEach(() => {
    rmSync(data.folder.root, {recursive: true})
    mkdirSync(data.folder.root)
  })
  afterAll(() => data[Symbol.dispose]())
  return data
}

/** The latest states, without the columns that a walk updates even if nothing has changed. */
const HEADS = 'select * exclude (detail_at, list_hash) from history.raw.deal_head order by deal_id'

/**
 * Opens one warehouse for a file's tests and empties it before each, which is faster than making a new one. After each test, its
 * walks must tie out and its latest states must match its versions.
 */
export async function useWarehouse(): Promise<Database> {
  const {folder} = await useShared(createFolder())
  const db = await useShared(openWarehouse(folder, createWorld()))
  beforeEach(() => forgetAll(db))
  afterEach(async () => {
    expect(await db.all(anyRow, UNTIED_WALKS)).toEqual([])
    const heads = await db.all(anyRow, HEADS)
    await rebuildHead(db, stream)
    expect(await db.all(anyRow, HEADS)).toEqual(heads)
  })
  return db
}

/** Expects `work` to fail with this code, in these words; returns all of them. */
export async function expectFailure(
  work: Promise<unknown>,
  code: string,
  words: string | RegExp = '',
): Promise<string> {
  const failure = await failureOf(work)
  expect(failure.code, failure.message).toBe(code)
  expect(failure.message).toMatch(words)
  return failure.message
}
