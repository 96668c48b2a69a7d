import {z} from 'zod'
import {HOUR_MS} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {quantity} from '../core/money.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {findFailedRun, findLastSuccess, findOutcomeSince, type Run} from '../store/runs.ts'
import {inStateTransaction, type StateDb} from '../store/state-db.ts'
import {type JobRun, listLastAttempts} from './job-runs.ts'
import {findFirstWatch} from './scheduler.ts'

/** Something that is watched, as it is now. */
interface Condition {
  /** Stable: `job nightly`, `freshness`, `quarantine`. */
  name: string
  /** `ok`, or what is wrong: another code is another state. */
  state: string
  /** One line. */
  title: string
  /** What is kept, what to do. */
  words: string
  /** When it came to be so, ISO 8601; undefined where that is only known as it is looked at. */
  since?: string | undefined
}

/** An alarm that people were told of. */
type Raised = z.output<typeof alarmRow>
const alarmRow = z.object({
  name: z.string(),
  state: z.string(),
  /** ISO 8601, real clock. */
  since: z.string(),
})

/** A message about a change of state, on its way to one channel. */
type Notice = z.output<typeof noticeRow>
const noticeRow = z.object({
  notice_id: z.number(),
  channel: z.string(),
  title: z.string(),
  words: z.string(),
  /** A file that goes along where the channel can carry one. */
  file: z.string().nullable(),
})

const DAY_MS = 86_400_000
const KEPT_DAYS = 30
/** A notice that cannot be sent is given up after this long. */
const SENT_WITHIN_DAYS = 3

/** Since when a condition is as it is: since people were told so, where they were. */
function readSince(stateDb: StateDb, condition: Condition, now: number): string {
  return sinceOf(condition, listRaised(stateDb), now)
}

function sinceOf({name, state, since}: Condition, raised: readonly Raised[], now: number): string {
  const told = raised.find((alarm) => alarm.name === name && alarm.state === state)
  return told?.since ?? since ?? new Date(now).toISOString()
}

const listRaised = (stateDb: StateDb): Raised[] => stateDb.all(alarmRow, 'select * from alarm')

/**
 * Compares conditions with the alarms that are raised and queues one notice per channel for each that changed, in one
 * transaction: however many processes look, a change is told once.
 */
export function settleAlarms(
  stateDb: StateDb,
  {conditions, channels}: {conditions: readonly Condition[]; channels: readonly string[]},
  now: number,
): void {
  const changed = (raised: readonly Raised[]) =>
    conditions.filter(
      ({name, state}) => state !== (raised.find((alarm) => alarm.name === name)?.state ?? 'ok'),
    )
  const names = new Set(conditions.map(({name}) => name))
  const before = listRaised(stateDb)
  const isForgotten = before.some(({name}) => !names.has(name))
  if (changed(before).length === 0 && !isForgotten) return
  inStateTransaction(stateDb, () => {
    const raised = listRaised(stateDb)
    for (const condition of changed(raised)) {
      const {name, state} = condition
      if (state === 'ok') stateDb.run('delete from alarm where name = ?', [name])
      else stateDb.insert('alarm', {name, state, since: sinceOf(condition, raised, now)}, 'or replace')
      const before = raised.find((alarm) => alarm.name === name)
      const message = state === 'ok' ? describeRecovery(condition, before) : condition
      for (const channel of channels) insertNotice(stateDb, {channel, alarm: name, message}, now)
    }
    // What is watched no more, such as a job whose runs are forgotten, is no alarm.
    stateDb.run('delete from alarm where name not in (select value from json_each(?))', [
      JSON.stringify([...names]),
    ])
    stateDb.run('delete from notice where created_at < ?', [new Date(now - KEPT_DAYS * DAY_MS).toISOString()])
  })
}

function describeRecovery(
  {title, words}: Condition,
  before: Raised | undefined,
): {title: string; words: string} {
  const held = before ? `${before.state} had held since ${before.since}. ` : ''
  return {title: `Recovered: ${title}`, words: `${held}${words}`}
}

/** A notice is tried again after this long, then after twice as long each time. */
const FIRST_PAUSE_MS = 60_000
const LONGEST_PAUSE_MS = 3_600_000

/** Queues a message for each channel. One of a name that was told is not told again. */
export function queueNews(
  stateDb: StateDb,
  {
    name,
    channels,
    ...message
  }: {name: string; channels: readonly string[]; title: string; words: string; file: string},
  now: number,
): void {
  inStateTransaction(stateDb, () => {
    if (stateDb.column(z.number(), 'select 1 from notice where alarm = ? limit 1', [name]).length > 0) return
    for (const channel of channels) insertNotice(stateDb, {channel, alarm: name, message}, now)
  })
}

function insertNotice(
  stateDb: StateDb,
  {channel, alarm, message}: {channel: string; alarm: string; message: object},
  now: number,
): void {
  const untried = {attempts: 0, next_attempt_at: now, created_at: new Date(now).toISOString()}
  stateDb.insert('notice', {channel, alarm, message: JSON.stringify(message), ...untried})
}

/** Takes the next notice that is due for sending; nobody else gets it before its next attempt is due. */
export function claimNotice(stateDb: StateDb, channels: readonly string[], now: number): Notice | undefined {
  return stateDb.first(
    noticeRow,
    `update notice set
       attempts = attempts + 1,
       next_attempt_at = ?1 + min(${FIRST_PAUSE_MS} << min(attempts, 6), ${LONGEST_PAUSE_MS})
     where notice_id = (
       select notice_id from notice
       where sent_at is null and next_attempt_at <= ?1 and created_at > ?2
         and channel in (select value from json_each(?3))
       order by notice_id limit 1
     )
     returning notice_id, channel, message ->> '$.title' as title, message ->> '$.words' as words, message ->> '$.file' as file`,
    [now, new Date(now - SENT_WITHIN_DAYS * DAY_MS).toISOString(), JSON.stringify(channels)],
  )
}

/** Records how sending went; `error` null when it arrived. */
export function recordSending(stateDb: StateDb, notice: Notice, error: string | null, now: number): void {
  const sentAt = error === null ? new Date(now).toISOString() : null
  stateDb.run('update notice set sent_at = ?, error = ? where notice_id = ?', [
    sentAt,
    error,
    notice.notice_id,
  ])
}

/** A condition that is not as it should be. */
export interface Alarm extends Condition {
  /** ISO 8601, real clock. */
  since: string
}

/** What is watched beside the state database. */
export interface Watched<Settings = Pick<Config, 'alarmMaxAgeHours'>> {
  config: Settings
  /** The current one. */
  release: ReleaseManifest | undefined
  /** Names: what a job failed at that is there no more, nothing will ever do. */
  jobs: readonly string[]
}

/** What is wrong now, whether people were told of it or not; oldest first. */
export function listAlarms(stateDb: StateDb, watched: Watched, now: number): Alarm[] {
  return readConditions(stateDb, watched, now)
    .filter(({state}) => state !== 'ok')
    .map((condition) => ({...condition, since: readSince(stateDb, condition, now)}))
    .sort((a, b) => (a.since < b.since ? -1 : 1))
}

/** What people are told about, as the state database and the current release have it now. */
export function readConditions(stateDb: StateDb, {config, release, jobs}: Watched, now: number): Condition[] {
  const lastSync = findLastSuccess(stateDb, 'sync')
  return [
    ...describeLimits(release),
    ...listLastAttempts(stateDb)
      .filter(({job}) => jobs.includes(job))
      .map((run) => describeJob(run, findFailure(stateDb, run))),
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
