import {expect, test} from 'vitest'
import {PAGES_PER_RUN, proveFuzz} from './fuzz.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`no page, however spoilt, breaks a walk or a total (seed ${seed})`, async () => {
  const runs = 1
  const {figures} = await proveFuzz({runs, seed})
  expect(figures.pages).toBe(runs * PAGES_PER_RUN)
})
