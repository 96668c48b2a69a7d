import {existsSync, readdirSync, readlinkSync, rmSync, statSync} from 'node:fs'
import {basename, join} from 'node:path'
import {isProcessAlive} from '../process.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

/** What may go from the releases' folder. */
export interface SurplusReleases {
  /** Ids of releases, the newest first. */
  releases: string[]
  /** Folders of builds that died. */
  abandoned: string[]
}

/** The oldest releases beyond `kept`, never the current one or one that is needed, and what builds that died left behind. */
export function listSurplusReleases(
  folder: DataFolder,
  kept: number,
  needed: ReadonlySet<string> = new Set(),
): SurplusReleases {
  if (!existsSync(folder.releases)) return {releases: [], abandoned: []}
  const current = existsSync(folder.current) ? basename(readlinkSync(folder.current)) : undefined
  const entries = readdirSync(folder.releases)
  const releases = entries
    .filter((name) => !name.startsWith('.'))
    .map((name) => ({name, builtAt: statSync(join(folder.releases, name)).mtimeMs}))
    .sort((a, b) => b.builtAt - a.builtAt || (a.name < b.name ? 1 : -1))
    .map(({name}) => name)
  const others = releases.filter((name) => name !== current && !needed.has(name))
  return {
    releases: others.slice(Math.max(0, current === undefined ? kept : kept - 1)),
    abandoned: entries.filter(isAbandonedBuild),
  }
}

/**
 * Removes what {@link listSurplusReleases} names.
 *
 * @returns the ids that were removed
 */
export function pruneReleases(folder: DataFolder, kept: number, needed?: ReadonlySet<string>): string[] {
  const {releases, abandoned} = listSurplusReleases(folder, kept, needed)
  for (const name of [...releases, ...abandoned]) {
    rmSync(join(folder.releases, name), {recursive: true, force: true})
  }
  return releases
}

/** `.building-<release>-<pid>` of a process that is no longer there. */
function isAbandonedBuild(name: string): boolean {
  const pid = /^\.building-.*-(\d+)$/.exec(name)?.[1]
  return pid !== undefined && !isProcessAlive(Number(pid))
}
