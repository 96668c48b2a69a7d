import {expect, test} from 'vitest'
import {proveJournal} from './journal.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`whatever happens in whatever order, the batches of a month add up to its journal (seed ${seed})`, async () => {
  const {figures} = await proveJournal({runs: 1, seed})
  expect(figures['months tied out']).toBeGreaterThan(0)
})
