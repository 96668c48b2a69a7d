import {
  accessSync,
  constants,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  realpathSync,
  statSync,
} from 'node:fs'
import {basename, dirname, isAbsolute, join, relative, resolve} from 'node:path'
import {codeOf, findMachineFault, newError} from '../core/errors.ts'
import {readProcessStart} from '../core/process.ts'
import {ENV_FILE} from '../core/settings.ts'
import {createFolder} from './files.ts'

export type DataFolder = ReturnType<typeof dataFolderAt>

/** The folder need not exist. */
export function dataFolderAt(dataDir: string) {
  const root = resolve(dataDir)
  return {
    root,
    warehouse: join(root, 'warehouse.duckdb'),
    warehouseLock: join(root, 'warehouse.lock'),
    stateDb: join(root, 'state.sqlite'),
    releases: join(root, 'releases'),
    current: join(root, 'current'),
    /** The release of the last `build --select`. */
    scratch: join(root, 'scratch'),
    exports: join(root, 'exports'),
    tapes: join(root, 'tape'),
    /** Holds only what can be computed again, so it may be removed at any time. */
    cache: join(root, 'cache'),
    /** Without this file the next build is whole. */
    lastBuild: join(root, 'cache', 'last-build.json'),
    /** The key of hashed personal data. */
    hashKey: join(root, 'hash.key'),
    /** Maps further fields of deals to columns. */
    fields: join(root, 'fields.json'),
    /** Describes how the source differs from the Deal Financing Service. */
    source: join(root, 'source.json'),
    queries: join(root, 'queries'),
    pages: join(root, 'pages'),
    spill: join(root, '.spill'),
    demoMark: join(root, '.loantape-demo'),
  }
}

/** A restore copies a backup here before it moves the files to their places. */
export const RESTORING = '.restoring'

/** Whether a folder holds anything that loantape stored, or part of a backup. */
export function hasStores(folder: DataFolder): boolean {
  const {root, stateDb, tapes, warehouse, releases, exports} = folder
  const restoring = join(root, RESTORING)
  // Throws for a folder of another user, which `existsSync` would call empty.
  const isThere = (path: string) => statSync(path, {throwIfNoEntry: false}) !== undefined
  return [restoring, stateDb, tapes, warehouse, releases, exports].some(isThere)
}

/** An empty folder means that another one was meant. @throws ConfigError `RELEASE_NONE` */
export function requireStores(folder: DataFolder): void {
  if (!hasStores(folder)) throw newError('RELEASE_NONE', `Data folder '${folder.root}' holds nothing yet.`)
}

/** Sorted, without what is unfinished or hidden, whose name begins with a dot; none if it is not a folder. */
export function listNames(dir: string): string[] {
  const names = statSync(dir, {throwIfNoEntry: false})?.isDirectory() ? readdirSync(dir) : []
  return names.filter((name) => !name.startsWith('.')).sort()
}

/** Names this process in a demo's mark; a process id alone may be reused. */
export const DEMO_PROCESS = `pid ${process.pid} since ${readProcessStart(process.pid) ?? performance.timeOrigin}`

export const isDemoFolder = ({demoMark}: DataFolder) => existsSync(demoMark)

/** Returns the folder. A demo's is open only to that demo's process. @throws ConfigError `NOT_WRITABLE`, `DEMO_FOLDER` */
export function requireWritable(folder: DataFolder): DataFolder {
  createDataFolder(folder)
  const {root, demoMark} = folder
  if (!isDemoFolder(folder) || readFileSync(demoMark, 'utf8').includes(DEMO_PROCESS)) return folder
  throw newError('DEMO_FOLDER', `Data folder '${root}' is a demo's: expected one of your own.`)
}

/** Creates a missing folder and takes even a demo's. @throws ConfigError `NOT_WRITABLE` */
export function createDataFolder({root}: DataFolder): void {
  requireWritableFolder(`Data folder '${root}'`, root)
}

/** @throws ConfigError `NOT_WRITABLE` */
export function requireExports(folder: DataFolder, profile: string): void {
  const own = join(folder.exports, profile)
  for (const path of existsSync(own) ? [folder.exports, own] : [folder.exports])
    requireWritableFolder(`Folder '${path}'`, path, {
      kept: 'Nothing was issued or written; existing batches are kept.',
      next: 'Make it a folder that loantape may write, then export again.',
    })
}

