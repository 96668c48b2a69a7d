import {expect, test} from 'vitest'
import {proveKill} from './kill.ts'
import {PORTFOLIO_TABLES} from './quick-world.ts'

const seed = process.env.PROOF_SEED ?? '2026'
/** One of each phase; longer proofs kill at all of them. */
const POINTS = ['pages stored', 'changes applied', 'release published']

test(`a run killed at any moment and run again ends as if it had never been killed (seed ${seed})`, async () => {
  const {figures} = await proveKill({
    runs: 1,
    points: POINTS,
    randomKills: 0,
    tables: PORTFOLIO_TABLES,
    deals: 60,
    seed,
  })
  expect(figures).toMatchObject({points: POINTS.length, kills: POINTS.length})
})
