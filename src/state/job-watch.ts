import {z} from 'zod'
import {inStateTransaction, type StateDb} from './state-db.ts'

/** A clock that goes ahead or back by more than this between two looks has stepped, or its machine slept. */
export const JUMP_MS = 120_000

/** Until when a job's slots have been looked for; instants in ms since the epoch. */
export type JobWatch = z.output<typeof watchRow>
const watchRow = z
  .object({
    schedule: z.string(),
    time_zone: z.string(),
    watched_from: z.string(),
    seen_until: z.string(),
    seen_before: z.string().nullable(),
  })
  .transform((row) => ({
    schedule: row.schedule,
    timeZone: row.time_zone,
    /** When this schedule was first seen: no slot before it counts. */
    watchedFrom: Date.parse(row.watched_from),
    seenUntil: Date.parse(row.seen_until),
    /** Where the last look that went over more than {@link JUMP_MS} began; null before the first. */
    seenBefore: row.seen_before === null ? null : Date.parse(row.seen_before),
  }))

/** What is known of a job; undefined when it was never scheduled. */
export function findWatch(stateDb: StateDb, job: string): JobWatch | undefined {
  return stateDb.first(watchRow, 'select * from job_watch where job = ?', [job])
}

/** Keeps until when a job's slots have been looked for. */
export function storeWatch(stateDb: StateDb, job: string, watch: JobWatch): void {
  const row = {
    job,
    schedule: watch.schedule,
    time_zone: watch.timeZone,
    watched_from: new Date(watch.watchedFrom).toISOString(),
    seen_until: new Date(watch.seenUntil).toISOString(),
    seen_before: watch.seenBefore === null ? null : new Date(watch.seenBefore).toISOString(),
  }
  stateDb.insert('job_watch', row, 'or replace')
}

/**
 * Takes back what was noted under a clock that has been far ahead of `now` since: slots are looked for again from where
 * they were before, those that were not run are forgotten, and nothing is noted as later than now.
 *
 * @returns until when slots had been looked for, ms since the epoch; null where the clock was not ahead
 */
export function takeBackLooks(stateDb: StateDb, now: number): number | null {
  const latest = findInstant(stateDb, 'select max(seen_until) from job_watch')
  if (latest === undefined || latest - now <= JUMP_MS) return null
  const at = new Date(now).toISOString()
  inStateTransaction(stateDb, () => {
    stateDb.run(
      `update job_watch set watched_from = min(watched_from, ?1), seen_until = min(?1, coalesce(seen_before, ?1)),
         seen_before = null
       where seen_until > ?1`,
      [at],
    )
    stateDb.run(
      `delete from job_run
       where state not in ('running', 'done')
         and slot > coalesce((select seen_until from job_watch where job_watch.job = job_run.job), ?1)
         and (slot > ?1 or attempt = 0)`,
      [at],
    )
    for (const [table, column] of STAMPS) {
      stateDb.run(`update ${table} set ${column} = ?1 where ${column} > ?1`, [at])
    }
  })
  return latest
}

/** Real instants from which something is counted. */
const STAMPS = [
  ['job_run', 'started_at'],
  ['job_run', 'ended_at'],
  ['run', 'started_at'],
  ['run', 'ended_at'],
  ['webhook_event', 'received_at'],
] as const

/** Since when anything has been scheduled here, ms since the epoch. */
export function findFirstWatch(stateDb: StateDb): number | undefined {
  return findInstant(stateDb, 'select min(watched_from) from job_watch')
}

function findInstant(stateDb: StateDb, sql: string): number | undefined {
  const [instant = null] = stateDb.column(z.string().nullable(), sql)
  return instant === null ? undefined : Date.parse(instant)
}
