import {z} from 'zod'
import type {StateDb} from './state-db.ts'

const syncRow = z.object({
  syncs: z.number(),
  pages: z.number(),
  records: z.number(),
  quarantined: z.number(),
  /** Deals created, updated, missing, vanished or restored. */
  changes: z.number(),
})

/** Sums the figures of all syncs that ended well. */
export function sumSyncs(stateDb: StateDb) {
  const change = (kind: string) => `coalesce(summary ->> '$.changes.${kind}', 0)`
  return stateDb.one(
    syncRow,
    `select
       count(*) as syncs,
       coalesce(sum(summary ->> '$.walk.pages'), 0) as pages,
       coalesce(sum(summary ->> '$.walk.records'), 0) as records,
       coalesce(sum(summary ->> '$.walk.quarantined'), 0) as quarantined,
       coalesce(sum(${['created', 'updated', 'missing', 'vanished', 'restored'].map(change).join(' + ')}), 0) as changes
     from run
     where command = 'sync' and exit_code = 0`,
  )
}

/** Counts the runs of each job by state, and looks at the last: how late it began, what bytes of batches it wrote. */
export function sumJobRuns(stateDb: StateDb) {
  const runs = stateDb.all(
    z.object({job: z.string(), state: z.string(), runs: z.number()}),
    'select job, state, count(*) as runs from job_run group by job, state',
  )
  const last = stateDb.all(
    z.object({job: z.string(), lag_seconds: z.number(), bytes: z.number()}),
    `select
       run.job,
       (julianday(run.started_at) - julianday(run.slot)) * 86400.0 as lag_seconds,
       (
         select coalesce(sum(batch.value ->> '$.bytes'), 0)
         from json_each(run.summary, '$.steps') as step, json_each(step.value, '$.result') as batch
         where step.value ->> '$.do' = 'export'
       ) as bytes
     from (select distinct job from job_run) as known
     join job_run as run on run.job_run_id = (
       select job_run_id from job_run
       where job = known.job and started_at is not null and slot is not null
       order by started_at desc
       limit 1
     )`,
  )
  return {runs, last}
}
