import {constants, copyFileSync, existsSync, rmSync} from 'node:fs'
import type {Config} from '../config.ts'
import {STREAMS} from '../contract/streams.ts'
import {ConfigError, messageOf, UnexpectedError} from '../errors.ts'
import {withRun} from '../ledger/runs.ts'
import {rebuildHead} from '../load/head.ts'
import type {World} from '../types.ts'
import {moveIntoPlace} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import {openDatabase} from '../warehouse/database.ts'
import {openWarehouse, setAside} from '../warehouse/warehouse.ts'
import {unpackBackup} from './backup.ts'

/** What a restore came to. */
export interface RestoreResult {
  outcome: 'restored'
  /** The copy that was brought back. */
  from: string
  /** Where the files it replaced are now. */
  set_aside: string[]
}

/**
 * Brings back the last copy of the warehouse that can be read whole, or in an empty data folder a backup; what it
 * replaces is set aside, never deleted.
 * What was observed since is walked again by the next sync.
 *
 * @throws ConfigError `RESTORE_HEALTHY` when the warehouse opens and `isForced` is not set
 * @throws UnexpectedError `RESTORE_NO_COPY`; those of a backup
 */
export async function restoreWarehouse(
  config: Config,
  request: {isForced: boolean; backup?: string | undefined},
  world: World,
): Promise<RestoreResult> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  if (request.backup !== undefined) await unpackBackup(folder, request.backup)
  return withRun(folder.ledger, 'restore', world, async () => {
    if (!request.isForced) await requireDamage(folder)
    const temporary = `${folder.warehouse}.tmp`
    const from = await copyBack(folder, temporary, world)
    const damaged = [
      ...(from === folder.history ? [] : [folder.history]),
      folder.warehouse,
      `${folder.warehouse}.wal`,
    ]
    const now = world.realClock.now()
    const set_aside = damaged.filter((file) => existsSync(file)).map((file) => setAside(file, now))
    if (from !== folder.history) {
      // Commands that only read, and the next sync, which keeps the copy before, find the one that is whole.
      copyFileSync(from, `${folder.history}.tmp`, constants.COPYFILE_FICLONE)
      moveIntoPlace(`${folder.history}.tmp`, folder.history)
    }
    moveIntoPlace(temporary, folder.warehouse)
    return {outcome: 'restored', from, set_aside}
  })
}

async function requireDamage(folder: DataFolder): Promise<void> {
  if (!existsSync(folder.warehouse)) return
  try {
    await using _db = await openWarehouse(folder)
  } catch (error) {
    if (error instanceof UnexpectedError && error.code === 'WAREHOUSE_UNREADABLE') return
    throw error
  }
  throw new ConfigError({
    code: 'RESTORE_HEALTHY',
    problem: `Warehouse '${folder.warehouse}' opens: there is nothing to bring back.`,
    kept: 'Nothing was changed.',
    next: 'If it is damaged inside (`loantape doctor --deep`), run `loantape restore --force`.',
  })
}

/** Copies the first readable copy into a new warehouse file; reading every row of it is the test. */
async function copyBack(folder: DataFolder, temporary: string, world: World): Promise<string> {
  const copies = [folder.history, folder.previousHistory].filter((file) => existsSync(file))
  const reasons: string[] = []
  for (const copy of copies) {
    for (const file of [temporary, `${temporary}.wal`]) rmSync(file, {force: true})
    try {
      await using db = await openDatabase({
        attach: [
          {path: copy, alias: 'history', readOnly: true},
          {path: temporary, alias: 'warehouse'},
        ],
      })
      await db.run('copy from database history to warehouse')
      for (const stream of STREAMS) await rebuildHead(db, stream)
      await db.run('checkpoint warehouse')
      return copy
    } catch (error) {
      world.log.warn({file: copy, reason: messageOf(error)}, 'this copy cannot be read whole')
      reasons.push(`${copy}: ${messageOf(error).split('\n')[0]}`)
    }
  }
  throw new UnexpectedError({
    code: 'RESTORE_NO_COPY',
    problem: `No copy of the warehouse can be read whole${reasons.length > 0 ? ` (${reasons.join('; ')})` : `: there is none in '${folder.root}'`}.`,
    kept: 'Nothing was changed; releases and exports are separate files and stay as they are.',
    next: 'Bring back history.duckdb from your backup, or begin a new data folder with --data.',
  })
}
