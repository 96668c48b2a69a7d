import {type Database, openDatabase} from '../warehouse/database.ts'
import type {Release} from './manifest.ts'

/**
 * Opens a release read-only, attached as `release`, its tables named `core.deal`, `mart.portfolio_summary`, … .
 * Nothing outside it can be read or written, and no statement can change that.
 *
 * @param memoryMb what the engine may hold; 80 % of the memory by default
 */
export async function openRelease(release: Release, memoryMb?: number): Promise<Database> {
  const db = await openDatabase({
    attach: [{path: release.database, alias: 'release', readOnly: true}],
    searchPath: 'release.main',
  })
  if (memoryMb !== undefined) await db.run(`set memory_limit = '${memoryMb}MB'`)
  await db.run('set enable_external_access = false; set lock_configuration = true')
  return db
}
