import {mkdirSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {DatabaseSync} from 'node:sqlite'
import type {Job} from '../../src/schedule/job.ts'
import {type JobRun, jobRunRow} from '../../src/schedule/job-runs.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {createGate, sendJson, startTestServer, type TestServer} from '../source/test-server.ts'
import {aRecord} from './record.ts'

/** Reads rows of the state database; none before a process has created it. */
export function readState(path: string, sql: string): Record<string, unknown>[] {
  let db: DatabaseSync | undefined
  try {
    // A process recovering after a crash holds the file for a moment.
    db = new DatabaseSync(path, {readOnly: true, timeout: 1_800_000})
    return db.prepare(sql).all()
  } catch (error) {
    if (/unable to open|no such table/.test(String(error))) return []
    throw error
  } finally {
    db?.close()
  }
}

/** Lists the latest runs of jobs that were started or skipped, newest first. */
export const listJobRuns = (stateDb: StateDb, limit: number): JobRun[] =>
  stateDb.all(
    jobRunRow,
    'select * from job_run order by coalesce(ended_at, started_at, slot) desc, job_run_id desc limit ?',
    [limit],
  )

/** A nightly job that builds. */
export const aJob = (fields: Partial<Job> = {}): Job => ({
  name: 'nightly',
  schedule: '30 2 * * *',
  timeZone: 'America/New_York',
  catchUp: 'latest',
  graceMinutes: 360,
  timeoutMinutes: 240,
  enabled: true,
  steps: [{do: 'build'}],
  ...fields,
})

/** Steps that wait for a held source and build nothing. */
export const READ_RATES = {steps: [{do: 'ingest_rates'}]}

/** The feeds file for {@link READ_RATES}. */
export const RATES_FILE: string = JSON.stringify({feeds: [{name: 'pricing'}]})

/** Starts a source of two deals and no rates, which answers no list until its gate is opened. */
export async function startHeldSource(): Promise<TestServer & {open: () => void}> {
  const gate = createGate()
  const data = ['deal_1', 'deal_2'].map((id) => aRecord({id}))
  const server = await startTestServer(async ({path}, response) => {
    if (path !== '/v1/deals' && path !== '/v1/rates') return sendJson(response, {}, {status: 404})
    await gate.opened
    sendJson(response, {data: path === '/v1/deals' ? data : [], has_more: false, next_cursor: null})
  })
  return {...server, open: gate.open}
}

/** Writes a job file; by default the job syncs, and catches up the latest slot of the last hour. */
export function writeJobFile(dir: string, name: string, fields: Record<string, unknown>): void {
  const usual = {timeZone: 'UTC', catchUp: 'latest', graceMinutes: 60, steps: [{do: 'sync'}]}
  const job = {name, schedule: '* * * * * *', ...usual, ...fields}
  writeFileSync(join(dir, `${name}.yaml`), JSON.stringify(job))
}

export function disableBuiltInJobs(dir: string): void {
  for (const name of ['nightly', 'hourly-refresh', 'rates']) writeJobFile(dir, name, {enabled: false})
}

/** Makes the job `once` due: five minutes ago, and not again this year. @param write writes its file with this schedule */
export function makeOnceDue(statePath: string, write: (schedule: string) => void): void {
  const due = new Date(Date.now() - 5 * 60_000)
  const schedule = `${due.getUTCMinutes()} ${due.getUTCHours()} ${due.getUTCDate()} ${due.getUTCMonth() + 1} *`
  write(schedule)
  mkdirSync(dirname(statePath), {recursive: true})
  using stateDb = openStateDb(statePath)
  const anHourAgo = new Date(Date.now() - 3_600_000).toISOString()
  const seen = {watched_from: anHourAgo, seen_until: anHourAgo, seen_before: null}
  stateDb.insert('job_watch', {job: 'once', schedule, time_zone: 'UTC', ...seen}, 'or replace')
}
