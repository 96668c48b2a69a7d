import {existsSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../errors.ts'
import {parseJson} from '../json.ts'
import type {ReleaseManifest, SourceBridge} from '../types.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

const part = z.object({deals: z.number(), amount: z.string()})

/** The certificate that a manifest names, with its bridge. */
export const sourceBridgeSchema: z.ZodType<SourceBridge> = z.object({
  walk_id: z.string(),
  business_date: z.string(),
  complete: z.boolean(),
  records: z.number(),
  distinct: z.number(),
  amount_total: z.string(),
  duplicates: z.number(),
  quarantined: z.number(),
  kept_quarantined: part,
  kept_missing: part,
  adjusted: part,
  present: part,
})

/** `manifest.json` of a release, as it is read back. */
export const releaseManifestSchema: z.ZodType<ReleaseManifest> = z.object({
  schema_version: z.literal(1),
  generator: z.string(),
  engine: z.string(),
  release_id: z.string(),
  as_of: z.string(),
  known_at: z.string(),
  history_id: z.string().nullable().default(null),
  tape_head: z.string().nullable().default(null),
  observed_until: z.string(),
  currency: z.literal('USD'),
  time_zone: z.string(),
  source: sourceBridgeSchema,
  checks: z.object({
    passed: z.number(),
    warned: z.number(),
    results: z.array(
      z.object({
        name: z.string(),
        severity: z.enum(['error', 'warn']),
        failures: z.number(),
        samples: z.array(z.string()),
      }),
    ),
  }),
  models: z.array(z.object({name: z.string(), rows: z.number(), duration_ms: z.number()})),
  tables: z.array(
    z.object({name: z.string(), rows: z.number(), file: z.string(), bytes: z.number(), sha256: z.string()}),
  ),
})

/** A release on disk. */
export interface Release {
  dir: string
  /** The DuckDB file. */
  database: string
  manifest: ReleaseManifest
}

/** Reads the release in a folder; undefined when the folder holds none. */
export function readRelease(dir: string): Release | undefined {
  const path = join(dir, 'manifest.json')
  if (!existsSync(path)) return undefined
  const parsed = releaseManifestSchema.safeParse(parseJson(readFileSync(path, 'utf8')))
  if (parsed.success) return {dir, database: join(dir, 'portfolio.duckdb'), manifest: parsed.data}
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
 * @throws ConfigError `RELEASE_UNKNOWN`, `RELEASE_NONE`
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
    throw newError('RELEASE_UNKNOWN', `No scratch release in '${folder.root}'.`)
  }
  throw newError('RELEASE_UNKNOWN', `Release '${releaseId}' is not in '${folder.releases}'.`, {
    next: '`loantape status` shows the current one; `loantape build --as-of` makes one for a past date.',
  })
}
