import {expect, test} from 'vitest'
import {proveNights} from './nights.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`a release built from the one before is, byte by byte, one built from nothing (seed ${seed})`, async () => {
  const {figures} = await proveNights({runs: 1, nights: 3, seed})
  const nights = Object.entries(figures).filter(([name]) => name.startsWith('nights'))
  expect(nights.reduce((sum, [, count]) => sum + count, 0)).toBe(3)
  expect(figures['nights from nothing']).toBeGreaterThan(0)
})
