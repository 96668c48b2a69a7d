import {z} from 'zod'
import type {Ledger} from './ledger.ts'

const releaseRow = z.object({release_id: z.string()})

/** The releases that closed accounting periods were closed with: they are never pruned. */
export function listNeededReleases({db}: Ledger): Set<string> {
  const rows = db
    .prepare(`select json_extract(release, '$.release_id') as release_id from closed_period`)
    .all()
  return new Set(rows.map((row) => releaseRow.parse(row).release_id))
}
