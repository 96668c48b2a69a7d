import {afterAll, beforeAll, beforeEach} from 'vitest'
import type {Database} from '../../src/store/database.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {createFolder, type TestFolder} from '../support/data.ts'
import {forgetAll} from '../support/walks.ts'

/** Opens a warehouse for the tests of a file, each of which finds it empty: that takes less time than making another. */
export function useWarehouse(use: (db: Database) => void): void {
  let data: TestFolder
  let db: Database
  beforeAll(async () => {
    data = createFolder()
    db = await openWarehouse(data.folder)
    use(db)
  })
  beforeEach(() => forgetAll(db))
  afterAll(async () => {
    await db[Symbol.asyncDispose]()
    data[Symbol.dispose]()
  })
}
