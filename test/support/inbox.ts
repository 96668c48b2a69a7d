import {once} from 'node:events'
import {createServer} from 'node:http'
import type {AddressInfo} from 'node:net'
import {buffer, text} from 'node:stream/consumers'
import {SMTPServer} from 'smtp-server'

/** Where alarms arrive: a webhook and a mail server on loopback. */
export interface Inbox extends AsyncDisposable {
  /** The texts of messages, and the paths of other requests. */
  posts: string[]
  mails: string[]
  /** The webhook's answer. */
  status: number
  /** Settings that send everything here. */
  env: Record<string, string>
}

/** Starts an inbox. */
export async function startInbox(): Promise<Inbox> {
  const hook = createServer(async (request, response) => {
    const isPost = request.method === 'POST'
    inbox.posts.push(isPost ? String(JSON.parse(await text(request)).text) : String(request.url))
    response.writeHead(inbox.status).end('ok')
  }).listen(0, '127.0.0.1')
  await once(hook, 'listening')
  const mail = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onData: async (stream, _session, done) => {
      inbox.mails.push((await buffer(stream)).toString())
      done()
    },
  })
  const server = mail.listen(0, '127.0.0.1')
  if (!server.listening) await once(server, 'listening')
  const hookUrl = `http://127.0.0.1:${(hook.address() as AddressInfo).port}`
  const inbox: Inbox = {
    posts: [],
    mails: [],
    status: 200,
    env: {
      LOANTAPE_ALARM_WEBHOOK_URL: `${hookUrl}/hook`,
      LOANTAPE_DEAD_MAN_URL: `${hookUrl}/alive`,
      LOANTAPE_ALARM_EMAIL_TO: 'night@example.com',
      LOANTAPE_SMTP_URL: `smtp://127.0.0.1:${(server.address() as AddressInfo).port}`,
    },
    async [Symbol.asyncDispose]() {
      hook.close()
      await new Promise<void>((resolve) => mail.close(() => resolve()))
    },
  }
  return inbox
}
