import {request} from 'undici'
import type {Config} from '../config.ts'
import {newError} from '../errors.ts'

/** What people are told. */
export interface Message {
  title: string
  words: string
}

/** A way to tell people; rejects when the message was not taken. */
export interface Channel {
  name: 'webhook' | 'email'
  send(message: Message): Promise<void>
}

const TIMEOUT_MS = 15_000

/** The channels that are set up. */
export function createChannels(config: Config): Channel[] {
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
    headersTimeout: TIMEOUT_MS,
    bodyTimeout: TIMEOUT_MS,
  })
  await body.dump()
  if (statusCode >= 200 && statusCode < 300) return
  throw newError('ALARM_REFUSED', `Alarm webhook answered ${statusCode}: expected 2xx.`)
}

async function mailMessage(
  url: string,
  address: {from: string; to: string},
  {title, words}: Message,
): Promise<void> {
  // Only here: every command would take longer to start.
  const {createTransport} = await import('nodemailer')
  const transport = createTransport({
    url,
    connectionTimeout: TIMEOUT_MS,
    greetingTimeout: TIMEOUT_MS,
    socketTimeout: TIMEOUT_MS,
    disableFileAccess: true,
    disableUrlAccess: true,
  })
  try {
    await transport.sendMail({...address, subject: `loantape: ${title}`, text: `${title}\n\n${words}\n`})
  } finally {
    transport.close()
  }
}
