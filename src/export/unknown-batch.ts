import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import {ConfigError} from '../errors.ts'
import {listBatches} from '../ledger/issued.ts'
import type {Ledger} from '../ledger/ledger.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {readBatchManifest} from './manifest.ts'

/**
 * Makes sure that the ledger knows every journal batch of a month that lies among the exports. One that was lost, or brought
 * back from a backup older than the last batch, would issue the entries of that batch again.
 *
 * @throws ConfigError `JOURNAL_UNKNOWN`
 */
export function requireKnownBatches(
  ledger: Ledger,
  folder: DataFolder,
  {profile, period}: {profile: string; period: string},
): void {
  const dir = join(folder.exports, profile)
  const names = existsSync(dir) ? readdirSync(dir).filter((name) => name.startsWith(`${period}-`)) : []
  const lying = names.flatMap((name) => readBatchManifest(join(dir, name))?.batch_id ?? [])
  // Read after the folder: a batch that is issued meanwhile is in the ledger before it lies there.
  const known = new Set(listBatches(ledger, profile, period).map(({batch_id}) => batch_id))
  const unknown = lying.filter((id) => !known.has(id))
  if (unknown.length === 0) return
  throw new ConfigError({
    code: 'JOURNAL_UNKNOWN',
    problem: `Batches of ${period} in '${dir}' that the ledger has not issued: ${unknown.join(', ')}. It was lost, or is older than they are, and would issue their entries once more.`,
    kept: 'Nothing was issued or written.',
    next: 'Bring back the ledger they were issued from (docs/operations.md). Where there is none, reverse in your books what was imported of them, move their folders elsewhere, then export again.',
  })
}
