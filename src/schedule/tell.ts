import {existsSync, readFileSync} from 'node:fs'
import {basename} from 'node:path'
import {request} from 'undici'
import type {Config} from '../core/config.ts'
import {messageOf, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import type {World} from '../core/types.ts'
import type {StateDb} from '../store/state-db.ts'
import {claimNotice, queueNews, readConditions, recordSending, settleAlarms, type Watched} from './alarms.ts'

/** What people are told. */
interface Message {
  title: string
  words: string
  /** A file that goes along where the channel can carry one. */
  file: string | null
}

/** A way to tell people; rejects when the message was not taken. */
interface Channel {
  name: 'webhook' | 'email'
  send(message: Message): Promise<void>
}

const MESSAGE_TIMEOUT_MS = 15_000

/** The channels that are set up. */
function createChannels(config: Config): Channel[] {
  const {alarmWebhookUrl, smtpUrl, alarmEmailTo, alarmEmailFrom} = config
  const channels: Channel[] = []
  if (alarmWebhookUrl !== undefined) {
    channels.push({name: 'webhook', send: (message) => postMessage(alarmWebhookUrl, message)})
  }
  if (smtpUrl !== undefined && alarmEmailTo !== undefined) {
    const address = {from: alarmEmailFrom, to: alarmEmailTo}
    channels.push({name: 'email', send: (message) => mailMessage(smtpUrl, address, message)})
  }
  return channels
}

/** https://api.slack.com/messaging/webhooks: `text`, in which these three characters are markup. */
async function postMessage(url: string, {title, words}: Message): Promise<void> {
  const escapeMarkup = (text: string) =>
    text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
  const {statusCode, body} = await request(url, {
    method: 'POST',
    headers: {'content-type': 'application/json'},
    body: JSON.stringify({text: `*${escapeMarkup(title)}*\n${escapeMarkup(words)}`}),
    headersTimeout: MESSAGE_TIMEOUT_MS,
    bodyTimeout: MESSAGE_TIMEOUT_MS,
  })
  await body.dump()
  if (statusCode >= 200 && statusCode < 300) return
  throw newError('ALARM_REFUSED', `Alarm webhook answered ${statusCode}: expected 2xx.`)
}

async function mailMessage(
  url: string,
  address: {from: string; to: string},
  {title, words, file}: Message,
): Promise<void> {
  // Only here: every command would take longer to start.
  const {createTransport} = await import('nodemailer')
  const transport = createTransport({
    url,
    connectionTimeout: MESSAGE_TIMEOUT_MS,
    greetingTimeout: MESSAGE_TIMEOUT_MS,
    socketTimeout: MESSAGE_TIMEOUT_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
  try {
    // It may be gone by now: retention goes on while a server of mail does not answer.
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

/**
 * Tells people what has changed since they were last told: one message per change of state and channel. What cannot be
 * sent now is sent by a later call.
 */
export async function tellPeople(stateDb: StateDb, watched: Watched<Config>, world: World): Promise<void> {
  const {config} = watched
  const channels = createChannels(config)
  const names = channels.map(({name}) => name)
  const now = world.realClock.now()
  settleAlarms(stateDb, {conditions: readConditions(stateDb, watched, now), channels: names}, now)
  for (;;) {
    const notice = claimNotice(stateDb, names, now)
    const channel = channels.find(({name}) => name === notice?.channel)
    if (!notice || !channel) return
    try {
      await channel.send(
        config.source === undefined ? notice : {...notice, title: `${config.source}: ${notice.title}`},
      )
      recordSending(stateDb, notice, null, world.realClock.now())
    } catch (error) {
      const reason = scrubSecrets(messageOf(error))
      world.log.warn({reason}, `an alarm could not be sent by ${channel.name}; it is tried again`)
      recordSending(stateDb, notice, reason, world.realClock.now())
    }
  }
}

/** Queues the figures of a day for every channel, once a day; `tellPeople` sends them. */
export function queueDigest(
  stateDb: StateDb,
  config: Config,
  digest: {day: string; title: string; words: string; file: string},
  now: number,
): void {
  const {day, ...message} = digest
  const channels = createChannels(config).map(({name}) => name)
  queueNews(stateDb, {name: `digest ${day}`, channels, ...message}, now)
}

const PING_TIMEOUT_MS = 10_000

/** Tells the service that notices our silence that all is well; whether it hears is not our run's business. */
export async function pingDeadMan({deadManUrl}: Config, {log}: World): Promise<void> {
  if (deadManUrl === undefined) return
  try {
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
