import {readdirSync, rmSync} from 'node:fs'
import {basename, join} from 'node:path'
import {z} from 'zod'
import {createPerformer} from '../accounting/acts.ts'
import {listNeededReleases} from '../accounting/periods.ts'
import {listSurplusReleases, pruneReleases} from '../build/build-folder.ts'
import {DAY_MS} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import type {World} from '../core/types.ts'
import {listSurplusBatches} from '../export/batch.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {removeFolder} from '../store/files.ts'
import {isOfActs, isPruned, listRecorded, listTapes, type TapeRow} from '../store/recorded.ts'
import {findLastSuccess, summaryOf, withRun} from '../store/runs.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {hasWarehouse, openHistory, openWarehouse} from '../store/warehouse.ts'
import {clearPlaces, countPlaced} from '../sync/quarantine.ts'
import {describeGone} from './record-compare.ts'

/** What was removed, or in a dry run would be. */
export type PruneResult = Awaited<ReturnType<typeof pruneData>>

/**
 * Never removes the current release, what a closed period needs, or a tape with a unit that the last backup lacks. The ages of
 * tapes count back from the last tape, so a clock that is ahead makes none old unless a walk was made under it.
 * @throws LockedError `RUN_IN_PROGRESS`
 */
export async function pruneData(config: Config, {isDryRun}: {isDryRun: boolean}, world: World) {
  const folder = requireWritable(dataFolderAt(config.dataDir))
  const prune = async (stateDb: StateDb) => {
    const needed = listNeededReleases(stateDb)
    const batches = listSurplusBatches(folder, config.batchesKept, needed)
    const releases = listSurplusReleases(folder, config, needed)
    const aged = listOldTapes(stateDb, world.realClock.now(), config.tapeDays)
    const {units = 0} = summaryOf(findLastSuccess(stateDb, 'backup'), z.object({units: z.number()})) ?? {}
    const later = listRecorded(stateDb).filter(({no}) => no > units)
    const unsaved = new Set(later.map(({tape}) => tape))
    const old = aged.filter(({name}) => !unsaved.has(name))
    const replaced = readdirSync(folder.root).filter(
      (name) => name.startsWith(basename(folder.warehouse)) && name.includes('.before-rebuild-'),
    )
    const pruned = listTapes(stateDb).filter(isPruned)
    const gone = [...pruned, ...old].map(({name}) => name)
    let quarantined = 0
    if (hasWarehouse(folder)) {
      await using db = await openHistory(folder, world)
      quarantined = await countPlaced(db, gone)
    }
    if (!isDryRun) {
      for (const batch of batches) removeFolder(join(folder.exports, batch))
      pruneReleases(folder, config, needed)
      removeTapes({folder, stateDb, config}, old, world)
      if (quarantined > 0) {
        await using db = await openWarehouse(folder, world, config)
        await clearPlaces(db, gone)
      }
      for (const name of replaced) rmSync(join(folder.root, name))
    }
    const tapes = old.map(({path}) => path)
    const removed = releases.length + batches.length + quarantined + tapes.length + replaced.length
    const done = removed === 0 ? ('unchanged' as const) : ('pruned' as const)
    return {
      outcome: isDryRun ? ('dry_run' as const) : done,
      releases,
      /** `profile/batch` */
      batches,
      /** Records on removed tapes; their rows stay. */
      quarantined,
      /** Paths below the data folder. */
      tapes,
      /** Old tapes that stay because no backup has been made since; without them the warehouse could not be computed again. */
      unsaved: aged.length - old.length,
      /** Warehouses that a rebuild replaced. */
      replaced,
    }
  }
  if (!isDryRun) return await withRun(folder.stateDb, 'prune', world, ({stateDb}) => prune(stateDb))
  using stateDb = openStateDb(folder.stateDb)
  return await prune(stateDb)
}

/** Tapes that ended more than `days` before the last tape that ended by `now`. Tapes of acts are never old. */
function listOldTapes(stateDb: StateDb, now: number, days: number): TapeRow[] {
  const endOf = ({ended_at}: TapeRow) => Date.parse(ended_at ?? '')
  const tapes = listTapes(stateDb)
  const last = tapes.map(endOf).reduce((latest, at) => (at <= now && at > latest ? at : latest), 0)
  return tapes.filter(
    (tape) => !isOfActs(tape.name) && tape.removed_at === null && endOf(tape) < last - days * DAY_MS,
  )
}

/** Recorded as an act, so that the record keeps their units. */
function removeTapes(
  {folder, stateDb, config}: {folder: DataFolder; stateDb: StateDb; config: Config},
  old: readonly TapeRow[],
  world: World,
): void {
  const remove = () => {
    for (const {path} of listTapes(stateDb).filter(isPruned)) rmSync(join(folder.root, path), {force: true})
  }
  // Removes files that a killed prune left.
  remove()
  if (old.length === 0) return
  const perform = createPerformer(config, {folder, stateDb}, world)
  const recorded = listRecorded(stateDb)
  const at = new Date(world.realClock.now()).toISOString()
  perform(() => ({act: 'tapes pruned', at, tapes: old.map((row) => describeGone(recorded, row))}))
  remove()
}
