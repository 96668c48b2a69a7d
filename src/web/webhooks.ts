import type {FastifyInstance} from 'fastify'
import {Webhook} from 'standardwebhooks'
import {z} from 'zod'
import type {Config} from '../config.ts'
import {EVENT_TYPES} from '../contract/webhook.ts'
import {tellForeign} from '../foreign.ts'
import {parseJson} from '../json.ts'
import type {StateDb} from '../state/state-db.ts'
import {storeEvent} from '../state/webhook-events.ts'
import type {World} from '../types.ts'

const eventSchema = z.object({
  type: z.string().max(100),
  data: z.object({id: z.string().max(200).optional(), deal_id: z.string().max(200).optional()}),
})

const KNOWN_TYPES = new Set<string>(EVENT_TYPES)

/** Those without a valid signature are told of this often. */
const TELL_MS = 60_000

/** https://www.standardwebhooks.com: the id is part of what is signed. */
const ID = /^[\w.:-]{1,200}$/

/**
 * Takes notifications of the service (`POST /webhooks/deals`): signed by Standard Webhooks with one of the
 * secrets, not older than five minutes, and stored durably before they are acknowledged. What they say is a hint only.
 */
export function addWebhooks(
  server: FastifyInstance,
  {webhookSecret = ''}: Config,
  stateDb: StateDb,
  world: World,
): void {
  const verifiers = webhookSecret.split(/\s*,\s*/).flatMap((secret) => (secret ? [new Webhook(secret)] : []))
  let refused = 0
  let toldAt = Number.NEGATIVE_INFINITY
  /** A flood of them fills no log. */
  function noteRefused(): void {
    refused += 1
    const now = world.realClock.now()
    if (now - toldAt < TELL_MS) return
    world.log.warn(
      {code: 'WEBHOOK_REFUSED', count: refused},
      'count webhooks without a valid signature were refused',
    )
    refused = 0
    toldAt = now
  }
  server.register(async (scope) => {
    // The signature is over the bytes as they came.
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', {parseAs: 'string'}, (_request, body, done) => done(null, body))
    scope.post('/webhooks/deals', async (request, reply) => {
      const answer = (status: number, words: string) =>
        reply.code(status).type('text/plain').send(`${words}\n`)
      if (verifiers.length === 0) return answer(404, 'No webhook secret is set here.')
      const body = typeof request.body === 'string' ? request.body : ''
      const headers = Object.fromEntries(
        Object.entries(request.headers).map(([name, value]) => [name, String(value)]),
      )
      if (!verifiers.some((verifier) => isSigned(verifier, body, headers))) {
        noteRefused()
        return answer(401, 'Signature missing, wrong or too old.')
      }
      const eventId = headers['webhook-id'] ?? ''
      const event = eventSchema.safeParse(parseJson(body))
      if (!ID.test(eventId) || !event.success) return answer(400, 'Event not understood.')
      const {type, data} = event.data
      const isOfDeal = type.startsWith('deal.')
      const dealId = data.deal_id || (isOfDeal && data.id) || null
      if (isOfDeal && dealId === null) return answer(400, 'Event names no deal.')
      const isNew = storeEvent(
        stateDb,
        {eventId, type: tellForeign(type, KNOWN_TYPES), dealId},
        world.realClock.now(),
      )
      return answer(isNew ? 202 : 200, isNew ? 'Stored.' : 'Known already.')
    })
  })
}

function isSigned(verifier: Webhook, body: string, headers: Record<string, string>): boolean {
  try {
    verifier.verify(body, headers, {jsonParse: false})
    return true
  } catch {
    return false
  }
}
