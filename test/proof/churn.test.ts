import {expect, test} from 'vitest'
import {proveChurn} from './churn.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`a list that changes under the walk neither loses a deal nor invents one (seed ${seed})`, async () => {
  const {figures} = await proveChurn({runs: 2, walks: 2, seed})
  expect(figures).toMatchObject({walks: 4, releases: 2})
})
