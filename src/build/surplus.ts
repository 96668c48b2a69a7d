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

/** Lies in a release that was built for a past date and never was the current one: retention counts it apart. */
const MARK = '.past'

/** Marks a release that is being built as one of a past date. */
export function markPast(buildDir: string): void {
  writeFileSync(join(buildDir, MARK), '')
}

/** Whether a release was built for a past date, and readers never saw it as the current one. */
export function isPast(dir: string): boolean {
  return existsSync(join(dir, MARK))
}

/** Notes that a release is used again: as one of a past date it is young again, as the current one it is none any more. */
export function noteUse(dir: string, isCurrent: boolean, at: Date): void {
  if (!isPast(dir)) return
  if (isCurrent) rmSync(join(dir, MARK), {force: true})
  utimesSync(dir, at, at)
}

/** How many releases stay: of those that were current once, the current one among them, and of those built for past dates. */
type Retention = Pick<Config, 'releasesKept' | 'pastReleasesKept'>

/**
 * The oldest releases beyond those kept, and of past dates those not used for longest; never the current one or one that
 * is needed.
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
 * Removes what {@link listSurplusReleases} names, and what builds that died have left.
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

/** A release is there or not: one that is half removed bears the name of a build that died. */
function removeRelease({releases}: DataFolder, name: string): void {
  const aside = join(releases, `.building-${name}${WRITER_MARK}`)
  try {
    renameSync(join(releases, name), aside)
  } catch (error) {
    // Another process was first.
    if (codeOf(error) !== 'ENOENT') throw error
  }
  rmSync(aside, {recursive: true, force: true})
}
