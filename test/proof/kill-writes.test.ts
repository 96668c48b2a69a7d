import {expect, test} from 'vitest'
import {proveKillWrites} from './kill-writes.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`a closing killed before any of its writes is completed exactly once by the next (seed ${seed})`, async () => {
  const {figures} = await proveKillWrites({runs: 3, seed, deeds: ['month closed']})
  expect(figures).toMatchObject({kills: 3})
})
