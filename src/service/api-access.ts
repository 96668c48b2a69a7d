import type {FastifyInstance, FastifyRequest} from 'fastify'
import {realClock} from '../clock.ts'
import {checkScope, createKeyCheck} from './api-keys.ts'
import {createRateLimiter, type RateLimit} from './api-limit.ts'
import {refuse} from './problem-reply.ts'
import {refuseUnknown} from './routes.ts'
import type {ServiceDatabase} from './service-database.ts'

/** Whether a body comes with the request; an empty one is none, whatever type it is said to have. */
function hasBody({headers}: FastifyRequest): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0
}

function checkContentType(request: FastifyRequest): void {
  const {method, headers, routeOptions} = request
  if (method === 'GET' || method === 'HEAD') return
  if (!hasBody(request)) {
    // The framework goes by the header alone, and refuses a type it has no parser for.
    delete headers['content-type']
    return
  }
  const expected = routeOptions.config?.isMultipart ? 'multipart/form-data' : 'application/json'
  const sent = headers['content-type']?.split(';')[0]?.trim().toLowerCase()
  if (sent === expected) return
  throw refuse('unsupported_media_type', {detail: `Send the body as Content-Type: ${expected}.`})
}

/** Lets a request in: its key, its rate, the scope of its key, its path and method, the type of its body, in this order. */
export function addAccessHooks(
  app: FastifyInstance,
  options: {apiKeys: readonly string[]; database: ServiceDatabase; rateLimit?: RateLimit},
): void {
  const checkKey = createKeyCheck(options.apiKeys, options.database)
  const limitRate = options.rateLimit && createRateLimiter(options.rateLimit, realClock)
  app.decorateRequest('keyOwner', '')
  app.addHook('onRequest', async (request, reply) => {
    const {isPublic, scope} = request.routeOptions.config ?? {}
    if (isPublic) return
    const caller = checkKey(request.headers.authorization)
    request.keyOwner = caller.owner
    if (limitRate) reply.headers(limitRate(caller.owner))
    if (scope) checkScope(caller, scope)
    // Before the body is looked at: what is wrong with it is of no interest where nobody takes it.
    if (request.is404) throw refuseUnknown(request.url)
    checkContentType(request)
  })
}
