import {accessSync, constants, existsSync, mkdirSync} from 'node:fs'
import {dirname, join, resolve} from 'node:path'
import {ConfigError, codeOf} from '../errors.ts'

/** Where everything under `--data` lies; all paths are absolute. */
export interface DataFolder {
  root: string
  warehouse: string
  history: string
  previousHistory: string
  ledger: string
  releases: string
  current: string
  /** The release of the last `build --select`, which is nobody's but its builder's. */
  scratch: string
  exports: string
  /** The key of hashed personal data, where none is set. */
  hashKey: string
  /** Where the engine puts what does not fit into its memory. */
  spill: string
  /** Marks a folder as a demo's. */
  demoMark: string
}

/** The paths of a data folder, which need not exist. */
export function dataFolderAt(dataDir: string): DataFolder {
  const root = resolve(dataDir)
  return {
    root,
    warehouse: join(root, 'warehouse.duckdb'),
    history: join(root, 'history.duckdb'),
    previousHistory: join(root, 'history.previous.duckdb'),
    ledger: join(root, 'ledger.sqlite'),
    releases: join(root, 'releases'),
    current: join(root, 'current'),
    scratch: join(root, 'scratch'),
    exports: join(root, 'exports'),
    hashKey: join(root, 'hash.key'),
    spill: join(root, '.spill'),
    demoMark: join(root, '.loantape-demo'),
  }
}

/**
 * Creates the folder where it is missing and makes sure it can be written.
 *
 * @throws ConfigError `DATA_DIR_NOT_WRITABLE`
 */
export function requireWritable(folder: DataFolder): void {
  try {
    createFolder(folder.root)
    accessSync(`${folder.root}/`, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (error) {
    throw new ConfigError({
      code: 'DATA_DIR_NOT_WRITABLE',
      problem: `Data folder '${folder.root}' cannot be written (${codeOf(error)}).`,
      kept: 'Nothing was started; what is stored there is untouched.',
      next: 'Give loantape a folder it may write with --data or LOANTAPE_DATA_DIR.',
      cause: error,
    })
  }
}

/** `mkdir -p`. Node's own never returns where the system refuses a folder with ENOENT, as /proc does. */
function createFolder(path: string): void {
  if (existsSync(path)) return
  createFolder(dirname(path))
  try {
    mkdirSync(path)
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error
  }
}
