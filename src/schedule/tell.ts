import {existsSync, readFileSync} from 'node:fs'
import {basename} from 'node:path'
import {z} from 'zod'
import {DAY_MS, HOUR_MS} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {messageOf, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import type {World} from '../core/types.ts'
import {inStateTransaction, type StateDb} from '../store/state-db.ts'
import {type Condition, listRaised, type Raised, readConditions, sinceOf, type Watched} from './alarms.ts'

/**
 * Tells people what has changed since they were last told: one message per change and channel. A later call retries what fails
 * now.
 */
export async function tellPeople(stateDb: StateDb, watched: Watched<Config>, world: World): Promise<void> {
  const {config} = watched
  const channels = createChannels(config)
  const now = world.realClock.now()
  settleAlarms(stateDb, readConditions(stateDb, watched, now), [...channels.keys()], now)
  for (;;) {
    const notice = claimNotice(stateDb, [...channels.keys()], now)
    const send = notice && channels.get(notice.channel)
    if (!send) return
    const title = config.source === undefined ? notice.title : `${config.source}: ${notice.title}`
    let error: string | null = null
    try {
      await send({...notice, title})
    } catch (thrown) {
      error = scrubSecrets(messageOf(thrown))
      world.log.warn({reason: error}, `an alarm could not be sent by ${notice.channel}; it is tried again`)
    }
    const sent_at = error === null ? new Date(world.realClock.now()).toISOString() : null
    stateDb.update('notice', {notice_id: notice.notice_id}, {sent_at, error})
  }
}

/** Queues the figures of a day for each channel, once a day; {@link tellPeople} sends them. */
export function queueDigest(
  stateDb: StateDb,
  config: Config,
  {day, ...message}: {day: string; title: string; words: string; file: string},
  now: number,
): void {
  const alarm = `digest ${day}`
  inStateTransaction(stateDb, () => {
    if (stateDb.column(z.number(), 'select 1 from notice where alarm = ? limit 1', [alarm]).length > 0) return
    for (const channel of createChannels(config).keys()) insertNotice(stateDb, {channel, alarm, message}, now)
  })
}

/**
 * Updates the raised alarms and queues a notice per channel for each change, in one transaction: however many processes
 * look, each change is told once.
 */
function settleAlarms(
  stateDb: StateDb,
  conditions: readonly Condition[],
  channels: readonly string[],
  now: number,
): void {
  const listChanged = (raised: readonly Raised[]) =>
    conditions.filter(
      ({name, state}) => state !== (raised.find((alarm) => alarm.name === name)?.state ?? 'ok'),
    )
  const names = new Set(conditions.map(({name}) => name))
  const known = listRaised(stateDb)
  if (listChanged(known).length === 0 && known.every(({name}) => names.has(name))) return
  inStateTransaction(stateDb, () => {
    const raised = listRaised(stateDb)
    for (const condition of listChanged(raised)) {
      const {name, state, title, words} = condition
      const before = raised.find((alarm) => alarm.name === name)
      const held = before ? `${before.state} had held since ${before.since}. ` : ''
      const message =
        state === 'ok' ? {title: `Recovered: ${title}`, words: `${held}${words}`} : {title, words}
      if (state === 'ok') stateDb.run('delete from alarm where name = ?', [name])
      else stateDb.insert('alarm', {name, state, since: sinceOf(condition, raised, now)}, 'or replace')
      for (const channel of channels) insertNotice(stateDb, {channel, alarm: name, message}, now)
    }
    // Things no longer watched, such as a deleted job, raise no alarm.
    stateDb.run('delete from alarm where name not in (select value from json_each(?))', [
      JSON.stringify([...names]),
    ])
    stateDb.run('delete from notice where created_at < ?', [new Date(now - KEPT_DAYS * DAY_MS).toISOString()])
  })
}

const KEPT_DAYS = 30
/** After this long a notice that cannot be sent is given up. */
const SENT_WITHIN_DAYS = 3
/** The pause after a failed sending; it doubles each time. */
const FIRST_PAUSE_MS = 60_000

/** A message on its way to one channel. */
type Notice = z.output<typeof noticeRow>
const noticeRow = z.object({
  notice_id: z.number(),
  channel: z.string(),
  title: z.string(),
  words: z.string(),
  /** A file to attach, if the channel can. */
  file: z.string().nullable(),
})

function insertNotice(
  stateDb: StateDb,
  {channel, alarm, message}: {channel: string; alarm: string; message: object},
  now: number,
): void {
  const untried = {attempts: 0, next_attempt_at: now, created_at: new Date(now).toISOString()}
  stateDb.insert('notice', {channel, alarm, message: JSON.stringify(message), ...untried})
}

/** Takes the next notice to send; no other process gets it before its next attempt is due. */
function claimNotice(stateDb: StateDb, channels: readonly string[], now: number): Notice | undefined {
  return stateDb.first(
    noticeRow,
    `update notice set
       attempts = attempts + 1,
       next_attempt_at = ?1 + min(${FIRST_PAUSE_MS} << min(attempts, 6), ${HOUR_MS})
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

/** The configured channels by name; each sends a notice and rejects if it was not accepted. */
function createChannels(config: Config): Map<string, (notice: Notice) => Promise<void>> {
  const {alarmWebhookUrl, smtpUrl, alarmEmailTo, alarmEmailFrom} = config
  const channels = new Map<string, (notice: Notice) => Promise<void>>()
  if (alarmWebhookUrl !== undefined) {
    channels.set('webhook', (notice) => postNotice(alarmWebhookUrl, notice))
  }
  if (smtpUrl !== undefined && alarmEmailTo !== undefined) {
    const address = {from: alarmEmailFrom, to: alarmEmailTo}
    channels.set('email', (notice) => mailNotice(smtpUrl, address, notice))
  }
  return channels
}

const NOTICE_TIMEOUT_MS = 15_000

/** https://api.slack.com/messaging/webhooks: `text`, in which these three characters are markup. */
async function postNotice(url: string, {title, words}: Notice): Promise<void> {
  const escapeMarkup = (text: string) =>
    text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
  const {request} = await import('undici')
  const {statusCode, body} = await request(url, {
    method: 'POST',
    headers: {'content-type': 'application/json'},
    body: JSON.stringify({text: `*${escapeMarkup(title)}*\n${escapeMarkup(words)}`}),
    headersTimeout: NOTICE_TIMEOUT_MS,
    bodyTimeout: NOTICE_TIMEOUT_MS,
  })
  await body.dump()
  if (statusCode >= 200 && statusCode < 300) return
  throw newError('ALARM_REFUSED', `Alarm webhook answered ${statusCode}: expected 2xx.`)
}

async function mailNotice(
  url: string,
  address: {from: string; to: string},
  {title, words, file}: Notice,
): Promise<void> {
  // Imported here: at the top it would slow down the start of every command.
  const {createTransport} = await import('nodemailer')
  const transport = createTransport({
    url,
    connectionTimeout: NOTICE_TIMEOUT_MS,
    greetingTimeout: NOTICE_TIMEOUT_MS,
    socketTimeout: NOTICE_TIMEOUT_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
  try {
    // Retention may have removed the file while the mail server did not answer.
    const attachments =
      file !== null && existsSync(file) ? [{filename: basename(file), content: readFileSync(file)}] : []
    await transport.sendMail({
      ...address,
      subject: `loantape: ${title}`,
      text: `${title}\n\n${words}\n`,
      attachments,
    })
  } finally {
    transport.close()
  }
}

const PING_TIMEOUT_MS = 10_000

/** Tells the service that watches for our silence that all is well; the run succeeds even if the ping fails. */
export async function pingDeadMan({deadManUrl}: Config, {log}: World): Promise<void> {
  if (deadManUrl === undefined) return
  try {
    const {request} = await import('undici')
    const {statusCode, body} = await request(deadManUrl, {
      headersTimeout: PING_TIMEOUT_MS,
      bodyTimeout: PING_TIMEOUT_MS,
    })
    await body.dump()
    if (statusCode >= 300) log.warn({status: statusCode}, 'the dead-man check did not take the ping')
  } catch (error) {
    log.warn({reason: scrubSecrets(messageOf(error))}, 'the dead-man check could not be reached')
  }
}
