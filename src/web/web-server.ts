import type {FastifyInstance} from 'fastify'
import {Webhook} from 'standardwebhooks'
import {z} from 'zod'
import {idField} from '../contract/stream.ts'
import {EVENT_TYPES} from '../contract/webhook.ts'
import type {Config} from '../core/config.ts'
import {codeOf} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {tellForeign} from '../core/text.ts'
import type {World} from '../core/types.ts'
import {openRelease, requireRelease} from '../store/release.ts'
import type {StateDb} from '../store/state-db.ts'
import {storeEvent} from '../sync/webhook-events.ts'
import {addActions} from './actions.ts'
import {startServer} from './http-server.ts'
import {addMetrics, createMetrics} from './metrics.ts'
import type {WebTools} from './view.ts'
import {addWorkbench} from './workbench.ts'

const hint = idField.optional().catch(undefined)

/** A sender may disable an endpoint that refuses a ping, so only the type must be there. */
const eventSchema = z.object({
  type: z.string().max(100),
  data: z.object({id: hint, deal_id: hint}).catch({}),
})

const KNOWN_TYPES = new Set<string>(EVENT_TYPES)

/** At most one log line about invalid signatures in this time. */
const TELL_MS = 60_000

/** https://www.standardwebhooks.com: the id is part of what is signed. */
const ID = /^[\w.:-]{1,200}$/

/** Stores signed events durably before they are acknowledged; they are at most five minutes old. Their content is only a hint. */
export function addWebhooks(
  server: FastifyInstance,
  {webhookSecret = ''}: Config,
  stateDb: StateDb,
  world: World,
): void {
  const verifiers = webhookSecret.split(/\s*,\s*/).flatMap((secret) => (secret ? [new Webhook(secret)] : []))
  let refused = 0
  let toldAt = Number.NEGATIVE_INFINITY
  function noteRefused(): void {
    refused += 1
    const now = world.realClock.now()
    if (Math.abs(now - toldAt) < TELL_MS) return
    world.log.warn(
      {code: 'WEBHOOK_REFUSED', count: refused},
      'count webhooks without a valid signature were refused',
    )
    refused = 0
    toldAt = now
  }
  server.register(async (scope) => {
    // The signature covers the bytes as received.
    scope.removeAllContentTypeParsers()
    scope.addContentTypeParser('*', {parseAs: 'string'}, (_request, body, done) => done(null, body))
    scope.post('/webhooks/deals', async (request, reply) => {
      const answer = (status: number, words: string) =>
        reply.code(status).type('text/plain').send(`${words}\n`)
      if (verifiers.length === 0) return answer(404, 'No webhook secret is set here.')
      const body = typeof request.body === 'string' ? request.body : ''
      const headers = z.record(z.string(), z.coerce.string()).parse(request.headers)
      if (!verifiers.some((verifier) => isSigned(verifier, body, headers))) {
        noteRefused()
        return answer(401, 'Signature missing, wrong or too old.')
      }
      const eventId = headers['webhook-id'] ?? ''
      const parsed = eventSchema.safeParse(parseJson(body))
      if (!ID.test(eventId) || !parsed.success) return answer(400, 'Event not understood.')
      const {type, data} = parsed.data
      const isOfDeal = type.startsWith('deal.')
      const dealId = data.deal_id || (isOfDeal && data.id) || null
      if (isOfDeal && dealId === null) return answer(400, 'Event names no deal.')
      const event = {eventId, type: tellForeign(type, KNOWN_TYPES), dealId}
      const isNew = storeEvent(stateDb, event, world.realClock.now())
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

/** @throws ConfigError `WEB_TOKEN_MISSING`; UnexpectedError `WEB_ADDRESS` */
export function startWeb(config: Config, given: Omit<WebTools, 'config'>, world: World) {
  const tools: WebTools = {...given, config}
  return startServer(config, world, (server) => {
    addReadiness(server, tools, world)
    addMetrics(server, createMetrics(tools, world))
    const added = new AsyncDisposableStack()
    added.use(addWorkbench(server, tools, world))
    added.use(addActions(server, tools, world))
    addWebhooks(server, config, tools.stateDb, world)
    return added
  })
}

const READY_MS = 5_000

/** `/readyz`: jobs can run, and state database and current release answer a query. Asked at most once in some seconds. */
function addReadiness(server: FastifyInstance, tools: WebTools, {realClock}: World): void {
  const {stateDb, folder, findFault} = tools
  let asked = {at: Number.NEGATIVE_INFINITY, problem: Promise.resolve<string | null>(null)}
  async function findProblem(): Promise<string | null> {
    try {
      const fault = findFault?.()
      if (fault) throw fault.problem
      stateDb.all(z.unknown(), 'select run_id from run limit 1')
      await using db = await openRelease(requireRelease(folder))
      await db.one(z.object({deals: z.coerce.number()}), 'select deals from mart.portfolio_summary')
      return null
    } catch (error) {
      // The caller needs no token, so it gets a code without paths or addresses.
      return codeOf(error)
    }
  }
  server.get('/readyz', async (_request, reply) => {
    const now = realClock.now()
    if (Math.abs(now - asked.at) >= READY_MS) asked = {at: now, problem: findProblem()}
    const problem = await asked.problem
    reply.type('text/plain')
    return problem === null ? 'ready\n' : reply.code(503).send(`not ready: ${problem}\n`)
  })
}
