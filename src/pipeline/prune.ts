import {existsSync} from 'node:fs'
import {join} from 'node:path'
import type {Config} from '../config.ts'
import {removeBatch} from '../export/batch-folder.ts'
import {listSurplusBatches} from '../export/prune.ts'
import {openLedger} from '../ledger/ledger.ts'
import {listNeededReleases} from '../ledger/retention.ts'
import {withRun} from '../ledger/runs.ts'
import {countServed, pruneTexts} from '../load/prune-quarantine.ts'
import {listSurplusReleases, pruneReleases} from '../release/prune.ts'
import type {World} from '../types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import {refreshHistory} from '../warehouse/history.ts'
import {openHistory, openWarehouse} from '../warehouse/warehouse.ts'
import {retentionOf} from './build.ts'

/** What was, or with a dry run would be, removed. */
export interface PruneResult {
  outcome: 'pruned' | 'unchanged' | 'dry_run'
  /** Ids of releases. */
  releases: string[]
  /** `profile/batch` */
  batches: string[]
  /** Records in quarantine whose texts go; their rows stay. */
  quarantined: number
}

const DAY_MS = 86_400_000

/**
 * Removes releases, batches and the texts of quarantined records that have served beyond what the settings keep; never
 * the current release nor what a closed period needs.
 *
 * @throws LockedError `RUN_IN_PROGRESS`
 */
export async function pruneData(
  config: Config,
  {isDryRun}: {isDryRun: boolean},
  world: World,
): Promise<PruneResult> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  const before = new Date(world.clock.now() - config.quarantineDays * DAY_MS)
    .toISOString()
    .slice(0, 19)
    .replace('T', ' ')
  if (isDryRun) {
    using ledger = openLedger(folder.ledger)
    const needed = listNeededReleases(ledger)
    return {
      outcome: 'dry_run',
      releases: listSurplusReleases(folder, retentionOf(config), needed).releases,
      batches: listSurplusBatches(folder, config.batchesKept, needed),
      quarantined: await countOldTexts(folder, before),
    }
  }
  return await withRun(folder.ledger, 'prune', world, async ({ledger}) => {
    const needed = listNeededReleases(ledger)
    const batches = listSurplusBatches(folder, config.batchesKept, needed)
    for (const batch of batches) removeBatch(join(folder.exports, batch))
    const releases = pruneReleases(folder, retentionOf(config), needed)
    const quarantined = await removeOldTexts(folder, before, world)
    const isUnchanged = releases.length + batches.length + quarantined === 0
    return {outcome: isUnchanged ? 'unchanged' : 'pruned', releases, batches, quarantined}
  })
}

async function countOldTexts(folder: DataFolder, before: string): Promise<number> {
  if (!existsSync(folder.history)) return 0
  await using db = await openHistory(folder)
  return await countServed(db, 'history', before)
}

async function removeOldTexts(folder: DataFolder, before: string, world: World): Promise<number> {
  if ((await countOldTexts(folder, before)) === 0) return 0
  await using db = await openWarehouse(folder, world)
  const records = await pruneTexts(db, before)
  await refreshHistory(db, folder)
  return records
}
