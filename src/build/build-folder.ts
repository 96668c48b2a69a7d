import {
  existsSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import {chmod, writeFile} from 'node:fs/promises'
import {basename, dirname, join, relative} from 'node:path'
import {z} from 'zod'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {removeAbandoned, temporaryBeside} from '../core/process.ts'
import {type DataFolder, listNames} from '../store/data-folder.ts'
import {type Database, inLanes, quoteLiteral, quoteName} from '../store/database.ts'
import {type BegunFolder, digestFile, removeFolder, syncBelow, syncToDisk} from '../store/files.ts'
import {
  databasesOf,
  type Release,
  type ReleaseManifest,
  type ReleaseTable,
  readRelease,
  unlessDamaged,
} from '../store/release.ts'
import type {Around} from './build-models.ts'

/**
 * Writes tables as `<schema>.<table>.parquet` beside the database. `order` names the columns that order a table's file;
 * `isStored` says that its rows are stored in that order. `contract` is 1 by default.
 */
export async function writeParquetFiles(
  db: Database,
  dir: string,
  tables: readonly {name: string; order: readonly string[]; isStored: boolean; contract?: number}[],
  around: Around = (_table, write) => write(),
): Promise<ReleaseTable[]> {
  const byName = tables.toSorted((a, b) => (a.name < b.name ? -1 : 1))
  return inLanes(db, byName, async ({name, order, isStored, contract = 1}, lane) => {
    const file = `${name}.parquet`
    const path = join(dir, file)
    const by = isStored ? '' : ` order by ${order.map(quoteName).join(', ')}`
    const write = () =>
      lane.value(
        z.coerce.number(),
        `copy (from release.${name}${by}) to ${quoteLiteral(path)}
         (format parquet, compression zstd, compression_level 1)`,
      )
    const rows = await around({name, file}, write, lane)
    const [{size: bytes}, sha256] = [statSync(path), await digestFile(path)]
    return {name, rows, file, bytes, sha256, order: [...order], contract}
  })
}

/**
 * Writes the manifest last, makes every file read-only and gives the folder its final name. If another process has published the
 * same release meanwhile, that copy stays: a reader may have it open. The scratch release and a damaged release are replaced.
 */
export async function placeRelease(
  built: BegunFolder,
  known: Omit<ReleaseManifest, 'files'>,
  {isScratch = false}: {isScratch?: boolean} = {},
): Promise<Release> {
  const {dir, final} = built
  const others = readdirSync(dir).filter(
    (file) => !file.startsWith('.') && !known.tables.some((table) => table.file === file),
  )
  const files = others.map((file) => ({file, bytes: statSync(join(dir, file)).size}))
  const manifest = {...known, files}
  await writeFile(join(dir, 'manifest.json'), `${JSON.stringify(manifest, null, 2)}\n`)
  for (const file of readdirSync(dir)) await chmod(join(dir, file), 0o400)
  await syncBelow(dir)
  built.finish(() => !isScratch && unlessDamaged(() => readRelease(final)) !== undefined)
  return {dir: final, ...databasesOf(final), manifest}
}

/** Points `current` at a release, atomically. */
export function moveCurrent(folder: Pick<DataFolder, 'current' | 'root'>, releaseDir: string): void {
  const temporary = temporaryBeside(folder.current)
  symlinkSync(relative(dirname(folder.current), releaseDir), temporary)
  renameSync(temporary, folder.current)
  syncToDisk(folder.root)
}

/**
 * Replaces `current` by a link where it is a folder, because the data folder was copied with its links followed.
 * @throws UnexpectedError `RELEASE_DAMAGED` if the release that it holds is not among the others
 */
export function linkCurrent({current, releases, root}: DataFolder): void {
  const id = unlessDamaged(() => readRelease(current))?.manifest.release_id
  const release = id === undefined ? undefined : unlessDamaged(() => readRelease(join(releases, id)))
  if (!release) {
    const problem = `'${current}' is a folder: expected a link to a release in '${releases}'.`
    const next = 'Remove that folder, then run `loantape build`, which makes the link.'
    throw newError('RELEASE_DAMAGED', problem, {next})
  }
  removeFolder(current)
  moveCurrent({current, root}, release.dir)
}

/** Marks a release of a past date that was never current. Such releases have a retention of their own. */
const MARK = '.past'

export function markPast(buildDir: string): void {
  writeFileSync(join(buildDir, MARK), '')
}

/** Is a release of a past date that was never current. */
export function isPast(dir: string): boolean {
  return existsSync(join(dir, MARK))
}

/**
 * Makes a release the last used one, even if the clock was ahead when others were used, so that a release just built is never
 * removed for its age. A nightly release that is used again later keeps its place; a release of a past date loses its mark when
 * it becomes current.
 */
export function noteUse(dir: string, isCurrent: boolean, now: number): void {
  if (!isCurrent && !isPast(dir)) return
  if (isCurrent) rmSync(join(dir, MARK), {force: true})
  const releases = dirname(dir)
  const uses = listNames(releases).map((name) => usedAtOf(join(releases, name)))
  const at = Math.max(now, ...uses.map((use) => use + 1)) / 1000
  utimesSync(dir, at, at)
}

/** 0 if another process removes it. */
const usedAtOf = (dir: string) => statSync(dir, {throwIfNoEntry: false})?.mtimeMs ?? 0

type Retention = Pick<Config, 'releasesKept' | 'pastReleasesKept'>

/**
 * The oldest nightly releases, and the least recently used of past dates, beyond what is kept; never the current one or a needed
 * one.
 */
export function listSurplusReleases(
  folder: DataFolder,
  {releasesKept, pastReleasesKept}: Retention,
  needed: ReadonlySet<string>,
): string[] {
  const current = existsSync(folder.current) ? basename(readlinkSync(folder.current)) : undefined
  const releases = listNames(folder.releases)
    .filter((name) => name !== current && !needed.has(name))
    .map((name) => ({name, usedAt: usedAtOf(join(folder.releases, name))}))
    .sort((a, b) => b.usedAt - a.usedAt || (a.name < b.name ? 1 : -1))
    .map(({name}) => name)
  const {past = [], nightly = []} = Object.groupBy(releases, (name) =>
    isPast(join(folder.releases, name)) ? 'past' : 'nightly',
  )
  const others = current === undefined ? releasesKept : releasesKept - 1
  return [...nightly.slice(Math.max(0, others)), ...past.slice(pastReleasesKept)]
}

/** The release that was current before; undefined if none is kept. */
export const findPreviousRelease = (folder: DataFolder): string | undefined =>
  listSurplusReleases(folder, {releasesKept: 1, pastReleasesKept: Number.POSITIVE_INFINITY}, new Set())[0]

/** Also removes what dead builds left. Returns the ids of surplus releases. */
export function pruneReleases(
  folder: DataFolder,
  retention: Retention,
  needed: ReadonlySet<string>,
): string[] {
  const releases = listSurplusReleases(folder, retention, needed)
  for (const name of releases) removeFolder(join(folder.releases, name))
  removeAbandoned(folder.releases, '.')
  return releases
}
