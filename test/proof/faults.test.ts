import {fileURLToPath} from 'node:url'
import {expect, test} from 'vitest'
import {startProcess} from '../support/lab.ts'
import {proveNthAnswer} from './nth-answer.ts'
import {LOSSES, proveStores} from './stores.ts'
import {nameOf} from './world/lose.ts'

const seed = '2026'

test('whichever answer fails, the run ends as documented and the next one catches up', async () => {
  const {figures} = await proveNthAnswer({runs: 2, seed})
  expect(figures.cases).toBe(2)
})

test('whichever file operation fails, nothing is torn and the next run catches up', async () => {
  // A separate process, because its file operations are replaced.
  const script = fileURLToPath(new URL('../../scripts/proof.ts', import.meta.url))
  const options = ['--length', 'middle', '--first', '0', '--runs', '1']
  using proof = startProcess([process.execPath, script, 'nth-file', ...options], {})
  const {code, stdout, stderr} = await proof.ended
  expect(code, stderr).toBe(0)
  expect(stdout).toMatch(/\bcases 1, exit \d 1, of cases \d{3,}\b/)
})

/** Losses that once had a wrong outcome and that no other test plays: one that recovers, and some that are refused. */
const OUTCOMES = {
  'state lost': 'goes on',
  "state another lender's": 'STORES_DISAGREE',
  "state yesterday's, tapes yesterday's": 'STORES_DISAGREE',
  'tapes lost, warehouse lost': 'STORES_DISAGREE',
}

test('whichever stores are lost, old or foreign, books are right or a command names the store', async () => {
  const losses = LOSSES.filter((one) => nameOf(one) in OUTCOMES)
  const {played} = await proveStores({runs: losses.length, seed, losses})
  const outcomes = played.map(({loss, refused}) => [nameOf(loss), refused?.code ?? 'goes on'])
  expect(Object.fromEntries(outcomes)).toEqual(OUTCOMES)
})
