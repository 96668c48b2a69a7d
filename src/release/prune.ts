import {existsSync, readdirSync, readlinkSync, rmSync, statSync} from 'node:fs'
import {basename, join} from 'node:path'
import {isProcessAlive} from '../process.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

/**
 * Removes the oldest releases beyond `kept`, never the current one, and what builds that died left behind.
 *
 * @returns the ids that were removed
 */
export function pruneReleases(folder: DataFolder, kept: number): string[] {
  if (!existsSync(folder.releases)) return []
  const current = existsSync(folder.current) ? basename(readlinkSync(folder.current)) : undefined
  const entries = readdirSync(folder.releases)
  const abandoned = entries.filter((name) => isAbandonedBuild(name))
  const releases = entries
    .filter((name) => !name.startsWith('.'))
    .map((name) => ({name, builtAt: statSync(join(folder.releases, name)).mtimeMs}))
    .sort((a, b) => b.builtAt - a.builtAt || (a.name < b.name ? 1 : -1))
    .map(({name}) => name)
  const others = releases.filter((name) => name !== current)
  const surplus = others.slice(Math.max(0, current === undefined ? kept : kept - 1))
  for (const name of [...surplus, ...abandoned]) {
    rmSync(join(folder.releases, name), {recursive: true, force: true})
  }
  return surplus
}

/** `.building-<release>-<pid>` of a process that is no longer there. */
function isAbandonedBuild(name: string): boolean {
  const pid = /^\.building-.*-(\d+)$/.exec(name)?.[1]
  return pid !== undefined && !isProcessAlive(Number(pid))
}
