import {expect, test} from 'vitest'
import {proveKill} from './kill.ts'
import {proveKillWrites} from './kill-writes.ts'
import {PORTFOLIO_TABLES} from './quick-world.ts'

const seed = '2026'
/** One point of the walk and one after it; longer proofs kill at all of them. */
const POINTS = ['pages stored', 'release published']

test('a run killed at any moment and run again ends as if it had never been killed', async () => {
  const few = {points: POINTS, randomKills: 0, tables: PORTFOLIO_TABLES, deals: 60}
  const {figures} = await proveKill({runs: 1, seed, ...few})
  expect(figures).toMatchObject({points: POINTS.length, kills: POINTS.length})
})

test('a closing killed before one of its writes is completed exactly once by the next', async () => {
  const {figures} = await proveKillWrites({runs: 1, seed, deeds: ['month closed']})
  expect(figures).toMatchObject({kills: 1})
})
