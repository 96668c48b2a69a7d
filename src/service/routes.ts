import {Readable} from 'node:stream'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {z} from 'zod'
import {
  ENDPOINTS,
  type Endpoint,
  noBodySchema,
  type OperationId,
  type Operations,
} from '../contract/endpoints.ts'
import {realClock} from '../core/clock.ts'
import type {Scope} from './access.ts'
import {createDealHandlers, etagOf} from './deals.ts'
import {createDocumentHandlers, createGenerationHandlers, createGenerator, receiveParts} from './documents.ts'
import {openFileStore} from './files.ts'
import {
  createBorrowerHandlers,
  createRateHandlers,
  createReportHandlers,
  createTaskHandlers,
} from './other-records.ts'
import {
  type Answer,
  answerOnce,
  type Call,
  digestRequest,
  type Handlers,
  type KeptAnswer,
  PREFIX,
  parseIdempotencyKey,
  parseInput,
  refuse,
  type ServiceWorld,
} from './requests.ts'
import {
  type AddressLookup,
  createAddressGuard,
  createOutbox,
  createWebhookHandlers,
  pruneDeliveries,
  RETRY_DELAYS_MS,
} from './webhooks.ts'

/** How a service sends webhooks. */
export interface WebhookOptions {
  /** Allows webhooks to this machine and its networks, and over plain http; default false. */
  allowPrivate?: boolean
  /** The waits before the second and each further attempt; default those of Standard Webhooks. */
  retryDelaysMs?: readonly number[]
  lookup?: AddressLookup
}

/**
 * Joins handlers, files, outbox and generator.
 *
 * @param parts.onError gets errors of background work
 */
export function buildApi(
  parts: Omit<ServiceWorld, 'files' | 'emit'> & {
    webhooks?: WebhookOptions
    onError: (error: unknown) => void
  },
) {
  const {database, webhooks = {}, clock, onError} = parts
  const guard = createAddressGuard({allowPrivate: false, ...webhooks})
  const retryDelaysMs = webhooks.retryDelaysMs ?? RETRY_DELAYS_MS
  const outbox = createOutbox({database, guard, clock, retryDelaysMs, onError})
  const world: ServiceWorld = {...parts, files: openFileStore(database), emit: outbox.emit}
  const generator = createGenerator(world, onError)
  const handlers: Handlers = {
    ...createDealHandlers(world),
    ...createBorrowerHandlers(world),
    ...createDocumentHandlers(world),
    ...createTaskHandlers(world),
    ...createGenerationHandlers(world, generator.wake),
    ...createRateHandlers(world),
    ...createReportHandlers(world),
    ...createWebhookHandlers(world, outbox.wake),
  }
  return {
    ...world,
    handlers,
    async checkBody(id: OperationId, body: unknown) {
      if (id !== 'createWebhookEndpoint' && id !== 'updateWebhookEndpoint') return
      const {url} = z.object({url: z.string().optional()}).parse(body)
      const problem = url === undefined ? null : await guard.findProblem(url)
      if (problem !== null) throw refuse('invalid_body', {errors: [{path: 'url', message: problem}]})
    },
    /** Continues the background work of an earlier service. */
    start() {
      pruneDeliveries(database, clock.now())
      generator.wake()
      outbox.wake()
    },
    async stop() {
      generator.stop()
      await outbox.stop()
      world.files.close()
    },
  }
}

declare module 'fastify' {
  interface FastifyContextConfig {
    scope?: Scope
    isMultipart?: boolean
    takesNoBody?: boolean
    /** Needs no key. */
    isPublic?: true
  }
  interface FastifyRequest {
    /** The owner of the request's key. */
    keyOwner: string
  }
}

/** What routes work on. */
interface RouteWorld extends ServiceWorld {
  handlers: Handlers
  /** Checks that need the network, before the transaction begins. @throws Refusal */
  checkBody(id: OperationId, body: unknown): Promise<void>
}

function isOperationId(id: string): id is OperationId {
  return id in ENDPOINTS
}

const paramsOf = ({params}: FastifyRequest): string[] =>
  typeof params === 'object' && params !== null ? Object.values(params).map(String) : []

