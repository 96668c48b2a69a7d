import {z} from 'zod'
import {HOUR_MS} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {quantity} from '../core/money.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {findFailedRun, findLastSuccess, findOutcomeSince, type Run} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {type JobRun, listLastAttempts} from './job-runs.ts'
import {findFirstWatch} from './scheduler.ts'

/** The present state of one thing that is watched. */
export interface Condition {
  /** Stable: `job nightly`, `freshness`, `quarantine`. */
  name: string
  /** `ok`, or what is wrong: people are told when it changes. */
  state: string
  /** One line. */
  title: string
  /** What is kept, what to do. */
  words: string
  /** Since when it has this state, ISO 8601, if the data tells. */
  since?: string | null
}

/** A condition that is not `ok`. */
export interface Alarm extends Condition {
  /** ISO 8601, real clock. */
  since: string
}

/** What is watched beside the state database. */
export interface Watched<Settings = Pick<Config, 'alarmMaxAgeHours'>> {
  config: Settings
  /** The current one. */
  release: ReleaseManifest | undefined
  /** The names of the jobs. A removed job raises no alarm: nobody will ever repair its last run. */
  jobs: readonly string[]
}

/** What is wrong now, whether people were told or not; oldest first. */
export function listAlarms(stateDb: StateDb, watched: Watched, now: number): Alarm[] {
  const raised = listRaised(stateDb)
  return readConditions(stateDb, watched, now)
    .filter(({state}) => state !== 'ok')
    .map((condition) => ({...condition, since: sinceOf(condition, raised, now)}))
    .sort((a, b) => (a.since < b.since ? -1 : 1))
}

/** An alarm that people were told of. */
export type Raised = z.output<typeof alarmRow>
const alarmRow = z.object({
  name: z.string(),
  state: z.string(),
  /** ISO 8601, real clock. */
  since: z.string(),
})

/** The alarms that people were told of. */
export function listRaised(stateDb: StateDb): Raised[] {
  return stateDb.all(alarmRow, 'select * from alarm')
}

/** Since when a condition has its state: what people were told, else what the data says, else now. */
export function sinceOf({name, state, since}: Condition, raised: readonly Raised[], now: number): string {
  const told = raised.find((alarm) => alarm.name === name && alarm.state === state)
  return told?.since ?? since ?? new Date(now).toISOString()
}

/** Everything that is watched, as the state database, the current release and the jobs show it. */
export function readConditions(stateDb: StateDb, {config, release, jobs}: Watched, now: number): Condition[] {
  const lastSync = findLastSuccess(stateDb, 'sync')
  return [
    describeLimits(release),
    ...listLastAttempts(stateDb)
      .filter(({job}) => jobs.includes(job))
      .map((run) => describeJob(stateDb, run)),
    describeFreshness(lastSync, findFirstWatch(stateDb), config, now),
    describeQuarantine(lastSync),
    describeRates(findLastSuccess(stateDb, 'rates')),
  ].filter((condition) => condition !== undefined)
}

/** What a job did, by its exit code. */
const FAILURES: Record<number, string> = {
  2: 'is set up wrongly',
  3: 'failed a check, nothing was released',
  5: 'was refused by the source',
  6: 'could not finish its walk',
  7: 'met a source that broke its contract',
  8: 'was stopped by a guard',
}

function describeJob(stateDb: StateDb, run: JobRun): Condition {
  const name = `job ${run.job}`
  const origin = run.slot === null ? 'started by hand' : `due ${run.slot}`
  const which = `Run ${run.job_run_id} of job ${run.job}, ${origin}`
  if (run.exit_code === 0) {
    return {name, state: 'ok', title: `job ${run.job} is done`, words: `${which}, ended ${run.ended_at}.`}
  }
  const failed = findFailedRun(stateDb, run)
  const later = failed && findOutcomeSince(stateDb, failed)
  if (later?.exit_code === 0) {
    const words = `${which}, failed; run ${later.run_id} has since done that step. The steps after it run at the next slot of the job.`
    return {name, state: 'ok', title: `${failed?.command} of job ${run.job} is done`, words}
  }
  const {exit_code, error_code, error, ended_at} = later ?? run
  const problem =
    error_code === 'JOB_TIMEOUT' ? 'took too long and was ended' : (FAILURES[exit_code ?? 1] ?? 'failed')
  const retry =
    run.state === 'queued'
      ? `It is tried again at ${new Date(run.not_before).toISOString()}.`
      : 'It is not tried again before its next slot.'
  const failedRun = later
    ? `Run ${later.run_id} of \`loantape ${later.command}\`, after run ${run.job_run_id} of the job had failed`
    : `${which}, attempt ${run.attempt}`
  return {
    name,
    state: error_code ?? 'failed',
    title: `Job ${run.job} ${problem} [${error_code ?? 'failed'}]`,
    words: `${failedRun}: ${error ?? CRASHED}\n${retry}`,
    since: ended_at,
  }
}

