import {z} from 'zod'

/** One check's result. */
export type CheckResult = z.output<typeof checkResult>
const checkResult = z.object({
  name: z.string(),
  severity: z.enum(['error', 'warn']),
  /** Rows that are wrong. */
  failures: z.number(),
  /** The first few of them, as text, each led by its id. */
  samples: z.array(z.string()),
  /** Sum of their column `deals`, where they have one. */
  deals: z.number().optional(),
  /** What to do about them. */
  next: z.string().optional(),
})

/** One check's result with the first rows it found, up to 100. */
export interface CheckOutcome extends CheckResult {
  /** The values of their first column. */
  ids: string[]
  rows: Record<string, unknown>[]
}

/** One table of a release. */
export type ReleaseTable = z.output<typeof releaseTable>
const releaseTable = z.object({
  name: z.string(),
  rows: z.number(),
  file: z.string(),
  bytes: z.number(),
  sha256: z.string(),
  /** The columns by which its Parquet file is in order. */
  order: z.array(z.string()),
})

const part = z.object({deals: z.number(), amount: z.string()})

/** How the records of the last walk became the deals that are present; amounts are decimal text. */
export type SourceBridge = z.output<typeof sourceBridgeSchema>
export const sourceBridgeSchema = z.object({
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

/** What `manifest.json` of a release says. */
export type ReleaseManifest = z.output<typeof releaseManifestSchema>
export const releaseManifestSchema = z.object({
  schema_version: z.literal(1),
  generator: z.string(),
  engine: z.string(),
  release_id: z.string(),
  /** `YYYY-MM-DD` */
  as_of: z.string(),
  /** ISO 8601 with microseconds, UTC. */
  known_at: z.string(),
  /** Of the last settle that counts: it stands for everything the release knows. */
  history_id: z.string(),
  /** Where the tape stood that says so: it commits to every line before it. */
  tape_head: z.string(),
  /** Business date of the last walk that counts. */
  observed_until: z.string(),
  currency: z.literal('USD'),
  time_zone: z.string(),
  source: sourceBridgeSchema,
  checks: z.object({passed: z.number(), warned: z.number(), results: z.array(checkResult)}),
  models: z.array(z.object({name: z.string(), rows: z.number(), duration_ms: z.number()})),
  tables: z.array(releaseTable),
})
