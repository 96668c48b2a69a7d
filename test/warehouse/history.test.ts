import {copyFileSync, readFileSync, writeFileSync} from 'node:fs'
import {afterEach, beforeEach, expect, test} from 'vitest'
import type {Database} from '../../src/warehouse/database.ts'
import {refreshHistory} from '../../src/warehouse/history.ts'
import {openHistory, openWarehouse} from '../../src/warehouse/warehouse.ts'
import {anyRow, createFolder, type TestFolder} from '../support/data.ts'
import {aRecord} from '../support/record.ts'
import {walk} from '../support/walks.ts'

let data: TestFolder
let db: Database

beforeEach(async () => {
  data = createFolder()
  db = await openWarehouse(data.folder)
})

afterEach(async () => {
  await db[Symbol.asyncDispose]()
  data[Symbol.dispose]()
})

const walkOf = (at: string, ...ids: string[]) => walk(db, {at, pages: [ids.map((id) => aRecord({id}))]})

/** Every row of both sides that the other does not have. */
async function differences(): Promise<unknown[]> {
  const sorted = (rows: unknown[]) => rows.map((row) => JSON.stringify(row)).sort()
  await using history = await openHistory(data.folder)
  const found: unknown[] = []
  for (const table of ['deal_version', 'walk', 'quarantine', 'setting', 'drift']) {
    const stored = sorted(await db.all(anyRow, `from warehouse.raw.${table}`))
    const copied = sorted(await history.all(anyRow, `from history.raw.${table}`))
    if (JSON.stringify(stored) !== JSON.stringify(copied)) found.push({table, stored, copied})
  }
  return found
}

test('what was appended since is added to the copy, and certificates that changed are replaced', async () => {
  await walkOf('2026-02-02T23:30:00Z', 'a', 'b')
  await refreshHistory(db, data.folder)
  await walkOf('2026-02-03T23:30:00Z', 'a', 'c')
  await db.run(`update warehouse.raw.walk set ended_how = 'told otherwise'`)
  await refreshHistory(db, data.folder)
  expect(await differences()).toEqual([])
})

test('a copy that is ahead of the warehouse is made anew', async () => {
  await walkOf('2026-02-02T23:30:00Z', 'a')
  await refreshHistory(db, data.folder)
  await db[Symbol.asyncDispose]()
  copyFileSync(data.folder.warehouse, `${data.folder.warehouse}.earlier`)
  db = await openWarehouse(data.folder)
  await walkOf('2026-02-03T23:30:00Z', 'a', 'b')
  await refreshHistory(db, data.folder)
  await db[Symbol.asyncDispose]()
  copyFileSync(`${data.folder.warehouse}.earlier`, data.folder.warehouse)
  db = await openWarehouse(data.folder)
  await walkOf('2026-02-04T23:30:00Z', 'a', 'c', 'd')
  await refreshHistory(db, data.folder)
  expect(await differences()).toEqual([])
})

test.each<[string, (path: string) => void]>([
  ['foreign', (path) => writeFileSync(path, 'no database at all')],
  ['damaged', (path) => writeFileSync(path, readFileSync(path).fill(7, 12_288, 20_000))],
])('a %s copy is made anew', async (_kind, damage) => {
  await walkOf('2026-02-02T23:30:00Z', 'a')
  await refreshHistory(db, data.folder)
  damage(data.folder.history)
  await walkOf('2026-02-03T23:30:00Z', 'a', 'b')
  await refreshHistory(db, data.folder)
  expect(await differences()).toEqual([])
})
