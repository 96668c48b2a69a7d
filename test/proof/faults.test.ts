import {expect, test} from 'vitest'
import {proveNthAnswer} from './nth-answer.ts'
import {LOSSES, proveStores} from './stores.ts'
import {nameOf} from './world/lose.ts'

const seed = '2026'

test('whichever answer fails, the run ends as documented and the next one catches up', async () => {
  const {figures} = await proveNthAnswer({runs: 1, seed})
  expect(figures.cases).toBe(1)
})

test('whichever stores are lost, old or foreign, books are right or a command names the store', async () => {
  // No other test plays these.
  const names = ["state another lender's", "state yesterday's, tapes yesterday's"]
  const losses = LOSSES.filter((one) => names.includes(nameOf(one)))
  const {figures} = await proveStores({runs: losses.length, seed, losses})
  expect(figures).toEqual({STORES_DISAGREE: 2})
})
