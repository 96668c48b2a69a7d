import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import {findCurrentRelease, type Release, readRelease} from '../release/manifest.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import type {Filter} from './filter.ts'

/** The releases that are kept, in no order. */
export function listReleases({releases}: DataFolder): Release[] {
  if (!existsSync(releases)) return []
  const names = readdirSync(releases).filter((name) => !name.startsWith('.'))
  return names.flatMap((name) => readRelease(join(releases, name)) ?? [])
}

/** The release of the same business date that knows most. */
export function findNewest(folder: DataFolder, release: Release): Release {
  const values = new Map([['as_of', [release.manifest.as_of]]])
  return findRelease(folder, {values}) ?? release
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
