import {afterEach, beforeEach, expect, test} from 'vitest'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {findLearntRate, storeLearntRate} from '../../src/sync/at-source.ts'
import {createFolder, createWorldAt, type TestFolder} from '../support/data.ts'

const NOW = '2026-02-02T23:30:00.000Z'
const world = createWorldAt(NOW)
const later = (seconds: number) => createWorldAt(new Date(Date.parse(NOW) + seconds * 1000).toISOString())

let data: TestFolder
let stateDb: StateDb

beforeEach(() => {
  data = createFolder()
  stateDb = openStateDb(data.folder.stateDb)
})

afterEach(() => {
  stateDb[Symbol.dispose]()
  data[Symbol.dispose]()
})

const SOURCE = 'http://localhost/v1'

test('the rate a run arrived at is remembered for its source for 24 hours', () => {
  storeLearntRate(stateDb, SOURCE, 2.5, world)
  storeLearntRate(stateDb, SOURCE, 1.25, world)
  expect(findLearntRate(stateDb, SOURCE, later(24 * 3600 - 1))).toBe(1.25)
  expect(findLearntRate(stateDb, SOURCE, later(24 * 3600))).toBeUndefined()
  expect(findLearntRate(stateDb, 'http://elsewhere/v1', later(60))).toBeUndefined()
})
