import {existsSync, readdirSync, readlinkSync, renameSync, rmSync, statSync} from 'node:fs'
import {basename, join} from 'node:path'
import {codeOf} from '../errors.ts'
import {isAbandoned, WRITER_MARK} from '../process.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {isPast} from './past.ts'

/** How many releases stay. */
export interface ReleaseRetention {
  /** Of those that were current once, the current one among them. */
  kept: number
  /** Of those built for past dates. */
  pastKept: number
}

/** What may go from the releases' folder. */
export interface SurplusReleases {
  /** Ids of releases, the newest first. */
  releases: string[]
  /** Folders of builds that died. */
  abandoned: string[]
}

/**
 * The oldest releases beyond those kept, and of past dates those not used for longest; never the current one or one that
 * is needed. And what builds that died left behind.
 */
export function listSurplusReleases(
  folder: DataFolder,
  {kept, pastKept}: ReleaseRetention,
  needed: ReadonlySet<string> = new Set(),
): SurplusReleases {
  if (!existsSync(folder.releases)) return {releases: [], abandoned: []}
  const current = existsSync(folder.current) ? basename(readlinkSync(folder.current)) : undefined
  const entries = readdirSync(folder.releases)
  const releases = entries
    .filter((name) => !name.startsWith('.') && name !== current && !needed.has(name))
    .map((name) => ({name, usedAt: statSync(join(folder.releases, name)).mtimeMs}))
    .sort((a, b) => b.usedAt - a.usedAt || (a.name < b.name ? 1 : -1))
    .map(({name}) => name)
  const {past = [], nightly = []} = Object.groupBy(releases, (name) =>
    isPast(join(folder.releases, name)) ? 'past' : 'nightly',
  )
  const surplus = [
    ...nightly.slice(Math.max(0, current === undefined ? kept : kept - 1)),
    ...past.slice(pastKept),
  ]
  return {
    releases: releases.filter((name) => surplus.includes(name)),
    abandoned: entries.filter(
      (name) => name.startsWith('.building-') && isAbandoned(join(folder.releases, name)),
    ),
  }
}

/**
 * Removes what {@link listSurplusReleases} names.
 *
 * @returns the ids that were removed
 */
export function pruneReleases(
  folder: DataFolder,
  retention: ReleaseRetention,
  needed?: ReadonlySet<string>,
): string[] {
  const {releases, abandoned} = listSurplusReleases(folder, retention, needed)
  for (const name of releases) removeRelease(folder, name)
  for (const name of abandoned) rmSync(join(folder.releases, name), {recursive: true, force: true})
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
