import {expect, test} from 'vitest'
import {NIGHTS_PER_RUN, proveNights} from './nights.ts'

const seed = process.env.PROOF_SEED ?? String(Date.now())

test(`a release built from the one before is, byte by byte, one built from nothing (seed ${seed})`, async () => {
  const {figures} = await proveNights({runs: 1, seed})
  const nights = Object.entries(figures).filter(([name]) => name.startsWith('nights'))
  expect(nights.reduce((sum, [, count]) => sum + count, 0)).toBe(NIGHTS_PER_RUN)
  expect(figures['nights from nothing']).toBeGreaterThan(0)
})
