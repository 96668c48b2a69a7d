import {z} from 'zod'
import {STREAMS} from '../contract/streams.ts'
import {DAY_MS, HOUR_MS, isBehind} from '../core/clock.ts'
import {type Config, envNameOf} from '../core/config.ts'
import {type LoantapeError, retellError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {groupThousands, quantity} from '../core/money.ts'
import {MOST_FAILURES_IN_A_ROW} from '../source/ask-each.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {findLastSuccess, findRunSince, type Run, summaryOf} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {type Job, webhookJob} from './job.ts'
import {isoOf, type JobRun, listLastAttempts} from './job-runs.ts'

export interface Condition {
  /** Stable: `job nightly`, `freshness`, `quarantine`. */
  name: string
  /** `ok`, or what is wrong; when it changes, people are told. */
  state: string
  title: string
  /** What is kept and what to do. */
  words: string
  /** Since when it has this state, ISO 8601, if the data says so. */
  since?: string | null
}

export interface Alarm extends Condition {
  /** ISO 8601, real clock. */
  since: string
}

export interface Watched {
  config: Pick<Config, 'alarmMaxAgeHours' | (typeof CHANNELS)[Channel]['on']>
  release: ReleaseManifest | undefined
  damage?: LoantapeError | undefined
  /** A job that was removed raises no alarm, because nobody would ever repair its last run. */
  jobs: readonly (Pick<Job, 'name' | 'fault'> & Partial<Pick<Job, 'enabled'>>)[]
  /** Why no job is run, and since when, ISO 8601, real clock. */
  fault?: {problem: LoantapeError; since: string} | undefined
}

/** Includes what people were not told yet; oldest first. */
export function listAlarms(stateDb: StateDb, watched: Watched, now: number): Alarm[] {
  const alarms = findAlarms(readConditions(stateDb, watched, now), listHeld(stateDb), now)
  return alarms.sort((a, b) => (a.since < b.since ? -1 : 1))
}

const heldRow = z.object({name: z.string(), state: z.string(), since: z.string()})

export const listHeld = (stateDb: StateDb) =>
  new Map(stateDb.all(heldRow, 'select * from alarm').map((alarm) => [alarm.name, alarm]))

/** `since` is when a look first found the alarm, else what the data says, else now. */
export const findAlarms = (
  conditions: readonly Condition[],
  held: ReturnType<typeof listHeld>,
  now: number,
) =>
  conditions
    .filter(({state}) => state !== 'ok')
    .map((condition): Alarm => {
      const before = held.get(condition.name)
      const since = before?.state === condition.state ? before.since : condition.since
      return {...condition, since: since ?? isoOf(now)}
    })

export function readConditions(stateDb: StateDb, watched: Watched, now: number): Condition[] {
  const {config, release, damage, jobs, fault} = watched
  const lastSync = findLastSuccess(stateDb, 'sync')
  const attempts = new Map(listLastAttempts(stateDb).map((run) => [run.job, run]))
  return [
    fault
      ? {...faulty('served', 'No job is run', fault.problem), since: fault.since}
      : ok('served', 'jobs are run', ''),
    damage
      ? faulty('release', 'The current release is damaged', damage)
      : release && ok('release', 'the current release is whole', `Release ${release.release_id}.`),
    describeLimits(release),
    ...[webhookJob, ...jobs].map(({name, fault, enabled}) => {
      const run = attempts.get(name)
      if (fault) return faulty(`job ${name}`, `Job ${name} is never due: its file is wrong`, fault)
      if (run) return describeJob(stateDb, run, enabled)
      return ok(`job ${name}`, `job ${name} can run`, 'It has not run yet.')
    }),
    describeFreshness(stateDb, lastSync, config, now),
    describeQuarantine(lastSync),
    ...describeReading(lastSync),
    describeRates(findLastSuccess(stateDb, 'rates')),
    describeDigests(stateDb, now),
    ...CHANNEL_NAMES.map((channel) => describeChannel(stateDb, config, channel, now)),
  ].filter((condition) => condition !== undefined)
}

const ok = (name: string, title: string, words: string): Condition => ({name, state: 'ok', title, words})

const faulty = (
  name: string,
  title: string,
  {code, message}: Pick<LoantapeError, 'code' | 'message'>,
): Condition => ({
  name,
  state: code,
  title: `${title} [${code}]`,
  words: scrubSecrets(message),
})

/** Says how a job failed, by error code, else by exit code. */
const FAILURES: Record<string, string> = {
  JOB_TIMEOUT: 'took too long and was ended',
  PERIOD_STATE: 'could not close a month',
  2: 'is set up wrongly',
  3: 'failed a check',
  5: 'was refused',
  6: 'could not finish',
  7: 'met a source that broke its contract',
  8: 'was stopped by a guard',
}

const because = z.object({code: z.string(), message: z.string()}).optional()
const batch = z.object({profile: z.string(), period: z.string().optional(), because})
const exportsSummary = z.object({steps: z.array(z.object({result: z.array(batch).catch([])}))})

function describeJob(stateDb: StateDb, run: JobRun, isDue = true): Condition {
  const name = `job ${run.job}`
  const origin = run.slot === null ? (run.reason ?? 'started by hand') : `due ${run.slot}`
  const byHand = `\`loantape run ${run.job}\``
  const which = `Run ${run.job_run_id} of job ${run.job}, ${origin}`
  if (run.exit_code === 0) {
    const results = summaryOf(run, exportsSummary)?.steps.flatMap(({result}) => result) ?? []
    const {profile, period, because} = results.find((batch) => batch.because) ?? {}
    if (!because) return ok(name, `job ${run.job} is done`, `${which}, ended ${run.ended_at}.`)
    const {words, ...left} = faulty(
      name,
      `Job ${run.job} could not issue entries of ${period} to ${profile}`,
      because,
    )
    const next = `The next export makes up for it; ${byHand} ends this alarm.`
    return {...left, words: `${which}: ${words}\n${next}`, since: run.ended_at}
  }
  const later = findRunSince(stateDb, run)
  if (later?.exit_code === 0) {
    const words = `${which}, failed; run ${later.run_id} has since done that step. The steps after it run ${isDue ? 'at the next slot of the job' : `with ${byHand}`}.`
    return ok(name, `${later.command} of job ${run.job} is done`, words)
  }
  const {exit_code, error_code, error, ended_at} = later ?? run
  const problem = (error_code && FAILURES[error_code]) ?? FAILURES[exit_code ?? 1] ?? 'failed'
  const retries: Partial<Record<JobRun['state'], string>> = {
    queued: `It is tried again at ${isoOf(run.not_before)}.`,
    running: 'It is being tried again.',
  }
  const left = isDue ? 'It is not tried again before its next slot.' : `${byHand} tries it again.`
  const ofEvents = run.job === webhookJob.name && 'It is tried again after half an hour.'
  const retry = retries[run.state] ?? (ofEvents || left)
  const failedRun = later
    ? `Run ${later.run_id} of \`loantape ${later.command}\`, after run ${run.job_run_id} of the job had failed`
    : `${which}, attempt ${run.attempt}`
  return {
    name,
    state: error_code ?? 'failed',
    title: `Job ${run.job} ${problem} [${error_code ?? 'failed'}]`,
    words: `${failedRun}: ${error}\n${retry}`,
    since: ended_at,
  }
}

function describeFreshness(
  stateDb: StateDb,
  lastSync: Run | undefined,
  {alarmMaxAgeHours}: Watched['config'],
  now: number,
): Condition | undefined {
  const firstWatch = 'select min(watched_from) from job_watch'
  const since = lastSync?.ended_at ?? stateDb.column(z.string().nullable(), firstWatch)[0]
  if (since == null) return undefined
  const last = lastSync
    ? `The last was run ${lastSync.run_id}, ended ${lastSync.ended_at}.`
    : 'There was none yet.'
  if (isBehind(now, Date.parse(since))) {
    const words = `${last} Walks may be refused until then. See \`loantape doctor\`.`
    return {name: 'freshness', state: 'clock ahead', title: 'The clock was ahead at the last sync', words}
  }
  const staleAt = Date.parse(since) + alarmMaxAgeHours * HOUR_MS
  if (now <= staleAt) return ok('freshness', 'a sync has succeeded', last)
  return {
    name: 'freshness',
    state: 'stale',
    title: `No sync has succeeded for ${quantity(alarmMaxAgeHours, 'hour')}`,
    words: `${last} The current release and all exports are kept as they are. See \`loantape status\`.`,
    since: isoOf(staleAt),
  }
}

const syncSummary = z.object({
  walk: z.object({
    quarantined: z.number(),
    records: z.number(),
    details: z.object({fetched: z.number(), failed: z.number()}),
  }),
  streams: z.array(
    z.object({stream: z.string(), listed: z.number(), failed: z.number(), reason: z.string().nullable()}),
  ),
})

/** A few bad records can wait until morning; more need a person now. */
const MOST_QUARANTINED = 10

function describeQuarantine(lastSync: Run | undefined): Condition | undefined {
  const {walk} = summaryOf(lastSync, syncSummary) ?? {}
  if (!lastSync || !walk) return undefined
  const counted = `Run ${lastSync.run_id}: ${groupThousands(walk.quarantined)} of ${groupThousands(walk.records)} records could not be read.`
  if (walk.quarantined <= MOST_QUARANTINED)
    return ok('quarantine', 'the quarantine is within its bounds', counted)
  return {
    name: 'quarantine',
    state: 'above',
    title: `More than ${MOST_QUARANTINED} records in quarantine`,
    words: `${counted} They are kept whole, and their deals count as last known. See \`loantape quarantine list\`.`,
    since: lastSync.ended_at,
  }
}

/** Own pages, and the lists of child streams. Where too few were asked for, the alarm stays. */
function describeReading(lastSync: Run | undefined): (Condition | undefined)[] {
  const {walk, streams} = summaryOf(lastSync, syncSummary) ?? {}
  if (!lastSync || !walk || !streams) return []
  const since = lastSync.ended_at
  const describe = (
    name: string,
    what: string,
    {read, failed}: {read: number; failed: number},
    advice: string,
  ) => {
    const counted = `Run ${lastSync.run_id} read ${groupThousands(read)} ${what}; ${groupThousands(failed)} could not be read.`
    if (read > 0 || failed === 0) return ok(name, `${what} are read`, counted)
    if (failed < MOST_FAILURES_IN_A_ROW) return undefined
    const words = `${counted} What only they show stays as last known. The log says why. If the source has none, ${advice}.`
    return {name, state: 'unread', title: `None of the ${what} could be read`, words, since}
  }
  const {fetched: read, failed} = walk.details
  return [
    describe('details', 'own pages of deals', {read, failed}, 'set LOANTAPE_DETAIL=off'),
    ...STREAMS.filter(({parent}) => parent).map(({plural: stream}) => {
      const found = streams.find((one) => one.stream === stream)
      if (!found) return ok(stream, `no lists of ${stream} are asked for`, '')
      const {listed, failed, reason} = found
      if (reason === null && listed + failed === 0) return undefined
      if (reason === null)
        return describe(
          stream,
          `lists of ${stream}`,
          {read: listed, failed},
          `take ${stream} out of LOANTAPE_STREAMS`,
        )
      const problem = `Run ${lastSync.run_id} read ${quantity(listed, 'list')} of ${stream} and applied none.`
      const error = retellError({
        code: reason,
        problem,
        kept: `What was known of ${stream} is kept; deals were applied.`,
      })
      return {...faulty(stream, `Lists of ${stream} were refused`, error), since}
    }),
  ]
}

function describeLimits(release: ReleaseManifest | undefined): Condition | undefined {
  if (!release) return undefined
  const exceeded = release.checks.results.find((check) => check.name === 'limit_is_kept')
  const of = `Release ${release.release_id}, as of ${release.as_of}`
  if (!exceeded) {
    const isAny = release.tables.some(({name, rows}) => name === 'mart.limit_status' && rows > 0)
    return ok('limits', isAny ? 'all limits are kept' : 'no limit is set', `${of}.`)
  }
  const {failures, ids} = exceeded
  const samples = exceeded.samples.map((sample) =>
    sample.replaceAll(/\b([a-z_]+)=(\d[\d.-]*)/g, (_, column: string, value: string) => {
      const shown = value.includes('.') ? `$${groupThousands(value)}` : value
      return `${column.replaceAll('_', ' ')} ${shown}`
    }),
  )
  return {
    name: 'limits',
    // The limits are part of the state, so that people are told again when others are exceeded.
    state: `${failures} exceeded: ${ids.map((id) => JSON.stringify(id)).join(', ')}`,
    title: `${quantity(failures, 'limit')} ${failures === 1 ? 'is' : 'are'} exceeded`,
    words: `${of}: ${[...samples, ...ids.slice(samples.length)].join('; ')}. See mart.limit_status.`,
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
  if (feeds.length === 0) return ok('rates', 'no feed of rates is named', '')
  if (faulty === 0) return ok('rates', 'all rates are read', `Run ${lastRates.run_id} read them.`)
  const named = feeds.flatMap(({feed, problems}) => problems.slice(0, 1).map((words) => `${feed}: ${words}`))
  return {
    name: 'rates',
    state: 'faulty',
    title: `${faulty} of ${quantity(feeds.length, 'rate feed')} could not be read whole`,
    words: `Run ${lastRates.run_id}: ${named.join(' ')} Everything else was stored. See docs/rates.md.`,
    since: lastRates.ended_at,
  }
}

/** The setting that turns each channel on, and the one to look at when its messages fail. */
export const CHANNELS = {
  webhook: {on: 'alarmWebhookUrl', suspect: 'alarmWebhookUrl'},
  email: {on: 'alarmEmailTo', suspect: 'smtpUrl'},
} as const

export type Channel = keyof typeof CHANNELS
export const CHANNEL_NAMES = Object.keys(CHANNELS) as Channel[]

export const listAlarmChannels = (config: Watched['config']): Channel[] =>
  CHANNEL_NAMES.filter((channel) => config[CHANNELS[channel].on] !== undefined)

/** A notice that could not be sent for this long is given up. */
export const SENT_WITHIN_DAYS = 3

/** Messages that fail for this long are an alarm. */
export const UNSENT_AFTER_MS = HOUR_MS

export const nameOfChannel = (channel: string) => `channel ${channel}`

function describeChannel(
  stateDb: StateDb,
  config: Watched['config'],
  channel: Channel,
  now: number,
): Condition {
  const name = nameOfChannel(channel)
  if (!listAlarmChannels(config).includes(channel)) return ok(name, `no messages go by ${channel}`, '')
  const failed = stateDb.first(
    z.object({created_at: z.string(), error: z.string()}),
    `select created_at, error from notice as failed
     where channel = ?1 and sent_at is null and error is not null and message ->> '$.to' is null and created_at <= ?2
       and not exists (select 1 from notice where channel = ?1 and sent_at > failed.created_at)
     order by notice_id limit 1`,
    [channel, isoOf(now - UNSENT_AFTER_MS)],
  )
  if (!failed) return ok(name, `messages are sent by ${channel}`, '')
  const setting = envNameOf(CHANNELS[channel].suspect)
  const words = `That of ${failed.created_at} failed: ${failed.error} Each is tried for ${SENT_WITHIN_DAYS} days. Check ${setting}; the alarm ends when a message arrives.`
  const title = `Messages by ${channel} cannot be sent`
  return {name, state: 'unsent', title, words, since: failed.created_at}
}

/** A day after a digest is given up, nobody can tell whether it still matters. */
function describeDigests(stateDb: StateDb, now: number): Condition {
  const to = `message ->> '$.to'`
  const failed = stateDb.first(
    z.object({created_at: z.string(), error: z.string(), to: z.string()}),
    `select created_at, error, ${to} as "to" from notice as failed
     where alarm like 'digest %' and sent_at is null and error is not null and ${to} is not null and created_at <= ?1 and created_at > ?2
       and not exists (select 1 from notice where ${to} = failed.${to} and sent_at > failed.created_at)
     order by notice_id limit 1`,
    [isoOf(now - UNSENT_AFTER_MS), isoOf(now - (SENT_WITHIN_DAYS + 1) * DAY_MS)],
  )
  if (!failed) return ok('digests', 'no mail of a digest fails', '')
  const words = `That of ${failed.created_at} to ${failed.to} failed: ${failed.error} Each is tried for ${SENT_WITHIN_DAYS} days, then given up. Check \`to\` of the digest in its job, and LOANTAPE_SMTP_URL.`
  const title = 'A digest cannot be mailed'
  return {name: 'digests', state: 'unsent', title, words, since: failed.created_at}
}