function requireWritableFolder(name: string, path: string, more: {kept?: string; next?: string} = {}): void {
  try {
    createFolder(path)
    accessSync(`${path}/`, constants.R_OK | constants.W_OK | constants.X_OK)
  } catch (cause) {
    const fault = findMachineFault(cause)
    throw fault ?? newError('NOT_WRITABLE', `${name} cannot be written (${codeOf(cause)}).`, {...more, cause})
  }
}

/** More names in the data folder that `--out` may not use; its paths are refused too. */
const KEPT_NAMES = /^(\.|warehouse\.|state\.|accounting\.json$)/

/**
 * Requires of `--out` a new file, or an ordinary one to replace. Returns its absolute path, links followed.
 * @throws ConfigError `OUT_PLACE` if its folder does not exist, it is not an ordinary file, or loantape keeps it
 */
export function requireOutFile(folder: DataFolder, out: string): string {
  const named = resolve(out)
  const refuseOut = (expected: string) => newError('OUT_PLACE', `File '${out}' in --out: ${expected}.`)
  if (!existsSync(dirname(named))) throw refuseOut('expected a folder that exists')
  const found = statSync(named, {throwIfNoEntry: false}) ?? lstatSync(named, {throwIfNoEntry: false})
  if (found?.isFile() === false)
    throw refuseOut('expected a file, not a folder, a device, a pipe or a broken link')
  const [file, root] = [followLinks(named), followLinks(folder.root)]
  for (const path of [named, file]) {
    const [dir, name] = [followLinks(dirname(path)), basename(path)]
    const isKept = KEPT_NAMES.test(name) || Object.values(folder).includes(join(folder.root, name))
    if (isInside(dir, root) && (dir !== root || isKept))
      throw refuseOut('expected a file outside of what loantape keeps in its data folder')
  }
  return file
}

/** Also true of the folder itself. Links are followed. */
export function isInside(path: string, folder: string): boolean {
  const place = relative(followLinks(folder), followLinks(path))
  return place.split('/')[0] !== '..' && !isAbsolute(place)
}

/**
 * Refuses a path of a fleet's source that leads into another source's folder, or to the settings of the fleet.
 * @throws ConfigError `FLEET_DATA_SHARED`
 */
export function requireOwnPlace({sourceDir: dir}: {sourceDir?: string | undefined}, path: string): void {
  if (dir === undefined) return
  const [sources, fleetDir] = [dirname(dir), dirname(dirname(dir))]
  const place = resolve(dir, path)
  const named = isAbsolute(path) ? path : `${dir}/${path}`
  // The system follows a link before it applies a later `..`; `resolve` does not.
  const reached = existsSync(named) ? realpathSync.native(named) : place
  const isForeign = (one: string) =>
    !isInside(one, dir) && (isInside(one, sources) || isInside(one, join(fleetDir, ENV_FILE)))
  if (!isForeign(place) && !isForeign(reached)) return
  throw newError('FLEET_DATA_SHARED', `Path '${place}' of source '${basename(dir)}' lies in another's.`)
}

/** Follows links as far as the path exists. */
function followLinks(path: string): string {
  const whole = resolve(path)
  if (existsSync(whole)) return realpathSync(whole)
  const parent = dirname(whole)
  return parent === whole ? whole : join(followLinks(parent), basename(whole))
}

/** Returns the absolute path, links followed. @throws ConfigError `OUT_PLACE` if it is in the data folder or not empty */
export function requireNewFolder(folder: DataFolder, to: string, what: 'backup' | 'evidence'): string {
  const dir = followLinks(to)
  if (isInside(dir, folder.root))
    throw newError('OUT_PLACE', `Folder '${dir}' for the ${what}: expected one outside the data folder.`)
  if (existsSync(dir) && !(statSync(dir).isDirectory() && readdirSync(dir).length === 0))
    throw newError('OUT_PLACE', `Folder '${dir}' for the ${what}: expected a new or empty one.`)
  return dir
}
