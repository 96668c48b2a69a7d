import {expect, test} from 'vitest'
import {KILL_STEPS, proveKill} from './kill.ts'

const seed = process.env.PROOF_SEED ?? String(Date.now())

test(`a run killed at any moment and run again ends as if it had never been killed (seed ${seed})`, {
  timeout: 300_000,
}, async () => {
  const {figures} = await proveKill({runs: 2, seed})
  expect(figures.points).toBe(KILL_STEPS.length)
  expect(figures.kills).toBeGreaterThan(KILL_STEPS.length)
})
