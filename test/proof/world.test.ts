import {expect, test} from 'vitest'
import {proveWorld} from './world.ts'

// Always the same stories: the long form, `npm run proof world`, draws others.
const seed = process.env.PROOF_SEED ?? 'gate'

test(`whatever happens to a lender, every table and every book is what an oracle says (seed ${seed})`, async () => {
  const {figures} = await proveWorld({runs: 1, days: 4, seed, shrinkMs: 0})
  expect(figures['releases compared']).toBeGreaterThanOrEqual(1)
  expect(figures['balances compared']).toBeGreaterThanOrEqual(1)
  expect(figures['rebuilt and compared']).toBeGreaterThanOrEqual(1)
})
