import {expect, test} from 'vitest'
import {proveMoney} from './money.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`amounts stay exact to the cent from the wire to the export (seed ${seed})`, async () => {
  const {figures} = await proveMoney({runs: 1, seed})
  expect(figures.amounts).toBe(400)
})
