import {expect, test} from 'vitest'
import {proveCombined} from '../proof/combined.ts'

const seed = process.env.PROOF_SEED ?? String(Date.now())

test(`marts over all lenders are those of one lender, and sums of those of several (seed ${seed})`, {
  timeout: 300_000,
}, async () => {
  const {figures} = await proveCombined({runs: 2, seed})
  expect(figures['cells of one lender']).toBeGreaterThan(1000)
})
