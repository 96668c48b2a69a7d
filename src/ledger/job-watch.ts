import {z} from 'zod'
import type {Ledger} from './ledger.ts'

/** Until when a job's slots have been looked for; instants in ms since the epoch. */
export interface JobWatch {
  schedule: string
  timeZone: string
  /** When this schedule was first seen: no slot before it counts. */
  watchedFrom: number
  seenUntil: number
}

const watchRow: z.ZodType<JobWatch> = z
  .object({schedule: z.string(), time_zone: z.string(), watched_from: z.string(), seen_until: z.string()})
  .transform((row) => ({
    schedule: row.schedule,
    timeZone: row.time_zone,
    watchedFrom: Date.parse(row.watched_from),
    seenUntil: Date.parse(row.seen_until),
  }))

/** What is known of a job; undefined when it was never scheduled. */
export function findWatch(ledger: Ledger, job: string): JobWatch | undefined {
  const row = ledger.db.prepare('select * from job_watch where job = ?').get(job)
  return row && watchRow.parse(row)
}

/** Keeps until when a job's slots have been looked for. */
export function storeWatch(ledger: Ledger, job: string, watch: JobWatch): void {
  ledger.db
    .prepare(
      `insert or replace into job_watch (job, schedule, time_zone, watched_from, seen_until) values (?, ?, ?, ?, ?)`,
    )
    .run(
      job,
      watch.schedule,
      watch.timeZone,
      new Date(watch.watchedFrom).toISOString(),
      new Date(watch.seenUntil).toISOString(),
    )
}

/** Since when anything has been scheduled here, ms since the epoch. */
export function findFirstWatch(ledger: Ledger): number | undefined {
  const row = ledger.db.prepare('select min(watched_from) as first from job_watch').get()
  const first = z.object({first: z.string().nullable()}).parse(row).first
  return first === null ? undefined : Date.parse(first)
}
