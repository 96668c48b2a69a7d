import {randomUUID} from 'node:crypto'
import {rmSync} from 'node:fs'
import {join} from 'node:path'
import {buildRelease} from '../build/build.ts'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {readRelease, requireRelease, unlessDamaged} from '../store/release.ts'
import {acquireLock} from '../store/runs.ts'
import {openStateDb} from '../store/state-db.ts'
import {keyFileOf} from '../store/tape-key.ts'
import {hasWarehouse} from '../store/warehouse.ts'
import {listDated, placeOf, restoreBackup} from './backup.ts'
import {verifyAll} from './verify.ts'

/**
 * Restores the data folder's latest dated backup beside it, examines everything it brought back, builds its release and compares
 * that with the one that was built at the time. What was restored is removed again.
 *
 * @returns `compared`: `equal`, or `not kept` where that release is no longer there
 * @throws ConfigError `BACKUP_NONE`; LockedError `RUN_IN_PROGRESS`; UnexpectedError `DRILL_FAILED`; what restoring and building throw
 */
export async function rehearseRestore(config: Config, {from}: {from: string}, world: World) {
  const place = placeOf(config, from)
  const folder = dataFolderAt(config.dataDir)
  const latest = listDated(place, world).at(-1)
  if (latest === undefined)
    throw newError(
      'BACKUP_NONE',
      `Folder '${place}': expected a job's backup of this data folder, found none.`,
    )
  const backup = join(place, latest)
  using stateDb = openStateDb(folder.stateDb)
  using _lock = acquireLock(stateDb, {runId: randomUUID(), command: 'drill', name: 'restore drill'}, world)
  const dataDir = join(folder.cache, 'drill')
  const restored = {...config, dataDir, tapeKeyFile: keyFileOf(config, folder)}
  rmSync(dataDir, {recursive: true, force: true})
  try {
    world.onProgress({step: 'restore'})
    const {files, authenticated} = await restoreBackup(restored, backup)
    const {problems, walks, batch_files} = await verifyAll(restored, world)
    const [fault] = problems
    if (fault)
      throw createFailed(
        backup,
        `${quantity(problems.length, 'problem')}, such as ${fault.path}: ${fault.problem}`,
      )
    const result = {outcome: 'restored' as const, backup, files, authenticated, walks, batch_files}
    if (!hasWarehouse(dataFolderAt(dataDir)))
      return {...result, release_id: null, compared: 'not kept' as const}
    await buildRelease(restored, {}, world)
    const {manifest} = requireRelease(dataFolderAt(dataDir))
    const kept = unlessDamaged(() => readRelease(join(folder.releases, manifest.release_id)))?.manifest
    const digests = (tables: typeof manifest.tables) =>
      tables.map(({file, sha256}) => `${file} ${sha256}`).join('\n')
    if (kept && digests(kept.tables) !== digests(manifest.tables))
      throw createFailed(
        backup,
        `release ${manifest.release_id}, built from it, differs from the one that is kept`,
      )
    const compared = kept ? ('equal' as const) : ('not kept' as const)
    return {...result, release_id: manifest.release_id, compared}
  } finally {
    rmSync(dataDir, {recursive: true, force: true})
  }
}

const createFailed = (backup: string, problem: string) =>
  newError(
    'DRILL_FAILED',
    `Backup '${backup}' does not bring everything back: ${problem}`.replace(/\.?$/, '.'),
  )
