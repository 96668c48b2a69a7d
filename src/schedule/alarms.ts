import {existsSync, readFileSync} from 'node:fs'
import {basename} from 'node:path'
import {z} from 'zod'
import {STREAMS} from '../contract/streams.ts'
import {DAY_MS, HOUR_MS, isBehind} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {codeOf, explainError, LoantapeError, messageOf, newError, retellError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {quantity} from '../core/money.ts'
import type {World} from '../core/types.ts'
import {MOST_FAILURES_IN_A_ROW} from '../source/ask-each.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {type Release, type ReleaseManifest, requireRelease} from '../store/release.ts'
import {findLastSuccess, findRunSince, type Run, summaryOf} from '../store/runs.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {type DigestStep, type Job, webhookJob} from './job.ts'
import {isoOf, type JobRun, listLastAttempts} from './job-runs.ts'

/** The present state of one thing that is watched. */
interface Condition {
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

/** A condition that is not `ok`. */
export interface Alarm extends Condition {
  /** ISO 8601, real clock. */
  since: string
}

/** What is watched besides the state database. */
interface Watched {
  config: Pick<Config, 'alarmMaxAgeHours' | 'alarmWebhookUrl' | 'alarmEmailTo'>
  release: ReleaseManifest | undefined
  damage?: LoantapeError | undefined
  /** A job that was removed raises no alarm, because nobody would ever repair its last run. */
  jobs: readonly Pick<Job, 'name' | 'fault'>[]
  /** Why no job is run. */
  problem?: LoantapeError | undefined
}

/** Lists what is wrong now, even if people were not told yet; oldest first. */
export function listAlarms(stateDb: StateDb, watched: Watched, now: number): Alarm[] {
  const alarms = findAlarms(readConditions(stateDb, watched, now), listHeld(stateDb), now)
  return alarms.sort((a, b) => (a.since < b.since ? -1 : 1))
}

const heldRow = z.object({name: z.string(), state: z.string(), since: z.string()})

/** Reads the alarms that were active at the last look. */
const listHeld = (stateDb: StateDb) =>
  new Map(stateDb.all(heldRow, 'select * from alarm').map((alarm) => [alarm.name, alarm]))

/** Finds the conditions that are not `ok`. `since` is when a look first found them, else what the data says, else now. */
const findAlarms = (conditions: readonly Condition[], held: ReturnType<typeof listHeld>, now: number) =>
  conditions
    .filter(({state}) => state !== 'ok')
    .map((condition): Alarm => {
      const before = held.get(condition.name)
      const since = before?.state === condition.state ? before.since : condition.since
      return {...condition, since: since ?? isoOf(now)}
    })

/** Reads everything that is watched from the state database, the current release and the jobs. */
export function readConditions(stateDb: StateDb, watched: Watched, now: number): Condition[] {
  const {config, release, damage, jobs, problem} = watched
  const lastSync = findLastSuccess(stateDb, 'sync')
  const attempts = new Map(listLastAttempts(stateDb).map((run) => [run.job, run]))
  return [
    problem ? faulty('served', 'No job is run', problem) : ok('served', 'jobs are run', ''),
    damage
      ? faulty('release', 'The current release is damaged', damage)
      : release && ok('release', 'the current release is whole', `Release ${release.release_id}.`),
    describeLimits(release),
    ...[webhookJob, ...jobs].map(({name, fault}) => {
      const run = attempts.get(name)
      if (fault) return faulty(`job ${name}`, `Job ${name} is never due: its file is wrong`, fault)
      return run ? describeJob(stateDb, run) : ok(`job ${name}`, `job ${name} can run`, 'It has not run yet.')
    }),
    describeFreshness(stateDb, lastSync, config, now),
    describeQuarantine(lastSync),
    ...describeReading(lastSync),
    describeRates(findLastSuccess(stateDb, 'rates')),
    describeDigests(stateDb, now),
    ...['webhook', 'email'].map((channel) => describeChannel(stateDb, config, channel, now)),
  ].filter((condition) => condition !== undefined)
}

const ok = (name: string, title: string, words: string): Condition => ({name, state: 'ok', title, words})

const faulty = (name: string, title: string, {code, message}: LoantapeError): Condition => ({
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

function describeJob(stateDb: StateDb, run: JobRun): Condition {
  const name = `job ${run.job}`
  const origin = run.slot === null ? (run.reason ?? 'started by hand') : `due ${run.slot}`
  const which = `Run ${run.job_run_id} of job ${run.job}, ${origin}`
  if (run.exit_code === 0) return ok(name, `job ${run.job} is done`, `${which}, ended ${run.ended_at}.`)
  const later = findRunSince(stateDb, run)
  if (later?.exit_code === 0) {
    const words = `${which}, failed; run ${later.run_id} has since done that step. The steps after it run at the next slot of the job.`
    return ok(name, `${later.command} of job ${run.job} is done`, words)
  }
  const {exit_code, error_code, error, ended_at} = later ?? run
  const problem = (error_code && FAILURES[error_code]) ?? FAILURES[exit_code ?? 1] ?? 'failed'
  const retries: Partial<Record<JobRun['state'], string>> = {
    queued: `It is tried again at ${isoOf(run.not_before)}.`,
    running: 'It is being tried again.',
  }
  const retry = retries[run.state] ?? 'It is not tried again before its next slot.'
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
    title: `No sync has succeeded for ${alarmMaxAgeHours} hours`,
    words: `${last} The current release and all exports are kept as they are. See \`loantape status\`.`,
    since: isoOf(staleAt),
  }
}

/** Whether the last sync ended in the future of the present clock. */
export const wasClockAhead = ({alarms}: {alarms: readonly Alarm[]}): boolean =>
  alarms.some(({state}) => state === 'clock ahead')

/** The part of a sync's summary that alarms use: how much was read, and how much could not be. */
const syncSummary = z.object({
  walk: z.object({
    quarantined: z.number(),
    records: z.number(),
    details: z.object({fetched: z.number(), failed: z.number()}).optional(),
  }),
  streams: z
    .array(
      z.object({stream: z.string(), listed: z.number(), failed: z.number(), reason: z.string().nullable()}),
    )
    .default([]),
})

/** A few bad records can wait until morning; more need a person now. */
const MOST_QUARANTINED = 10

function describeQuarantine(lastSync: Run | undefined): Condition | undefined {
  const {walk} = summaryOf(lastSync, syncSummary) ?? {}
  if (!lastSync || !walk) return undefined
  const counted = `Run ${lastSync.run_id}: ${walk.quarantined} of ${walk.records} records could not be read.`
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

/** Describes what is read deal by deal: own pages, and the lists of child streams. Where too few were asked for, the alarm stays. */
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
    const counted = `Run ${lastSync.run_id} read ${read} ${what}; ${failed} could not be read.`
    if (read > 0 || failed === 0) return ok(name, `${what} are read`, counted)
    if (failed < MOST_FAILURES_IN_A_ROW) return undefined
    const words = `${counted} What only they show stays as last known. The log says why. If the source has none, ${advice}.`
    return {name, state: 'unread', title: `None of the ${what} could be read`, words, since}
  }
  const {details} = walk
  const pages = details && {read: details.fetched, failed: details.failed}
  return [
    pages && describe('details', 'own pages of deals', pages, 'set LOANTAPE_DETAIL=off'),
    ...STREAMS.filter(({parent}) => parent).map(({plural: stream}) => {
      const found = streams.find((one) => one.stream === stream)
      if (!found) return ok(stream, `no lists of ${stream} are asked for`, '')
      const {listed, failed, reason} = found
      if (reason === null)
        return describe(
          stream,
          `lists of ${stream}`,
          {read: listed, failed},
          `take ${stream} out of LOANTAPE_STREAMS`,
        )
      const problem = `Run ${lastSync.run_id} read ${listed} lists of ${stream} and applied none.`
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
  if (!exceeded) return ok('limits', 'all limits are kept', `${of}.`)
  const {failures, samples, ids} = exceeded
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

const nameOfChannel = (channel: string) => `channel ${channel}`

function describeChannel(
  stateDb: StateDb,
  config: Watched['config'],
  channel: string,
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
    [channel, isoOf(now - HOUR_MS)],
  )
  if (!failed) return ok(name, `messages are sent by ${channel}`, '')
  const setting = channel === 'email' ? 'LOANTAPE_SMTP_URL' : 'LOANTAPE_ALARM_WEBHOOK_URL'
  const words = `That of ${failed.created_at} failed: ${failed.error} Each is tried for ${SENT_WITHIN_DAYS} days. Check ${setting}; the alarm ends when a message arrives.`
  const title = `Messages by ${channel} cannot be sent`
  return {name, state: 'unsent', title, words, since: failed.created_at}
}

/** Describes the digests mailed to people of their own. A day after one is given up, nobody can tell whether it still matters. */
function describeDigests(stateDb: StateDb, now: number): Condition {
  const to = `message ->> '$.to'`
  const failed = stateDb.first(
    z.object({created_at: z.string(), error: z.string(), to: z.string()}),
    `select created_at, error, ${to} as "to" from notice as failed
     where alarm like 'digest %' and sent_at is null and error is not null and ${to} is not null and created_at <= ?1 and created_at > ?2
       and not exists (select 1 from notice where ${to} = failed.${to} and sent_at > failed.created_at)
     order by notice_id limit 1`,
    [isoOf(now - HOUR_MS), isoOf(now - (SENT_WITHIN_DAYS + 1) * DAY_MS)],
  )
  if (!failed) return ok('digests', 'no mail of a digest fails', '')
  const words = `That of ${failed.created_at} to ${failed.to} failed: ${failed.error} Each is tried for ${SENT_WITHIN_DAYS} days, then given up. Check \`to\` of the digest in its job, and LOANTAPE_SMTP_URL.`
  return {
    name: 'digests',
    state: 'unsent',
    title: 'A digest cannot be mailed',
    words,
    since: failed.created_at,
  }
}

/** Lists the alarms of channels that take no messages. */
export const listUnsent = (stateDb: StateDb, config: Watched['config'], now: number) =>
  listAlarmChannels(config)
    .map((channel) => describeChannel(stateDb, config, channel, now))
    .filter(({state}) => state !== 'ok')

const messageSchema = z.object({
  title: z.string(),
  words: z.string(),
  /** Replaces the words in a mail. */
  html: z.string().optional(),
  /** The path of a file to attach to a mail. */
  file: z.string().optional(),
  /** The only recipients, by mail; by default it goes to everybody. */
  to: z.string().optional(),
  /** The state of the alarm that it reports. */
  state: z.string().optional(),
})

/** A message for people. */
export type Message = z.output<typeof messageSchema>
/** A message and what it is about: the name of an alarm, or a digest. `only` limits it to one channel. */
type News = Message & {alarm: string; only?: string}

/** Renders the page of a digest; undefined if there is nothing to send. @throws ConfigError with the place of what fails */
export type RenderDigest = (release: Release, step: DigestStep) => Promise<Message | undefined>

/** Tells each channel the conditions that differ from what it was last told. What fails now is retried by a later call. */
export async function tellPeople(
  stateDb: StateDb,
  watched: Watched & {config: Config},
  world: World,
): Promise<void> {
  const now = world.realClock.now()
  const findNews = (channels: readonly string[]) => {
    const conditions = readConditions(stateDb, watched, now)
    const held = listHeld(stateDb)
    storeAlarms(stateDb, conditions, findAlarms(conditions, held, now))
    return channels.flatMap((only) => {
      const said = listSaid(stateDb, only, now)
      return conditions.flatMap(({name: alarm, state, title, words}): News[] => {
        // A channel that fails is a matter for the others.
        if (state === (said.get(alarm) ?? 'ok') || alarm === nameOfChannel(only)) return []
        if (state !== 'ok') return [{alarm, state, title, words, only}]
        const before = held.get(alarm)
        const ended = before ? `${before.state} had held since ${before.since}. ` : ''
        return [{alarm, state, title: `Recovered: ${title}`, words: `${ended}${words}`, only}]
      })
    })
  }
  await sendNews(stateDb, watched.config, findNews, world)
}

const saidRow = z.object({alarm: z.string(), state: z.string().nullable()})

/** Reads what a channel was last told of each alarm, from notices that were sent, at least to some, or can still be sent. */
const listSaid = (stateDb: StateDb, channel: string, now: number) =>
  new Map(
    stateDb
      .all(
        saidRow,
        `select alarm, message ->> '$.state' as state from notice where notice_id in (
           select max(notice_id) from notice
           where channel = ? and (sent_at is not null or message ->> '$.to' is not null or created_at > ?)
           group by alarm
         )`,
        [channel, isoOf(now - SENT_WITHIN_DAYS * DAY_MS)],
      )
      .map(({alarm, state}) => [alarm, state]),
  )

/** Sends a page of the current release, once for each business date. @throws ConfigError that names job, page and what fails */
export async function sendDigest(
  config: Config,
  {job, step, render}: {job: string; step: DigestStep; render: RenderDigest | undefined},
  world: World,
): Promise<{page: string; outcome: 'sent' | 'already_sent' | 'waits' | 'nothing_to_say' | 'no_channel'}> {
  const {page, to} = step
  const folder = dataFolderAt(config.dataDir)
  try {
    if (to && config.smtpUrl === undefined)
      throw newError('CONFIG_MISSING', "'to' sends mail, and LOANTAPE_SMTP_URL is not set.")
    if (!to && listAlarmChannels(config).length === 0) return {page, outcome: 'no_channel'}
    const release = requireRelease(folder)
    using stateDb = openStateDb(folder.stateDb)
    const alarm = `digest ${release.manifest.as_of} ${JSON.stringify(step)}`
    const count = (where: string) =>
      stateDb.column(z.number(), `select count(*) from notice where alarm = ? and ${where}`, [alarm])[0] ?? 0
    const isNoted = () => count('true') > 0
    const isSent = () => isNoted() && count('sent_at is null') === 0
    if (isSent()) return {page, outcome: 'already_sent'}
    const digest = isNoted() ? undefined : await render?.(release, step)
    if (!digest && !isNoted()) return {page, outcome: 'nothing_to_say'}
    // Everybody gets a message of their own: recipients do not see each other, and one refused address affects no other.
    const news = digest
      ? (to ?? [undefined]).map((one) => ({alarm, ...digest, ...(one && {to: one, only: 'email'})}))
      : []
    await sendNews(stateDb, config, () => (isNoted() ? [] : news), world)
    return {page, outcome: isSent() ? 'sent' : 'waits'}
  } catch (error) {
    const {kind, ...told} = explainError(error)
    const problem = `Digest '${page.split('?')[0]}' of job '${job}': ${told.problem}`
    const kept = 'It was not sent; the steps before it stand.'
    const next = IS_OF_PAGE.test(codeOf(error))
      ? 'Correct the page, which `loantape pages check` tries, or the file of the job, then run the job again.'
      : told.next
    throw new LoantapeError({...told, problem, kept, next, cause: error}, kind)
  }
}

/** Codes of errors in pages and job files, which people write. */
const IS_OF_PAGE = /^(QUERY_FAILED|UNKNOWN_NAME|USAGE)$/

/** Records messages for channels, and sends those that are due. @param findNews runs in the transaction that records them */
async function sendNews(
  stateDb: StateDb,
  config: Config,
  findNews: (channels: readonly string[]) => readonly News[],
  world: World,
): Promise<void> {
  const channels = createChannels(config)
  const now = world.realClock.now()
  // In one transaction, so that each change is told once, however many processes look.
  stateDb.transaction(() => {
    const names = listAlarmChannels(config)
    const news = findNews(names)
    const times = {attempts: 0, next_attempt_at: now, created_at: isoOf(now)}
    for (const {alarm, only, ...message} of news)
      for (const channel of only === undefined ? names : [only])
        stateDb.insert('notice', {channel, alarm, message: JSON.stringify(message), ...times})
    if (news.length > 0)
      // Notices of alarms that still hold are kept, to know who was told.
      stateDb.run('delete from notice where created_at < ? and alarm not in (select name from alarm)', [
        isoOf(now - KEPT_DAYS * DAY_MS),
      ])
  })
  for (;;) {
    const notice = claimNotice(stateDb, config, world.realClock.now())
    const send = notice && channels[notice.channel]
    if (!send) return
    const {message} = notice
    const title = config.source === undefined ? message.title : `${config.source}: ${message.title}`
    let error: string | null = null
    let left = message
    try {
      const refused = await send({...message, title})
      if (refused.length > 0) {
        left = {...message, to: refused.join(', ')}
        throw newError('ALARM_REFUSED', `Mail server refused '${left.to}': all others have the message.`, {
          next: "Check the address: it stands in LOANTAPE_ALARM_EMAIL_TO, or in `to` of the job's digest.",
        })
      }
    } catch (thrown) {
      error = scrubSecrets(messageOf(thrown))
      world.log.warn({reason: error}, `an alarm could not be sent by ${notice.channel}; it is tried again`)
    }
    const sent_at = error === null ? isoOf(world.realClock.now()) : null
    stateDb.update('notice', {notice_id: notice.notice_id}, {sent_at, error, message: JSON.stringify(left)})
  }
}

/**
 * Stores which alarms are active. What cannot be seen now, such as the limits of a damaged release, stays; alarms of deleted jobs
 * are removed.
 */
function storeAlarms(stateDb: StateDb, conditions: readonly Condition[], alarms: readonly Alarm[]): void {
  const [seen, holding] = [JSON.stringify(conditions), JSON.stringify(alarms)]
  const namesIn = (parameter: number) => `(select value ->> 'name' from json_each(?${parameter}))`
  stateDb.run(`delete from notice where alarm like 'job %' and alarm not in ${namesIn(1)}`, [seen])
  stateDb.run(
    `delete from alarm where (name like 'job %' or name in ${namesIn(1)}) and name not in ${namesIn(2)}`,
    [seen, holding],
  )
  stateDb.run(
    `insert into alarm select value ->> 'name', value ->> 'state', value ->> 'since' from json_each(?) where true
     on conflict (name) do update set state = excluded.state, since = excluded.since where state <> excluded.state`,
    [holding],
  )
}

const KEPT_DAYS = 30
/** A notice that could not be sent for this long is given up. */
const SENT_WITHIN_DAYS = 3
/** The pause after a failed sending; it doubles each time. No sending waits for an answer longer than {@link SEND_TIMEOUT_MS}. */
const FIRST_PAUSE_MS = 60_000

const noticeRow = z.object({
  notice_id: z.number(),
  channel: z.string(),
  message: z.string().transform((text) => messageSchema.parse(JSON.parse(text))),
})

/**
 * Claims the next notice to send: no other process gets it before its next attempt. An attempt that a clock running ahead
 * scheduled too far off is due now.
 */
function claimNotice(stateDb: StateDb, config: Config, now: number) {
  return stateDb.first(
    noticeRow,
    `update notice set
       attempts = attempts + 1,
       next_attempt_at = ?1 + min(${FIRST_PAUSE_MS} << min(attempts, 6), ${HOUR_MS}),
       created_at = min(created_at, ?4)
     where notice_id = (
       select notice_id from notice
       where sent_at is null and (next_attempt_at <= ?1 or next_attempt_at > ?1 + ${2 * HOUR_MS}) and created_at > ?2
         and (channel in (select value from json_each(?3)) or (?5 and message ->> '$.to' is not null))
       order by notice_id limit 1
     )
     returning *`,
    [
      now,
      isoOf(now - SENT_WITHIN_DAYS * DAY_MS),
      JSON.stringify(listAlarmChannels(config)),
      isoOf(now),
      Number(config.smtpUrl !== undefined),
    ],
  )
}

/** Lists the channels that alarms go to. */
export const listAlarmChannels = ({alarmWebhookUrl, alarmEmailTo}: Watched['config']): string[] => [
  ...(alarmWebhookUrl === undefined ? [] : ['webhook']),
  ...(alarmEmailTo === undefined ? [] : ['email']),
]

/** Creates the configured channels. Each sends a message and returns the addresses that were refused; it throws if all were. */
function createChannels(config: Config): Record<string, (message: Message) => Promise<string[]>> {
  const {alarmWebhookUrl: webhookUrl, smtpUrl, alarmEmailTo, alarmEmailFrom: from} = config
  return {
    ...(webhookUrl !== undefined && {webhook: (message) => postMessage(webhookUrl, message)}),
    ...(smtpUrl !== undefined && {
      email: (message) => mailMessage(smtpUrl, from, {to: alarmEmailTo, ...message}),
    }),
  }
}

const SEND_TIMEOUT_MS = 15_000

/** Posts to a Slack-style webhook (https://api.slack.com/messaging/webhooks); these three characters are markup in `text`. */
async function postMessage(url: string, {title, words}: Message): Promise<string[]> {
  const escapeMarkup = (text: string) =>
    text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
  const status = await ask(url, {
    method: 'POST',
    headers: {'content-type': 'application/json'},
    body: JSON.stringify({text: `*${escapeMarkup(title)}*\n${escapeMarkup(words)}`}),
  })
  if (status >= 200 && status < 300) return []
  throw newError('ALARM_REFUSED', `Alarm webhook answered ${status}: expected 2xx.`)
}

async function ask(
  url: string,
  asked: {method?: 'POST'; headers?: Record<string, string>; body?: string} = {},
) {
  // Loaded late, since it would slow the start of every command.
  const [{request}, {openAgent}] = await Promise.all([import('undici'), import('../core/outgoing.ts')])
  await using dispatcher = openAgent(url, {timeoutMs: SEND_TIMEOUT_MS})
  const {statusCode, body} = await request(url, {...asked, dispatcher})
  // Only the status counts: a body may never end.
  body.on('error', () => undefined).destroy()
  return statusCode
}

async function mailMessage(
  url: string,
  from: string,
  {title, words, html, file, to}: Message,
): Promise<string[]> {
  const {createTransport} = await import('nodemailer')
  const transport = createTransport({
    url,
    connectionTimeout: SEND_TIMEOUT_MS,
    greetingTimeout: SEND_TIMEOUT_MS,
    socketTimeout: SEND_TIMEOUT_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
  try {
    // Retention may have removed the file while the mail waited.
    const attachments =
      file && existsSync(file) ? [{filename: basename(file), content: readFileSync(file)}] : []
    const text = `${title}\n\n${words}\n`
    const {rejected} = await transport.sendMail({
      from,
      to,
      subject: `loantape: ${title}`,
      text,
      html,
      attachments,
    })
    return rejected
  } finally {
    transport.close()
  }
}

/** Pings the service that raises an alarm when we fall silent. The run succeeds even if the ping fails. */
export async function pingDeadMan({deadManUrl}: Config, {log}: World): Promise<void> {
  if (deadManUrl === undefined) return
  try {
    const status = await ask(deadManUrl)
    if (status >= 300) log.warn({status}, 'the dead-man check did not take the ping')
  } catch (error) {
    log.warn({reason: scrubSecrets(messageOf(error))}, 'the dead-man check could not be reached')
  }
}
