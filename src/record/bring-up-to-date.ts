import {lstatSync, readlinkSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import type {Config} from '../core/config.ts'
import {findMachineFault} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, hasStores, listNames} from '../store/data-folder.ts'
import {findHead, readFact, refuse, writeFact} from '../store/recorded.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {listTapeFiles} from '../sync/tapes.ts'

/**
 * Makes the stores of a data folder agree before anything is read or stored. One that is behind the tapes is brought up to date;
 * one that is ahead, or of another folder, is refused, since something would be booked twice or never. Compares nothing if no
 * file has changed since. A copied `current` becomes a link again.
 * @throws ConfigError `STORES_DISAGREE`; UnexpectedError `RELEASE_DAMAGED`
 */
export async function bringUpToDate(config: Config, world: World): Promise<void> {
  const folder = dataFolderAt(config.dataDir)
  if (!hasStores(folder)) return
  using stateDb = openStateDb(folder.stateDb)
  if (lstatSync(folder.current, {throwIfNoEntry: false})?.isDirectory()) {
    const {linkCurrent} = await import('../build/build-folder.ts')
    linkCurrent(folder)
  }
  // Before they are compared: what somebody changes meanwhile was not.
  const seen = describeStores(folder, stateDb)
  if (seen === readFact(stateDb, 'stores_seen')) return
  const {compareTapes} = await import('./record-compare.ts')
  refuse(folder, compareTapes(config, {folder, stateDb}, world).problems)
  const {compareWarehouse} = await import('../sync/rebuild.ts')
  const problems = await compareWarehouse(config, {folder, stateDb}, world)
  refuse(folder, problems ?? [])
  // One that is in use or damaged was not compared.
  if (!problems) return
  try {
    writeFact(stateDb, 'stores_seen', seen)
  } catch (error) {
    // Only spares the next command the comparison: reading must work on a full disk.
    if (!findMachineFault(error)) throw error
  }
}

/** Names the stores' files with size and time, without tapes that are being written. */
function describeStores(folder: DataFolder, stateDb: StateDb): string {
  const open = stateDb.column(
    z.string(),
    'select path from tape where ended_at is null and removed_at is null',
  )
  const tapes = [...listTapeFiles(folder)].filter(([path]) => !open.includes(path))
  const stat = statSync(folder.warehouse, {throwIfNoEntry: false})
  const isLink = lstatSync(folder.current, {throwIfNoEntry: false})?.isSymbolicLink()
  return JSON.stringify([
    findHead(stateDb),
    tapes,
    stat && [stat.size, stat.mtimeMs, stat.ino],
    isLink && readlinkSync(folder.current),
    listNames(folder.exports).map((profile) => [profile, listNames(join(folder.exports, profile))]),
  ])
}
