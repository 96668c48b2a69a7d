import {expect, test} from 'vitest'
import {proveNthAnswer} from './nth-answer.ts'
import {LOSSES, proveStores} from './stores.ts'
import {nameOf} from './world/lose.ts'

const seed = '2026'

test('whichever answer fails, the run ends as documented and the next one catches up', async () => {
  const {figures} = await proveNthAnswer({runs: 1, seed})
  expect(figures.cases).toBe(1)
})

/** Losses that no other test plays. */
const OUTCOMES = {
  "state another lender's": 'STORES_DISAGREE',
  "state yesterday's, tapes yesterday's": 'STORES_DISAGREE',
}

test('whichever stores are lost, old or foreign, books are right or a command names the store', async () => {
  const losses = LOSSES.filter((one) => nameOf(one) in OUTCOMES)
  const {played} = await proveStores({runs: losses.length, seed, losses})
  const outcomes = played.map(({loss, refused}) => [nameOf(loss), refused?.code ?? 'goes on'])
  expect(Object.fromEntries(outcomes)).toEqual(OUTCOMES)
})
