import {z} from 'zod'
import type {Ledger} from './ledger.ts'

/** What all syncs that ended well came to, together. */
export interface SyncTotals {
  syncs: number
  pages: number
  records: number
  quarantined: number
  /** Deals created, updated, missing, vanished or restored. */
  changes: number
}

const syncRow: z.ZodType<SyncTotals> = z.object({
  syncs: z.number(),
  pages: z.number(),
  records: z.number(),
  quarantined: z.number(),
  changes: z.number(),
})

/** Sums the figures of all syncs that ended well. */
export function sumSyncs({db}: Ledger): SyncTotals {
  const change = (kind: string) => `coalesce(summary ->> '$.changes.${kind}', 0)`
  const row = db
    .prepare(
      `select
         count(*) as syncs,
         coalesce(sum(summary ->> '$.walk.pages'), 0) as pages,
         coalesce(sum(summary ->> '$.walk.records'), 0) as records,
         coalesce(sum(summary ->> '$.walk.quarantined'), 0) as quarantined,
         coalesce(sum(${['created', 'updated', 'missing', 'vanished', 'restored'].map(change).join(' + ')}), 0) as changes
       from run
       where command = 'sync' and exit_code = 0`,
    )
    .get()
  return syncRow.parse(row)
}

/** What all runs of jobs came to. */
export interface JobTotals {
  runs: {job: string; state: string; runs: number}[]
  /** How late the last run of each job began. */
  lags: {job: string; lag_seconds: number}[]
  exportBytes: number
}

const runsRow: z.ZodType<JobTotals['runs'][number]> = z.object({
  job: z.string(),
  state: z.string(),
  runs: z.number(),
})
const lagRow: z.ZodType<JobTotals['lags'][number]> = z.object({job: z.string(), lag_seconds: z.number()})
const bytesRow = z.object({bytes: z.number()})

/** Sums what runs of jobs came to. */
export function sumJobRuns({db}: Ledger): JobTotals {
  const runs = db.prepare('select job, state, count(*) as runs from job_run group by job, state').all()
  const lags = db
    .prepare(
      `select job, (julianday(started_at) - julianday(slot)) * 86400.0 as lag_seconds
       from (
         select *, row_number() over (partition by job order by started_at desc) as recency
         from job_run where slot is not null and started_at is not null
       )
       where recency = 1`,
    )
    .all()
  const bytes = db
    .prepare(
      `select coalesce(sum(batch.value ->> '$.bytes'), 0) as bytes
       from job_run, json_each(job_run.summary, '$.steps') as step, json_each(step.value, '$.result') as batch
       where step.value ->> '$.do' = 'export'`,
    )
    .get()
  return {
    runs: runs.map((row) => runsRow.parse(row)),
    lags: lags.map((row) => lagRow.parse(row)),
    exportBytes: bytesRow.parse(bytes).bytes,
  }
}
