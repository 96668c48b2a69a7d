import {existsSync, readdirSync, realpathSync, statSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {findCurrentRelease, type Release, readRelease} from '../release/manifest.ts'
import {isPast} from '../release/surplus.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import type {Filter} from './filter.ts'

/** The releases that are kept, in no order. */
export function listReleases({releases}: Pick<DataFolder, 'releases'>): Release[] {
  if (!existsSync(releases)) return []
  const names = readdirSync(releases).filter((name) => !name.startsWith('.'))
  return names.flatMap((name) => readRelease(join(releases, name)) ?? [])
}

/** The release of the same business date that knows most. */
export function findNewest(folder: DataFolder, release: Release): Release {
  const values = new Map([['as_of', [release.manifest.as_of]]])
  return findRelease(folder, {values}) ?? release
}

/** The release that readers saw before this one, whatever its day, as far as it is kept. */
export function findSeenBefore({dir, manifest: {release_id, known_at}}: Release): Release | undefined {
  const own = realpathSync(dir)
  const isBefore = (other: Release) =>
    other.manifest.known_at < known_at ||
    (other.manifest.known_at === known_at && statSync(other.dir).mtimeMs < statSync(own).mtimeMs)
  return listReleases({releases: dirname(own)})
    .filter((other) => other.manifest.release_id !== release_id && !isPast(other.dir) && isBefore(other))
    .reduce<Release | undefined>(
      (last, other) => (last && last.manifest.known_at >= other.manifest.known_at ? last : other),
      undefined,
    )
}

/** The release of a business date, as it was known at an instant; without either the current one. */
export function findRelease(folder: DataFolder, {values}: Pick<Filter, 'values'>): Release | undefined {
  const [asOf] = values.get('as_of') ?? []
  const [knownAt] = values.get('known_at') ?? []
  if (asOf === undefined && knownAt === undefined) return findCurrentRelease(folder)
  // An instant, or a day of which all counts.
  const isKnown = ({manifest}: Release) =>
    knownAt === undefined || manifest.known_at.slice(0, knownAt.length) <= knownAt
  const order = ({manifest}: Release) => `${manifest.as_of} ${manifest.known_at}`
  return listReleases(folder)
    .filter((release) => (asOf === undefined || release.manifest.as_of === asOf) && isKnown(release))
    .sort((a, b) => (order(a) < order(b) ? 1 : -1))[0]
}
