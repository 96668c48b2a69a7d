import {fileURLToPath} from 'node:url'
import {expect, test} from 'vitest'
import {startProcess} from '../support/lab.ts'

const PROOF = fileURLToPath(new URL('../../scripts/proof.ts', import.meta.url))
const seed = process.env.PROOF_SEED ?? '2026'

test(`whichever file operation fails, nothing is torn and the next run catches up (seed ${seed})`, async () => {
  // In a process of its own, whose file operations are replaced.
  const options = ['--length', 'middle', '--seed', seed, '--first', '0', '--runs', '1']
  using proof = startProcess([process.execPath, PROOF, 'nth-file', ...options], {})
  const {code, stdout, stderr} = await proof.ended
  expect(code, stderr).toBe(0)
  expect(stdout).toMatch(/\bcases 1, exit \d 1, of cases \d{3,}\b/)
})
