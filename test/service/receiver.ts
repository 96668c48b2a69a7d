import {createServer, type IncomingHttpHeaders} from 'node:http'
import type {AddressInfo} from 'node:net'
import {Webhook} from 'standardwebhooks'
import type {WebhookEvent} from '../../src/contract/webhook.ts'
import {until} from '../support/until.ts'

/** One notification as received. */
export interface Notification {
  id: string
  headers: IncomingHttpHeaders
  text: string
}

/** A server that receives notifications. */
export interface Receiver extends AsyncDisposable {
  url: string
  received: Notification[]
  /** The status of each answer, by the number of earlier ones; 200 by default, 0 for no answer ever. */
  answer: (turn: number) => number
  /** Resolves when this many have arrived. */
  waitFor(count: number): Promise<void>
}

/** Starts a receiver on loopback. */
export async function startReceiver(): Promise<Receiver> {
  const received: Notification[] = []
  const server = createServer(async (incoming, response) => {
    let text = ''
    for await (const chunk of incoming) text += chunk
    const {headers} = incoming
    const status = receiver.answer(received.length)
    received.push({id: String(headers['webhook-id']), headers, text})
    if (status === 0) return
    response.writeHead(status, status === 302 ? {location: receiver.url} : {}).end('thanks')
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const receiver: Receiver = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`,
    received,
    answer: () => 200,
    async waitFor(count) {
      await until(() => received.length >= count)
    },
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
  return receiver
}

/** The event of a notification with a valid signature. */
export function verifyNotification({headers, text}: Notification, secret: string): WebhookEvent {
  return new Webhook(secret).verify(text, headers as Record<string, string>) as WebhookEvent
}
