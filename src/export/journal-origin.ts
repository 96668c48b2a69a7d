import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {ConfigError} from '../errors.ts'
import {listBatches} from '../ledger/issued.ts'
import type {Ledger} from '../ledger/ledger.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/warehouse.ts'
import {readBatchManifest} from './manifest.ts'

/** A journal of one profile. */
interface JournalName {
  profile: string
  /** `YYYY-MM` */
  period: string
}

/**
 * Makes sure that the ledger knows every journal batch of a month that lies among the exports. One that was lost, or brought
 * back from a backup older than the last batch, would issue the entries of that batch again.
 *
 * @throws ConfigError `JOURNAL_UNKNOWN`
 */
export function requireKnownBatches(
  ledger: Ledger,
  folder: DataFolder,
  {profile, period}: JournalName,
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

/**
 * Makes sure that the history is the one a month's batches were issued from. One that was begun anew knows of no funding
 * before its first walk, and all that was issued would be reversed. To be asked of a history with an applied walk.
 *
 * @throws ConfigError `JOURNAL_HISTORY`
 */
export async function requireSameHistory(
  ledger: Ledger,
  folder: DataFolder,
  {profile, period}: JournalName,
): Promise<void> {
  await using db = await openHistory(folder)
  const {begun_at} = await db.one(
    z.object({begun_at: z.string()}),
    `select strftime(min(recorded_at), '%Y-%m-%dT%H:%M:%S.%fZ') as begun_at
     from history.raw.walk where state = 'applied' and stream = 'deal'`,
  )
  // A later batch has taken this history over already.
  const latest = listBatches(ledger, profile, period).at(-1)
  if (latest === undefined || latest.known_at >= begun_at) return
  throw new ConfigError({
    code: 'JOURNAL_HISTORY',
    problem: `Batch '${latest.batch_id}' was made from what was known at ${latest.known_at}: the history in '${folder.root}' begins at ${begun_at} and is another one, in whose journal nothing earlier holds.`,
    kept: 'Nothing was issued or written.',
    next: 'Bring history.duckdb back from your backup and run `loantape restore` (docs/operations.md). Where there is none, go on in an empty data folder, whose first walk opens the books anew.',
  })
}
