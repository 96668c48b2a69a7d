import {z} from 'zod'
import {HOUR_MS} from '../clock.ts'
import type {Config} from '../config.ts'
import {quantity} from '../money.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import {type Condition, readSince} from '../state/alarms.ts'
import {type JobRun, listLastAttempts} from '../state/job-runs.ts'
import {findFirstWatch} from '../state/job-watch.ts'
import {findFailedRun, findLastSuccess, findOutcomeSince, type Run} from '../state/runs.ts'
import type {StateDb} from '../state/state-db.ts'

/** A condition that is not as it should be. */
export interface Alarm extends Condition {
  /** ISO 8601, real clock. */
  since: string
}

/** What is wrong now, whether people were told of it or not; oldest first. */
export function listAlarms(
  stateDb: StateDb,
  config: Pick<Config, 'alarmMaxAgeHours'>,
  now: number,
  release: ReleaseManifest | undefined,
): Alarm[] {
  return readConditions(stateDb, config, now, release)
    .filter(({state}) => state !== 'ok')
    .map((condition) => ({...condition, since: readSince(stateDb, condition, now)}))
    .sort((a, b) => (a.since < b.since ? -1 : 1))
}

/** What people are told about, as the state database and the current release have it now. */
export function readConditions(
  stateDb: StateDb,
  config: Pick<Config, 'alarmMaxAgeHours'>,
  now: number,
  release: ReleaseManifest | undefined,
): Condition[] {
  const lastSync = findLastSuccess(stateDb, 'sync')
  return [
    ...describeLimits(release),
    ...listLastAttempts(stateDb).map((run) => describeJob(run, findFailure(stateDb, run))),
    ...describeFreshness(lastSync, findFirstWatch(stateDb), config, now),
    ...describeQuarantine(lastSync),
    ...describeRates(findLastSuccess(stateDb, 'rates')),
  ]
}

const TITLES: Record<number, string> = {
  2: 'is set up wrongly',
  3: 'failed a check, nothing was released',
  5: 'was refused by the source',
  6: 'could not finish its walk',
  7: 'met a source that broke its contract',
  8: 'was stopped by a guard',
}

/** The run that a job failed with, and the last run of the same command since, if there is one. */
function findFailure(stateDb: StateDb, job: JobRun): {failed: Run; later: Run | undefined} | undefined {
  const failed = job.exit_code === 0 ? undefined : findFailedRun(stateDb, job)
  return failed && {failed, later: findOutcomeSince(stateDb, failed)}
}

function describeJob(run: JobRun, failure: ReturnType<typeof findFailure>): Condition {
  const name = `job ${run.job}`
  const which = `Run ${run.job_run_id} of job ${run.job}, due ${run.slot ?? 'when asked for'}`
  if (run.exit_code === 0) {
    return {name, state: 'ok', title: `job ${run.job} is done`, words: `${which}, ended ${run.ended_at}.`}
  }
  const {failed, later} = failure ?? {}
  if (later?.exit_code === 0) {
    const words = `${which}, failed; run ${later.run_id} did what it failed at. What follows in the job is done at its next slot.`
    return {name, state: 'ok', title: `${failed?.command} of job ${run.job} is done`, words}
  }
  const {exit_code, error_code, error, ended_at} = later ?? run
  const problem =
    error_code === 'JOB_TIMEOUT' ? 'took too long and was ended' : (TITLES[exit_code ?? 1] ?? 'failed')
  const again =
    run.state === 'queued'
      ? `It is tried again at ${new Date(run.not_before).toISOString()}.`
      : 'It is not tried again before its next slot.'
  const said = later
    ? `Run ${later.run_id} of \`loantape ${later.command}\`, after run ${run.job_run_id} of the job had failed`
    : `${which}, attempt ${run.attempt}`
  return {
    name,
    state: error_code ?? 'failed',
    title: `Job ${run.job} ${problem} [${error_code ?? 'failed'}]`,
    words: `${said}: ${error ?? CRASHED}\n${again}`,
    since: ended_at ?? undefined,
  }
}

