import {z} from 'zod'
import {HOUR_MS} from '../clock.ts'
import type {Config} from '../config.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {Condition} from '../state/alarms.ts'
import {type JobRun, listLastAttempts} from '../state/job-runs.ts'
import {findFirstWatch} from '../state/job-watch.ts'
import {findLastSuccess, type Run} from '../state/runs.ts'
import type {StateDb} from '../state/state-db.ts'

/** What people are told about, as the state database and the current release have it now. */
export function readConditions(
  stateDb: StateDb,
  config: Pick<Config, 'alarmMaxAgeHours' | 'alarmQuarantine'>,
  now: number,
  release: ReleaseManifest | undefined,
): Condition[] {
  const lastSync = findLastSuccess(stateDb, 'sync')
  return [
    ...describeLimits(release),
    ...listLastAttempts(stateDb).map(describeJob),
    ...describeFreshness(lastSync, findFirstWatch(stateDb), config, now),
    ...describeQuarantine(lastSync, config),
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

function describeJob(run: JobRun): Condition {
  const name = `job ${run.job}`
  const which = `Run ${run.job_run_id} of job ${run.job}, due ${run.slot ?? 'when asked for'}`
  if (run.exit_code === 0) {
    return {name, state: 'ok', title: `job ${run.job} is done`, words: `${which}, ended ${run.ended_at}.`}
  }
  const problem =
    run.error_code === 'JOB_TIMEOUT'
      ? 'took too long and was ended'
      : (TITLES[run.exit_code ?? 1] ?? 'failed')
  const again =
    run.state === 'queued'
      ? `It is tried again at ${new Date(run.not_before).toISOString()}.`
      : 'It is not tried again before its next slot.'
  return {
    name,
    state: run.error_code ?? 'failed',
    title: `Job ${run.job} ${problem} [${run.error_code ?? 'failed'}]`,
    words: `${which}, attempt ${run.attempt}: ${run.error ?? CRASHED}\n${again}`,
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
        }
      : {name: 'freshness', state: 'ok', title: 'a sync has succeeded', words: last},
  ]
}

const summarySchema = z.object({walk: z.object({quarantined: z.number(), records: z.number()})})

function describeQuarantine(
  lastSync: Run | undefined,
  {alarmQuarantine}: Pick<Config, 'alarmQuarantine'>,
): Condition[] {
  const summary = summarySchema.safeParse(JSON.parse(lastSync?.summary ?? 'null'))
  if (!lastSync || !summary.success) return []
  const {quarantined, records} = summary.data.walk
  const counted = `Run ${lastSync.run_id}: ${quarantined} of ${records} records could not be read.`
  return [
    quarantined > alarmQuarantine
      ? {
          name: 'quarantine',
          state: 'above',
          title: `More than ${alarmQuarantine} records in quarantine`,
          words: `${counted} They are kept whole, and their deals count as last known. See \`loantape quarantine list\`.`,
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
      title: `${failures} ${failures === 1 ? 'limit is' : 'limits are'} exceeded`,
      words: `${of}: ${samples.join('; ')}. See mart.limit_status.`,
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
      title: `${faulty} of ${feeds.length} rate feeds could not be read whole`,
      words: `Run ${lastRates.run_id}: ${named.join(' ')} Everything else was stored. See docs/rates.md.`,
    },
  ]
}
