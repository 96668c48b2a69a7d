import {expect, test} from 'vitest'
import {nameOf} from './damage.ts'
import {LOSSES, proveStores} from './stores.ts'

/** Losses whose outcome was once wrong and that no other test plays: one that continues, and some that are refused. */
const SHORT = [
  'state lost',
  "state yesterday's, tapes yesterday's",
  "state another lender's",
  'tapes lost, warehouse lost',
]

test('whichever stores are lost, old or foreign, books are right or a command names the store', async () => {
  const losses = LOSSES.filter((one) => SHORT.includes(nameOf(one)))
  const {played} = await proveStores({runs: losses.length, seed: '', losses})
  expect(played.map(({loss, refused}) => [nameOf(loss), refused?.code ?? 'goes on'])).toEqual([
    ['state lost', 'goes on'],
    ["state another lender's", 'STORES_DISAGREE'],
    ["state yesterday's, tapes yesterday's", 'STORES_DISAGREE'],
    ['tapes lost, warehouse lost', 'STORES_DISAGREE'],
  ])
})
