import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {BUILT_IN_SQL} from '../../src/build/read-models.ts'
import {proveNights} from './nights.ts'

const seed = process.env.PROOF_SEED ?? '2026'

test(`a release built from the one before is, byte by byte, one built from nothing (seed ${seed})`, async () => {
  const {figures} = await proveNights({runs: 1, nights: 2, seed})
  expect(figures).toMatchObject({'nights from nothing': 1, 'nights from the one before': 1})
  // Another seed may draw three nights that must be built whole.
  if (seed === '2026') expect(figures['nights from the one before']).toBeGreaterThan(0)
})

test('a shipped model that wrongly says it is built deal by deal is found, and named by table and row', async () => {
  const shipped = readFileSync(join(BUILT_IN_SQL, 'mart/document_coverage.sql'), 'utf8')
  const sql = {'mart/document_coverage.sql': shipped.replace('\n-- grain: ', '\n-- per: deal_id\n-- grain: ')}
  await expect(proveNights({runs: 1, nights: 2, seed: '2026', sql})).rejects.toThrow(
    /Table 'mart\.document_coverage' \(.*\/mart\/document_coverage\.sql\) of release .* is not that of a whole build: it lacks the rows \{"deal_id":/,
  )
})