const CRASHED =
  'its process ended and recorded no result. What was stored before is intact. See the log of that time; docs/operations.md says what to do.'

function describeFreshness(
  lastSync: Run | undefined,
  watchedFrom: number | undefined,
  {alarmMaxAgeHours}: Pick<Config, 'alarmMaxAgeHours'>,
  now: number,
): Condition | undefined {
  const since = lastSync?.ended_at ? Date.parse(lastSync.ended_at) : watchedFrom
  if (since === undefined) return undefined
  const last = lastSync
    ? `The last was run ${lastSync.run_id}, ended ${lastSync.ended_at}.`
    : 'There was none yet.'
  const name = 'freshness'
  const staleAt = since + alarmMaxAgeHours * HOUR_MS
  if (now <= staleAt) return {name, state: 'ok', title: 'a sync has succeeded', words: last}
  return {
    name,
    state: 'stale',
    title: `No sync has succeeded for ${alarmMaxAgeHours} hours`,
    words: `${last} The current release and all exports are kept as they are. See \`loantape status\`.`,
    since: new Date(staleAt).toISOString(),
  }
}

const summaryOf = <T>(run: Run | undefined, schema: z.ZodType<T>): T | undefined =>
  schema.safeParse(JSON.parse(run?.summary ?? 'null')).data

const syncSummary = z.object({walk: z.object({quarantined: z.number(), records: z.number()})})

/** A handful of bad records can wait until morning; more need a person now. */
const MOST_QUARANTINED = 10

function describeQuarantine(lastSync: Run | undefined): Condition | undefined {
  const {walk} = summaryOf(lastSync, syncSummary) ?? {}
  if (!lastSync || !walk) return undefined
  const name = 'quarantine'
  const counted = `Run ${lastSync.run_id}: ${walk.quarantined} of ${walk.records} records could not be read.`
  if (walk.quarantined <= MOST_QUARANTINED) {
    return {name, state: 'ok', title: 'the quarantine is within its bounds', words: counted}
  }
  return {
    name,
    state: 'above',
    title: `More than ${MOST_QUARANTINED} records in quarantine`,
    words: `${counted} They are kept whole, and their deals count as last known. See \`loantape quarantine list\`.`,
    since: lastSync.ended_at,
  }
}

function describeLimits(release: ReleaseManifest | undefined): Condition | undefined {
  if (!release) return undefined
  const name = 'limits'
  const exceeded = release.checks.results.find((check) => check.name === 'limit_is_kept')
  const of = `Release ${release.release_id}, as of ${release.as_of}`
  if (!exceeded) return {name, state: 'ok', title: 'all limits are kept', words: `${of}.`}
  const {failures, samples} = exceeded
  return {
    name,
    // Another limit is another state, so that people are told again.
    state: `exceeded: ${samples.map((sample) => sample.split(' (')[0]).join(', ')}`,
    title: `${quantity(failures, 'limit')} ${failures === 1 ? 'is' : 'are'} exceeded`,
    words: `${of}: ${samples.join('; ')}. See mart.limit_status.`,
    since: release.known_at,
  }
}

const ratesSummary = z.object({
  faulty: z.number(),
  feeds: z.array(z.object({feed: z.string(), problems: z.array(z.string())})),
})

function describeRates(lastRates: Run | undefined): Condition | undefined {
  const summary = summaryOf(lastRates, ratesSummary)
  if (!lastRates || !summary) return undefined
  const {faulty, feeds} = summary
  const name = 'rates'
  const words = `Run ${lastRates.run_id} read them.`
  if (faulty === 0) return {name, state: 'ok', title: 'all rates are read', words}
  const named = feeds.flatMap(({feed, problems}) => problems.slice(0, 1).map((words) => `${feed}: ${words}`))
  return {
    name,
    state: 'faulty',
    title: `${faulty} of ${quantity(feeds.length, 'rate feed')} could not be read whole`,
    words: `Run ${lastRates.run_id}: ${named.join(' ')} Everything else was stored. See docs/rates.md.`,
    since: lastRates.ended_at,
  }
}
