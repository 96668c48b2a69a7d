import {expect, test} from 'vitest'
import {proveNthAnswer} from './nth-answer.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`whichever answer fails, the run ends as documented and the next one catches up (seed ${seed})`, async () => {
  const {figures} = await proveNthAnswer({runs: 2, seed})
  expect(figures.cases).toBe(2)
})
