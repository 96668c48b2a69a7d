import {expect, test} from 'vitest'
import {proveChurn, WALKS} from './churn.ts'

const seed = process.env.PROOF_SEED ?? String(Date.now())

test(`a list that changes under the walk neither loses a deal nor invents one (seed ${seed})`, async () => {
  const {figures} = await proveChurn({runs: 2, seed})
  expect(figures).toMatchObject({walks: 2 * WALKS, releases: 2})
})