function formatAnswer<Id extends OperationId>(
  {body, headers = {}}: Answer<Operations[Id]>,
  {status, hasEtag}: Endpoint<Operations[Id]>,
): KeptAnswer {
  const etag = hasEtag ? {ETag: etagOf(body)} : {}
  return {status, headers: {...headers, ...etag}, body: body === undefined ? '' : JSON.stringify(body)}
}

function sendAnswer({status, headers, body}: KeptAnswer, reply: FastifyReply): FastifyReply {
  reply.code(status).headers(headers)
  return body === '' ? reply.send() : reply.type('application/json; charset=utf-8').send(body)
}

/** Writes in one transaction: the change, its events, and the answer kept for an Idempotency-Key. */
function answerWriting<Id extends OperationId>(
  id: Id,
  {call, digested, request}: {call: Call<Operations[Id]>; digested: unknown; request: FastifyRequest},
  world: RouteWorld,
): KeptAnswer {
  const {database, handlers} = world
  const {method, url, keyOwner} = request
  const work = (): KeptAnswer => formatAnswer<Id>(handlers[id](call), ENDPOINTS[id])
  const key = method === 'POST' ? parseIdempotencyKey(request.headers['idempotency-key']) : undefined
  return database.transaction(() => {
    if (key === undefined) return work()
    const fingerprint = digestRequest({method, path: url, body: digested}, database.secret)
    return answerOnce({owner: keyOwner, key, fingerprint}, work, {database, now: realClock.now()})
  })
}

function createRouteHandler<Id extends OperationId>(id: Id, world: RouteWorld) {
  const endpoint: Endpoint<Operations[Id]> = ENDPOINTS[id]
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const [ownId = '', childId = ''] = paramsOf(request)
    const query = parseInput(endpoint.query, request.query, 'invalid_parameter')
    const parts = request.isMultipart() ? await receiveParts(request, world.files) : undefined
    try {
      const sent = parts ? {...parts.fields, file: parts.file} : request.body
      const body = parseInput(endpoint.body, sent, 'invalid_body')
      const call: Call<Operations[Id]> = {
        id: ownId,
        childId,
        query,
        body,
        ifMatch: request.headers['if-match'],
      }
      if (endpoint.method === 'GET') {
        const answer = world.handlers[id](call)
        if (answer.body instanceof Readable) return reply.headers(answer.headers ?? {}).send(answer.body)
        return sendAnswer(formatAnswer<Id>(answer, endpoint), reply)
      }
      await world.checkBody(id, body)
      const digested = parts ? {...parts.fields, file: parts.file?.sha256} : request.body
      return sendAnswer(answerWriting(id, {call, digested, request}, world), reply)
    } finally {
      if (parts?.file) world.files.discard(parts.file)
    }
  }
}

/** Adds a route for every endpoint of the contract. */
export function addRoutes(app: FastifyInstance, world: RouteWorld): void {
  for (const id of Object.keys(ENDPOINTS).filter(isOperationId)) {
    const {method, path, body, isMultipart = false} = ENDPOINTS[id]
    app.route({
      method,
      url: path.replace(/\{(\w+)\}/g, ':$1'),
      config: {scope: method === 'GET' ? 'read' : 'write', isMultipart, takesNoBody: body === noBodySchema},
      handler: createRouteHandler(id, world),
    })
  }
}

const PATHS = Object.values(ENDPOINTS).map(({method, path}) => ({
  method,
  pattern: new RegExp(`^${PREFIX}${path.replace(/\{\w+\}/g, '[^/]+')}(?:\\?|$)`),
}))

/** The refusal of an unknown path or method: 405 with `Allow` if the path exists, else 404. */
export function refuseUnknown(url: string): Error {
  const allowed = PATHS.filter(({pattern}) => pattern.test(url)).flatMap(({method}) =>
    method === 'GET' ? ['GET', 'HEAD'] : [method],
  )
  if (allowed.length === 0) return refuse('not_found')
  return refuse('method_not_allowed', {headers: {Allow: allowed.sort().join(', ')}})
}
