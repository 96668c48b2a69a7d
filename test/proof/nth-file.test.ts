import {expect, test} from 'vitest'
import {proveNthFile} from './nth-file.ts'
import {PORTFOLIO_TABLES} from './quick-world.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`whichever file operation fails, nothing is torn and the next run catches up (seed ${seed})`, async () => {
  const {figures} = await proveNthFile({runs: 1, tables: PORTFOLIO_TABLES, seed})
  expect(figures.cases).toBe(1)
})
