import {expect, test} from 'vitest'
import {proveNthFile} from './nth-file.ts'

const seed = process.env.PROOF_SEED ?? String(Date.now())

test(`whichever file operation fails, nothing is torn and the next run catches up (seed ${seed})`, async () => {
  const {figures} = await proveNthFile({runs: 2, seed})
  expect(figures.cases).toBe(2)
})
