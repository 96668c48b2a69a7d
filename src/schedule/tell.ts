import {addAbortListener} from 'node:events'
import {existsSync, readFileSync} from 'node:fs'
import {basename} from 'node:path'
import {z} from 'zod'
import {DAY_MS, HOUR_MS} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {closeWords, codeOf, explainError, LoantapeError, messageOf, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import {isHere} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {type Release, requireRelease} from '../store/release.ts'
import {openStateDb, type StateDb} from '../store/state-db.ts'
import {
  type Alarm,
  CHANNEL_NAMES,
  type Channel,
  type Condition,
  findAlarms,
  listAlarmChannels,
  listHeld,
  nameOfChannel,
  readConditions,
  SENT_WITHIN_DAYS,
  type Watched,
} from './alarms.ts'
import type {DigestStep} from './job.ts'
import {isoOf} from './job-runs.ts'
import {listWatched} from './scheduler.ts'

const messageSchema = z.object({
  title: z.string(),
  words: z.string(),
  /** Replaces the words in a mail. */
  html: z.string().optional(),
  file: z.string().optional(),
  /** The only recipients, by mail; by default it goes to everybody. */
  to: z.string().optional(),
  state: z.string().optional(),
})

export type Message = z.output<typeof messageSchema>
type Outgoing = Message & {signal: AbortSignal}
/** `alarm` is the name of an alarm, or a digest. */
type News = Message & {alarm: string; channel: string}

/** Returns undefined if there is nothing to send. @throws ConfigError with the place of what fails */
export type RenderDigest = (release: Release, step: DigestStep) => Promise<Message | undefined>

/**
 * Tells each channel the conditions that differ from what it was last told. What fails now is retried by a later call. `look` is
 * called when no other process can tell, so that nobody is told what has been over since.
 */
export async function tellPeople(
  stateDb: StateDb,
  config: Config,
  look: () => Omit<Watched, 'config'>,
  world: World,
): Promise<void> {
  const findNews = () => {
    const now = world.realClock.now()
    const conditions = readConditions(stateDb, {config, ...look()}, now)
    const held = listHeld(stateDb)
    storeAlarms(stateDb, {conditions, alarms: findAlarms(conditions, held, now)}, now)
    return listAlarmChannels(config).flatMap((channel) => {
      const said = listSaid(stateDb, channel, now)
      return conditions.flatMap(({name: alarm, state, title, words}): News[] => {
        // A channel that fails is a matter for the others.
        if (state === (said.get(alarm) ?? 'ok') || alarm === nameOfChannel(channel)) return []
        if (state !== 'ok') return [{channel, alarm, state, title, words}]
        const before = held.get(alarm)
        const ended = before ? `${before.state} had held since ${before.since}. ` : ''
        return [{channel, alarm, state, title: `Recovered: ${title}`, words: `${ended}${words}`}]
      })
    })
  }
  await sendNews(stateDb, config, findNews, world)
}

const saidRow = z.object({alarm: z.string(), state: z.string().nullable()})

/** What a channel was last told, from notices that were sent, at least to some, or can still be sent. */
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

/** Sends once for each business date. @throws ConfigError that names job, page and what fails */
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
    // Everybody gets a message of their own: recipients do not see each other, and one refused address affects no other.
    const receivers =
      to?.map((one) => ({to: one, channel: 'email'})) ??
      listAlarmChannels(config).map((channel) => ({channel}))
    if (receivers.length === 0) return {page, outcome: 'no_channel'}
    const release = requireRelease(folder)
    using stateDb = openStateDb(folder.stateDb)
    const alarm = `digest ${release.manifest.as_of} ${JSON.stringify(step)}`
    const listSent = () =>
      stateDb.column(z.string().nullable(), 'select sent_at from notice where alarm = ?', [alarm])
    const isNoted = () => listSent().length > 0
    const isSent = () => isNoted() && !listSent().includes(null)
    if (isSent()) return {page, outcome: 'already_sent'}
    const digest = isNoted() ? undefined : await render?.(release, step)
    if (!digest && !isNoted()) return {page, outcome: 'nothing_to_say'}
    const news = digest ? receivers.map((one) => ({alarm, ...digest, ...one})) : []
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

const IS_OF_PAGE = /^(QUERY_FAILED|UNKNOWN_NAME|USAGE)$/

/** Sends what is due, also of earlier calls. `findNews` runs in the transaction that records its messages. */
async function sendNews(
  stateDb: StateDb,
  config: Config,
  findNews: () => readonly News[],
  world: World,
): Promise<void> {
  const channels = createChannels(config)
  const now = world.realClock.now()
  // In one transaction, so that each change is told once, however many processes look.
  stateDb.transaction(() => {
    const news = findNews()
    const times = {attempts: 0, next_attempt_at: now, created_at: isoOf(now)}
    for (const {channel, alarm, ...message} of news)
      stateDb.insert('notice', {channel, alarm, message: JSON.stringify(message), ...times})
    if (news.length > 0)
      // Those of alarms that hold are kept, to know who was told, and those of a channel that fails, to know that it does.
      stateDb.run(
        `delete from notice where created_at < ?
           and alarm not in (select name from alarm) and 'channel ' || channel not in (select name from alarm)`,
        [isoOf(now - KEPT_DAYS * DAY_MS)],
      )
  })
  const ending = new AbortController()
  using _stop = addAbortListener(world.signal, () => {
    setTimeout(() => ending.abort(), LAST_SEND_MS).unref()
  })
  const sendAll = async (channel: Channel) => {
    const send = channels[channel]
    while (send && !world.signal.aborted) {
      const notice = claimNotice(stateDb, config, channel, world.realClock.now())
      if (!notice) return
      const {message} = notice
      const title = config.source === undefined ? message.title : `${config.source}: ${message.title}`
      const signal = AbortSignal.any([ending.signal, AbortSignal.timeout(LONGEST_SEND_MS)])
      let error: string | null = null
      let left = message
      try {
        const refused = await send({...message, title, signal})
        if (refused.length > 0) {
          left = {...message, to: refused.join(', ')}
          throw newError('ALARM_REFUSED', `Mail server refused '${left.to}': all others have the message.`, {
            next: "Check the address: it stands in LOANTAPE_ALARM_EMAIL_TO, or in `to` of the job's digest.",
          })
        }
      } catch (thrown) {
        if (ending.signal.aborted) return
        error = closeWords(scrubSecrets(messageOf(thrown)))
        world.log.warn({reason: error}, `an alarm could not be sent by ${channel}; it is tried again`)
      }
      const sent_at = error === null ? isoOf(world.realClock.now()) : null
      stateDb.update('notice', {notice_id: notice.notice_id}, {sent_at, error, message: JSON.stringify(left)})
      // The rest of it waits for the next call, which sends what is new elsewhere.
      if (signal.aborted) return
    }
  }
  // At once, so that a channel that hangs holds up no other.
  const sending = CHANNEL_NAMES.map(sendAll)
  await Promise.allSettled(sending)
  await Promise.all(sending)
}

/** What cannot be seen now, such as the limits of a damaged release, stays; alarms of jobs that no server has are removed. */
function storeAlarms(
  stateDb: StateDb,
  {conditions, alarms}: {conditions: readonly Condition[]; alarms: readonly Alarm[]},
  now: number,
): void {
  const names = conditions.map(({name}) => name)
  const known = JSON.stringify([...names, ...listWatched(stateDb, now).map((job) => `job ${job}`)])
  const [seen, holding] = [JSON.stringify(names), JSON.stringify(alarms)]
  const isGone = (name: string) => `${name} like 'job %' and ${name} not in (select value from json_each(?1))`
  stateDb.run(`delete from notice where ${isGone('alarm')}`, [known])
  stateDb.run(
    `delete from alarm where (${isGone('name')} or name in (select value from json_each(?2)))
       and name not in (select value ->> 'name' from json_each(?3))`,
    [known, seen, holding],
  )
  stateDb.run(
    `insert into alarm select value ->> 'name', value ->> 'state', value ->> 'since' from json_each(?) where true
     on conflict (name) do update set state = excluded.state, since = excluded.since where state <> excluded.state`,
    [holding],
  )
}

const KEPT_DAYS = 30
/** Longer than a message may take, which no other process sends meanwhile. Doubles with each failure, up to an hour. */
const FIRST_PAUSE_MS = 180_000

const noticeRow = z.object({
  notice_id: z.number(),
  message: z.string().transform((text) => messageSchema.parse(JSON.parse(text))),
})

/**
 * No other process gets the notice before its next attempt, and none before what was to be told earlier of its alarm. What a clock
 * running ahead put off too far is due now.
 */
function claimNotice(stateDb: StateDb, config: Config, channel: Channel, now: number) {
  const isOn = Number(listAlarmChannels(config).includes(channel))
  return stateDb.first(
    noticeRow,
    `update notice set
       attempts = attempts + 1,
       next_attempt_at = ?1 + min(${FIRST_PAUSE_MS} << min(attempts, 6), ${HOUR_MS}),
       created_at = min(created_at, ?4)
     where notice_id = (
       select notice_id from notice as due
       where sent_at is null and (next_attempt_at <= ?1 or next_attempt_at > ?1 + ${2 * HOUR_MS}) and created_at > ?2
         and channel = ?3 and (?5 or message ->> '$.to' is not null)
         and not exists (
           select 1 from notice as earlier
           where channel = ?3 and alarm = due.alarm and notice_id < due.notice_id
             and sent_at is null and message ->> '$.to' is null and created_at > ?2
             -- A message may be refused for what it says.
             and (attempts < 6 or not exists (select 1 from notice where channel = ?3 and sent_at > earlier.created_at))
         )
       order by notice_id limit 1
     )
     returning *`,
    [now, isoOf(now - SENT_WITHIN_DAYS * DAY_MS), channel, isoOf(now), isOn],
  )
}

/** Each channel returns the addresses that were refused; it throws if all were. False: it cannot send. */
function createChannels(config: Config): Record<Channel, false | ((message: Outgoing) => Promise<string[]>)> {
  const {alarmWebhookUrl: webhookUrl, smtpUrl, alarmEmailTo, alarmEmailFrom: from} = config
  return {
    webhook: webhookUrl !== undefined && ((message) => postMessage(webhookUrl, message)),
    email: smtpUrl !== undefined && ((message) => mailMessage(smtpUrl, from, {to: alarmEmailTo, ...message})),
  }
}

const SEND_TIMEOUT_MS = 15_000
/** For a whole message: a server that drips never times out between two parts of an answer. */
const LONGEST_SEND_MS = 10 * SEND_TIMEOUT_MS
/** For a message under way when the process is asked to stop. The next server sends it again. */
const LAST_SEND_MS = 5_000

/** Posts to a Slack-style webhook (https://api.slack.com/messaging/webhooks); these three characters are markup in `text`. */
async function postMessage(url: string, {title, words, signal}: Outgoing): Promise<string[]> {
  const escapeMarkup = (text: string) =>
    text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
  const status = await ask(url, {
    method: 'POST',
    headers: {'content-type': 'application/json'},
    body: JSON.stringify({text: `*${escapeMarkup(title)}*\n${escapeMarkup(words)}`}),
    signal,
  })
  if (status >= 200 && status < 300) return []
  throw newError('ALARM_REFUSED', `Alarm webhook answered ${status}: expected 2xx.`)
}

async function ask(
  url: string,
  asked: {method?: 'POST'; headers?: Record<string, string>; body?: string; signal?: AbortSignal} = {},
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
  {title, words, html, file, to, signal}: Outgoing,
): Promise<string[]> {
  const {createTransport} = await import('nodemailer')
  const transport = createTransport({
    url,
    // Somebody in between could hide that the server offers TLS, and read the password.
    requireTLS: new URL(url).username !== '' && !isHere(url),
    connectionTimeout: SEND_TIMEOUT_MS,
    greetingTimeout: SEND_TIMEOUT_MS,
    socketTimeout: SEND_TIMEOUT_MS,
    socketCloseTimeout: 1_000,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
  // Retention may have removed the file while the mail waited.
  const attachments =
    file && existsSync(file) ? [{filename: basename(file), content: readFileSync(file)}] : []
  const [subject, text] = [`loantape: ${title}`, `${title}\n\n${words}\n`]
  const {rejected} = await transport.sendMail({from, to, subject, text, html, attachments, signal})
  return rejected
}

/** The run succeeds even if the ping fails. */
export async function pingDeadMan({deadManUrl}: Config, {log}: World): Promise<void> {
  if (deadManUrl === undefined) return
  try {
    const status = await ask(deadManUrl)
    if (status >= 300) log.warn({status}, 'the dead-man check did not take the ping')
  } catch (error) {
    log.warn({reason: scrubSecrets(messageOf(error))}, 'the dead-man check could not be reached')
  }
}
