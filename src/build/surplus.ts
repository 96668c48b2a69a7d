import {
  existsSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs'
import {basename, join} from 'node:path'
import type {Config} from '../core/config.ts'
import {codeOf} from '../core/errors.ts'
import {removeAbandoned, WRITER_MARK} from '../core/process.ts'
import type {DataFolder} from '../store/data-folder.ts'

/** The mark of a release of a past date that was never current; it has its own retention. */
const MARK = '.past'

/** Marks a new release as one of a past date. */
export function markPast(buildDir: string): void {
  writeFileSync(join(buildDir, MARK), '')
}

/** Whether a release is of a past date and was never current. */
export function isPast(dir: string): boolean {
  return existsSync(join(dir, MARK))
}

/** Records that a release of a past date was used, so that it stays longer; if it becomes current, it loses its mark. */
export function noteUse(dir: string, isCurrent: boolean, at: Date): void {
  if (!isPast(dir)) return
  if (isCurrent) rmSync(join(dir, MARK), {force: true})
  utimesSync(dir, at, at)
}

/** How many releases are kept: those that were ever current, and those of past dates. */
type Retention = Pick<Config, 'releasesKept' | 'pastReleasesKept'>

/**
 * Releases to remove: the oldest beyond those kept and, of past dates, the least recently used; never the current one or a needed
 * one.
 */
export function listSurplusReleases(
  folder: DataFolder,
  {releasesKept, pastReleasesKept}: Retention,
  needed: ReadonlySet<string>,
): string[] {
  if (!existsSync(folder.releases)) return []
  const current = existsSync(folder.current) ? basename(readlinkSync(folder.current)) : undefined
  const releases = readdirSync(folder.releases)
    .filter((name) => !name.startsWith('.') && name !== current && !needed.has(name))
    .map((name) => ({name, usedAt: statSync(join(folder.releases, name)).mtimeMs}))
    .sort((a, b) => b.usedAt - a.usedAt || (a.name < b.name ? 1 : -1))
    .map(({name}) => name)
  const {past = [], nightly = []} = Object.groupBy(releases, (name) =>
    isPast(join(folder.releases, name)) ? 'past' : 'nightly',
  )
  const surplus = [
    ...nightly.slice(Math.max(0, current === undefined ? releasesKept : releasesKept - 1)),
    ...past.slice(pastReleasesKept),
  ]
  return releases.filter((name) => surplus.includes(name))
}

/**
 * Removes what {@link listSurplusReleases} names, and what dead builds left.
 *
 * @returns the ids that were removed
 */
export function pruneReleases(
  folder: DataFolder,
  retention: Retention,
  needed: ReadonlySet<string>,
): string[] {
  const releases = listSurplusReleases(folder, retention, needed)
  for (const name of releases) removeRelease(folder, name)
  removeAbandoned(folder.releases, '.building-')
  return releases
}

/** Renames a release before removing it, so that a half-removed one looks like a dead build. */
function removeRelease({releases}: DataFolder, name: string): void {
  const aside = join(releases, `.building-${name}${WRITER_MARK}`)
  try {
    renameSync(join(releases, name), aside)
  } catch (error) {
    // Another process removed it first.
    if (codeOf(error) !== 'ENOENT') throw error
  }
  rmSync(aside, {recursive: true, force: true})
}
