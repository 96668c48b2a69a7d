import {afterEach, beforeEach, expect, test} from 'vitest'
import {findLearntRate, storeLearntRate} from '../../src/ledger/learnt-rate.ts'
import {type Ledger, openLedger} from '../../src/ledger/ledger.ts'
import {createFolder, createWorldAt, type TestFolder} from '../support/data.ts'

const NOW = '2026-02-02T23:30:00.000Z'
const world = createWorldAt(NOW)
const later = (seconds: number) => createWorldAt(new Date(Date.parse(NOW) + seconds * 1000).toISOString())

let data: TestFolder
let ledger: Ledger

beforeEach(() => {
  data = createFolder()
  ledger = openLedger(data.folder.ledger)
})

afterEach(() => {
  ledger[Symbol.dispose]()
  data[Symbol.dispose]()
})

const SOURCE = 'http://localhost/v1'

test('the rate a run arrived at is remembered for its source', () => {
  storeLearntRate(ledger, SOURCE, 2.5, world)
  storeLearntRate(ledger, SOURCE, 1.25, world)
  expect(findLearntRate(ledger, SOURCE, later(60))).toBe(1.25)
  expect(findLearntRate(ledger, 'http://elsewhere/v1', later(60))).toBeUndefined()
})

test('a learnt rate is forgotten after 24 hours', () => {
  storeLearntRate(ledger, SOURCE, 2.5, world)
  expect(findLearntRate(ledger, SOURCE, later(24 * 3600 - 1))).toBe(2.5)
  expect(findLearntRate(ledger, SOURCE, later(24 * 3600))).toBeUndefined()
})
