import {Readable} from 'node:stream'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {realClock} from '../clock.ts'
import {type Endpoint, noBodySchema} from '../contract/endpoint.ts'
import {ENDPOINTS} from '../contract/endpoints.ts'
import type {OperationId, Operations} from '../contract/operations.ts'
import type {Scope} from './api-keys.ts'
import {etagOf} from './etag.ts'
import {type Answer, type Call, type Handlers, PREFIX, type ServiceWorld} from './handlers.ts'
import {answerOnce, digestRequest, type KeptAnswer, parseIdempotencyKey} from './idempotency.ts'
import {parseInput, refuse} from './problem-reply.ts'
import {receiveParts} from './uploads.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    scope?: Scope
    isMultipart?: boolean
    takesNoBody?: boolean
    /** Asks for no key. */
    isPublic?: true
  }
  interface FastifyRequest {
    /** Whose key the request came with. */
    keyOwner: string
  }
}

/** What routes need beside what handlers do. */
export interface RouteWorld extends ServiceWorld {
  handlers: Handlers
  /** Refuses what can only be told by asking elsewhere, before the transaction begins. */
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

/** The refusal of a path and method no endpoint has: 405 with `Allow` where the path exists, else 404. */
export function refuseUnknown(url: string): Error {
  const allowed = PATHS.filter(({pattern}) => pattern.test(url)).flatMap(({method}) =>
    method === 'GET' ? ['GET', 'HEAD'] : [method],
  )
  if (allowed.length === 0) return refuse('not_found')
  return refuse('method_not_allowed', {headers: {Allow: allowed.sort().join(', ')}})
}
