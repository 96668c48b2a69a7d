import type {IncomingHttpHeaders} from 'node:http'
import {text} from 'node:stream/consumers'
import {Webhook} from 'standardwebhooks'
import type {WebhookEvent} from '../../src/contract/webhook.ts'
import {startTestServer} from '../source/test-server.ts'
import {until} from '../support/until.ts'

export interface Notification {
  id: string
  headers: IncomingHttpHeaders
  text: string
}

export type Receiver = Awaited<ReturnType<typeof startReceiver>>

export async function startReceiver() {
  const received: Notification[] = []
  const server = await startTestServer(async ({headers, incoming}, response) => {
    const body = await text(incoming)
    const answer = receiver.answer(received.length)
    received.push({id: String(headers['webhook-id']), headers, text: body})
    const status = await answer
    if (status === 0) return
    response.writeHead(status, status === 302 ? {location: receiver.url} : {}).end('thanks')
  })
  const receiver = {
    url: server.url,
    received,
    /** Returns the status of an answer, by the number of earlier ones: 200 by default, 0 for no answer ever. */
    answer: (_turn: number): number | Promise<number> => 200,
    async waitFor(count: number) {
      await until(() => received.length >= count)
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  }
  return receiver
}

/** Returns the event of a notification. @throws Error if its signature is invalid */
export function verifyNotification(notification: Notification, secret: string): WebhookEvent {
  const {headers, text: body} = notification
  return new Webhook(secret).verify(body, headers as Record<string, string>) as WebhookEvent
}
