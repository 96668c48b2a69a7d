import {existsSync} from 'node:fs'
import {STREAMS} from '../contract/streams.ts'
import type {Failure} from '../errors.ts'
import {verifyBatches} from '../export/verify.ts'
import {openLedger} from '../ledger/ledger.ts'
import {LEDGER_NEXT} from '../ledger/ledger-fault.ts'
import {findLockHolder, type LockHolder} from '../ledger/lock.ts'
import {findCurrentRelease} from '../release/manifest.ts'
import {RELEASE_NEXT, verifyReleaseTables} from '../release/verify.ts'
import type {World} from '../types.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {readEveryColumn} from '../warehouse/deep-read.ts'
import {verifyHistory, verifyRates} from '../warehouse/verify-history.ts'
import {HISTORY_NEXT, requirePresent} from '../warehouse/warehouse.ts'
import type {Examination} from './examinations.ts'

const WAREHOUSE_NEXT =
  'Run `loantape restore --force`, which brings back the last copy that can be read whole.'

/** What `doctor --deep` looks at, too: it reads every byte that is kept, and takes as long as the disk does. */
export const DEEP_EXAMINATIONS: Readonly<Record<string, Examination>> = {
  'warehouse, every column': async (_config, folder, world) => {
    requirePresent(folder)
    if (!existsSync(folder.warehouse)) return 'none yet'
    const holder = findRun(folder, world)
    if (holder) return `not read: in use by ${holder.command}, pid ${holder.pid}`
    return readWhole(folder.warehouse, WAREHOUSE_NEXT)
  },
  'history, every column': async (_config, folder) => {
    if (!existsSync(folder.history)) return 'none yet'
    return readWhole(folder.history, HISTORY_NEXT)
  },
  'history, invariants': async (_config, folder) => {
    if (!existsSync(folder.history)) return 'none yet'
    const faults: Failure[] = []
    for (const stream of STREAMS) faults.push(...(await verifyHistory(folder, stream, HISTORY_NEXT)))
    faults.push(...(await verifyRates(folder, HISTORY_NEXT)))
    return faults.length > 0 ? faults : 'versions and certificates tie out'
  },
  'release, every column': async (_config, folder) => {
    const release = findCurrentRelease(folder)
    return release ? readWhole(release.database, RELEASE_NEXT) : 'none yet'
  },
  'release, totals': async (_config, folder) => {
    const release = findCurrentRelease(folder)
    if (!release) return 'none yet'
    const faults = await verifyReleaseTables(release)
    return faults.length > 0 ? faults : 'rows, histories and control totals are those of the manifest'
  },
  'ledger, every table': async (_config, folder) => {
    if (!existsSync(folder.ledger)) return 'none yet'
    using ledger = openLedger(folder.ledger)
    const {integrity_check: found} = ledger.db.prepare('pragma integrity_check(1)').get() ?? {}
    if (found === 'ok') return 'can be read'
    const problem = `Ledger '${folder.ledger}' is damaged: ${String(found).split('\n').at(-1)}.`
    return [{code: 'DEEP_DAMAGED', problem, next: LEDGER_NEXT}]
  },
  exports: async (_config, folder) => {
    const {batches, files, faults} = await verifyBatches(folder)
    return faults.length > 0 ? faults : `${files} files of ${batches} batches match their manifests`
  },
}

async function readWhole(path: string, next: string): Promise<string | readonly Failure[]> {
  const {tables, columns, faults} = await readEveryColumn(path, next)
  return faults.length > 0 ? faults : `${columns} columns of ${tables} tables can be read`
}

function findRun(folder: DataFolder, world: World): LockHolder | undefined {
  if (!existsSync(folder.ledger)) return undefined
  using ledger = openLedger(folder.ledger)
  return findLockHolder(ledger, world)
}
