import {type Database, openDatabase, quoteLiteral} from '../warehouse/database.ts'
import type {Release} from './manifest.ts'

/** What queries may spill to the disk. */
const MOST_SPILLED = '4GB'

/** How a release is opened. */
export interface OpenOptions {
  /** What the engine may hold; 80 % of the memory by default. */
  memoryMb?: number | undefined
  /** Also attach its `work` tables, as `kept`, and set the variables that models use. */
  withWork?: boolean
  /** Where queries may spill to; by default nowhere. */
  spillDir?: string
  /** The only file beside the release that statements can reach; by default there is none. */
  file?: string | undefined
}

/**
 * Opens a release read-only, attached as `release`, its tables named `core.deal`, `mart.portfolio_summary`, … .
 * Nothing outside it can be read or written, and no statement can change that.
 */
export async function openRelease(release: Release, options: OpenOptions = {}): Promise<Database> {
  const {memoryMb, withWork, spillDir, file} = options
  const {database, work, manifest} = release
  const db = await openDatabase({
    attach: [
      {path: database, alias: 'release', readOnly: true},
      ...(withWork ? [{path: work, alias: 'kept', readOnly: true}] : []),
    ],
    searchPath: 'release.main',
  })
  if (withWork) {
    await db.run(
      `set variable as_of = date ${quoteLiteral(manifest.as_of)};
       set variable time_zone = ${quoteLiteral(manifest.time_zone)}`,
    )
  }
  if (memoryMb !== undefined) await db.run(`set memory_limit = '${memoryMb}MB'`)
  if (spillDir !== undefined)
    await db.run(
      `set temp_directory = ${quoteLiteral(spillDir)}; set max_temp_directory_size = '${MOST_SPILLED}'`,
    )
  if (file !== undefined) await db.run(`set allowed_paths = [${quoteLiteral(file)}]`)
  await db.run('set enable_external_access = false; set lock_configuration = true')
  return db
}
