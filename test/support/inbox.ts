import {once} from 'node:events'
import type {AddressInfo} from 'node:net'
import {buffer, text} from 'node:stream/consumers'
import {SMTPServer} from 'smtp-server'
import {startTestServer} from '../source/test-server.ts'

/** Starts a webhook and a mail server on loopback that receive alarms. */
export async function startInbox() {
  const hook = await startTestServer(async ({incoming, path}, response) => {
    const isPost = incoming.method === 'POST'
    inbox.posts.push(isPost ? String(JSON.parse(await text(incoming)).text) : path.replace('/v1', ''))
    response.writeHead(inbox.status).end('ok')
  })
  const mail = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    allowInsecureAuth: true,
    onAuth: ({username = ''}, _session, done) => {
      inbox.logins.push(username)
      done(null, {user: username})
    },
    onRcptTo: ({address}, _session, done) =>
      done(address === inbox.refused ? Object.assign(new Error('Later.'), {responseCode: 450}) : null),
    onData: async (stream, _session, done) => {
      inbox.mails.push((await buffer(stream)).toString())
      done()
    },
  })
  const server = mail.listen(0, '127.0.0.1')
  if (!server.listening) await once(server, 'listening')
  const inbox = {
    /** Texts of posted messages, and paths of other requests. */
    posts: [] as string[],
    mails: [] as string[],
    /** Users that sent the mail server a password. */
    logins: [] as string[],
    /** The address that the mail server refuses. */
    refused: '',
    /** The status of the webhook's answers. */
    status: 200,
    /** Settings that send everything here. */
    env: {
      LOANTAPE_ALARM_WEBHOOK_URL: `${hook.url}/hook`,
      LOANTAPE_DEAD_MAN_URL: `${hook.url}/alive`,
      LOANTAPE_ALARM_EMAIL_TO: 'night@example.com',
      LOANTAPE_SMTP_URL: `smtp://127.0.0.1:${(server.address() as AddressInfo).port}`,
    },
    async [Symbol.asyncDispose]() {
      await hook[Symbol.asyncDispose]()
      await new Promise<void>((resolve) => mail.close(() => resolve()))
    },
  }
  return inbox
}