const CRASHED =
  'its process ended without a word. What was stored before is intact. See the log of that time; docs/operations.md says how to go on.'

function describeFreshness(
  lastSync: Run | undefined,
  watchedFrom: number | undefined,
  {alarmMaxAgeHours}: Pick<Config, 'alarmMaxAgeHours'>,
  now: number,
): Condition[] {
  const since = lastSync?.ended_at ? Date.parse(lastSync.ended_at) : watchedFrom
  if (since === undefined) return []
  const isStale = now - since > alarmMaxAgeHours * HOUR_MS
  const last = lastSync
    ? `The last was run ${lastSync.run_id}, ended ${lastSync.ended_at}.`
    : 'There was none yet.'
  return [
    isStale
      ? {
          name: 'freshness',
          state: 'stale',
          title: `No sync has succeeded for ${alarmMaxAgeHours} hours`,
          words: `${last} The current release and all exports are kept as they are. See \`loantape status\`.`,
          since: new Date(since + alarmMaxAgeHours * HOUR_MS).toISOString(),
        }
      : {name: 'freshness', state: 'ok', title: 'a sync has succeeded', words: last},
  ]
}

const summarySchema = z.object({walk: z.object({quarantined: z.number(), records: z.number()})})

/** A handful of bad records is looked at in the morning; more of them at once want somebody now. */
const MOST_QUARANTINED = 10

function describeQuarantine(lastSync: Run | undefined): Condition[] {
  const summary = summarySchema.safeParse(JSON.parse(lastSync?.summary ?? 'null'))
  if (!lastSync || !summary.success) return []
  const {quarantined, records} = summary.data.walk
  const counted = `Run ${lastSync.run_id}: ${quarantined} of ${records} records could not be read.`
  return [
    quarantined > MOST_QUARANTINED
      ? {
          name: 'quarantine',
          state: 'above',
          title: `More than ${MOST_QUARANTINED} records in quarantine`,
          words: `${counted} They are kept whole, and their deals count as last known. See \`loantape quarantine list\`.`,
          since: lastSync.ended_at ?? undefined,
        }
      : {name: 'quarantine', state: 'ok', title: 'the quarantine is within its bounds', words: counted},
  ]
}

function describeLimits(release: ReleaseManifest | undefined): Condition[] {
  if (!release) return []
  const exceeded = release.checks.results.find(({name}) => name === 'limit_is_kept')
  const of = `Release ${release.release_id}, as of ${release.as_of}`
  if (!exceeded) return [{name: 'limits', state: 'ok', title: 'all limits are kept', words: `${of}.`}]
  const {failures, samples} = exceeded
  return [
    {
      name: 'limits',
      // Another limit is another state, so that it is told as well.
      state: `exceeded: ${samples.map((sample) => sample.split(' (')[0]).join(', ')}`,
      title: `${quantity(failures, 'limit')} ${failures === 1 ? 'is' : 'are'} exceeded`,
      words: `${of}: ${samples.join('; ')}. See mart.limit_status.`,
      since: release.known_at,
    },
  ]
}

const ratesSchema = z.object({
  faulty: z.number(),
  feeds: z.array(z.object({feed: z.string(), problems: z.array(z.string())})),
})

function describeRates(lastRates: Run | undefined): Condition[] {
  const summary = ratesSchema.safeParse(JSON.parse(lastRates?.summary ?? 'null'))
  if (!lastRates || !summary.success) return []
  const {faulty, feeds} = summary.data
  if (faulty === 0) {
    return [
      {name: 'rates', state: 'ok', title: 'all rates are read', words: `Run ${lastRates.run_id} read them.`},
    ]
  }
  const named = feeds.flatMap(({feed, problems}) => problems.slice(0, 1).map((words) => `${feed}: ${words}`))
  return [
    {
      name: 'rates',
      state: 'faulty',
      title: `${faulty} of ${quantity(feeds.length, 'rate feed')} could not be read whole`,
      words: `Run ${lastRates.run_id}: ${named.join(' ')} Everything else was stored. See docs/rates.md.`,
      since: lastRates.ended_at ?? undefined,
    },
  ]
}
