import {z} from 'zod'
import type {Ledger} from './ledger.ts'

/** The releases that closed accounting periods were closed with: they are never pruned. */
export function listNeededReleases(ledger: Ledger): Set<string> {
  const rows = ledger.all(
    z.object({release_id: z.string()}),
    `select json_extract(release, '$.release_id') as release_id from closed_period`,
  )
  return new Set(rows.map(({release_id}) => release_id))
}
