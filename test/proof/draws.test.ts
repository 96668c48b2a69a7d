import {expect, test} from 'vitest'
import {proveChurn} from './churn.ts'
import {PAGES_PER_RUN, proveFuzz} from './fuzz.ts'
import {proveJournal} from './journal.ts'

const seed = '2026'

test('a list that changes under the walk neither loses a deal nor invents one', async () => {
  const {figures} = await proveChurn({runs: 2, walks: 2, seed})
  expect(figures).toMatchObject({walks: 4, releases: 2})
})

test('no page, however spoilt, breaks a walk or a total', async () => {
  const {figures} = await proveFuzz({runs: 1, seed})
  expect(figures.pages).toBe(PAGES_PER_RUN)
})

test('whatever happens in whatever order, the batches of a month add up to its journal', async () => {
  const {figures} = await proveJournal({runs: 1, seed})
  expect(figures['months tied out']).toBeGreaterThan(0)
})
