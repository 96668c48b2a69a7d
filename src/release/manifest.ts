import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {parseJson} from '../json.ts'
import {type ReleaseManifest, releaseManifestSchema} from '../release-manifest.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

/** The DuckDB files of a release. */
export interface ReleaseDatabases {
  /** Its published tables. */
  database: string
  /** The `work` tables that its pages and the next build go on from. */
  work: string
}

/** Where the databases of a release lie in its folder. */
export function databasesOf(dir: string): ReleaseDatabases {
  return {database: join(dir, 'portfolio.duckdb'), work: join(dir, 'work.duckdb')}
}

/** A release on disk. */
export interface Release extends ReleaseDatabases {
  dir: string
  manifest: ReleaseManifest
}

/** Reads the release in a folder; undefined when the folder holds none. */
export function readRelease(dir: string): Release | undefined {
  const path = join(dir, 'manifest.json')
  if (!existsSync(path)) return undefined
  const parsed = releaseManifestSchema.safeParse(parseJson(readFileSync(path, 'utf8')))
  if (parsed.success) return {dir, ...databasesOf(dir), manifest: parsed.data}
  throw newError('RELEASE_MANIFEST', `Manifest '${path}': ${z.prettifyError(parsed.error)}.`)
}

/** The release `current` points to, if there is one. */
export function findCurrentRelease(folder: DataFolder): Release | undefined {
  return readRelease(folder.current)
}

/** Names the release of the last `build --select`. */
const SCRATCH = 'scratch'

/**
 * The release to read: the one named (`scratch` is that of the last `build --select`), or the current one.
 *
 * @throws ConfigError `UNKNOWN_NAME`, `RELEASE_NONE`
 */
export function requireRelease(folder: DataFolder, releaseId?: string): Release {
  if (releaseId === undefined) {
    const current = findCurrentRelease(folder)
    if (current) return current
    throw newError('RELEASE_NONE', `No release in '${folder.root}'.`)
  }
  const dir = releaseId === SCRATCH ? folder.scratch : join(folder.releases, releaseId)
  const release = /^[\w-]+$/.test(releaseId) ? readRelease(dir) : undefined
  if (release) return release
  if (releaseId === SCRATCH) {
    throw newError('UNKNOWN_NAME', `No scratch release in '${folder.root}'.`, {
      next: '`loantape build --select` makes it.',
    })
  }
  throw newError('UNKNOWN_NAME', `Release '${releaseId}' is not in '${folder.releases}'.`, {
    next: '`loantape status` shows the current one; `loantape build --as-of` makes one for a past date.',
  })
}
