import {expect, test} from 'vitest'
import {proveMoney} from './money.ts'

const seed = process.env.PROOF_SEED ?? String(Date.now())

test(`amounts stay exact to the cent from the wire to the export (seed ${seed})`, async () => {
  const {figures} = await proveMoney({runs: 3, seed})
  expect(figures.amounts).toBe(1200)
})
