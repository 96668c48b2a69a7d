import {randomUUID} from 'node:crypto'
import {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastify,
} from 'fastify'
import {type Clock, realClock} from '../clock.ts'
import {ConfigError} from '../errors.ts'
import type {Log} from '../log.ts'
import {createKeyCheck} from './api-keys.ts'
import {formatCursor, parseCursor} from './cursor.ts'
import {addDealRoutes} from './deal-routes.ts'
import {addFaultHooks} from './fault-hooks.ts'
import {createFaultBook, type Faults} from './faults.ts'
import {buildProblem, Refusal, sendProblem} from './problem-reply.ts'
import {createRateLimiter, type RateLimit} from './rate-limit.ts'
import {createRequestLog, type RequestLog} from './request-log.ts'
import {type DealStore, openDealStore} from './store.ts'

/** How to run a local Deal Financing Service. */
export interface ServiceOptions {
  /** Default `127.0.0.1`. */
  host?: string
  /** Default 0: a free port. */
  port?: number
  /** A SQLite file; default `:memory:`. */
  dbPath?: string
  /** `sk_live_…` or `sk_test_…`, at least one. */
  apiKeys: readonly string[]
  /** Stamps `created_at` of new deals. */
  clock: Clock
  /** Off when not given. */
  rateLimit?: RateLimit
  log?: Log
}

/** A service that listens. */
export interface RunningService extends AsyncDisposable {
  /** The base URL with the prefix: `http://127.0.0.1:4010/v1`. */
  url: string
  store: DealStore
  faults: Faults
  requests: RequestLog
  /** Ends every connection at once, busy or idle, and closes the store. */
  close(): Promise<void>
}

const PREFIX = '/v1'
const WITH_BODY = new Set(['POST', 'PUT', 'PATCH'])

function pathOf(request: FastifyRequest): string {
  return request.url.startsWith(`${PREFIX}/`) ? request.url.slice(PREFIX.length) : request.url
}

function isJson(contentType: string | undefined): boolean {
  return contentType?.split(';')[0]?.trim().toLowerCase() === 'application/json'
}

const PROBLEM_CODES: Record<string, string> = {
  FST_ERR_CTP_INVALID_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'malformed_body',
  FST_ERR_CTP_BODY_TOO_LARGE: 'body_too_large',
  FST_ERR_BAD_URL: 'malformed_url',
  FST_ERR_MAX_PARAM_LENGTH: 'url_too_long',
}

function answerError(error: Error, request: FastifyRequest, reply: FastifyReply, log?: Log): FastifyReply {
  reply.header('X-Request-Id', request.id)
  if (error instanceof Refusal) return sendProblem(reply, error.problem, error.headers)
  const {statusCode: status = 500, code = ''}: Partial<FastifyError> = error
  if (status >= 400 && status < 500)
    return sendProblem(reply, buildProblem({status, code: PROBLEM_CODES[code] ?? 'bad_request'}))
  log?.error({err: error, method: request.method, path: request.routeOptions.url}, 'service failed')
  return sendProblem(reply, buildProblem({status: 500, code: 'internal'}))
}

function createApp(log?: Log): FastifyInstance {
  const app = fastify({
    forceCloseConnections: true,
    genReqId: () => `req_${randomUUID()}`,
    frameworkErrors: (error, request, reply) => answerError(error, request, reply, log),
  })
  app.setErrorHandler<Error>((error, request, reply) => answerError(error, request, reply, log))
  app.setNotFoundHandler(() => {
    throw new Refusal(buildProblem({status: 404, code: 'not_found', detail: 'There is no such endpoint.'}))
  })
  app.addHook('onResponse', async (request, reply) => {
    const fields = {method: request.method, path: request.routeOptions.url, status: reply.statusCode}
    log?.debug({...fields, duration_ms: Math.round(reply.elapsedTime)}, 'service answered')
  })
  return app
}

function addAccessHooks(app: FastifyInstance, options: ServiceOptions): void {
  const checkKey = createKeyCheck(options.apiKeys)
  const limitRate = options.rateLimit && createRateLimiter(options.rateLimit, realClock)
  app.addHook('onRequest', async (request, reply) => {
    const key = checkKey(request.headers.authorization)
    if (limitRate) reply.headers(limitRate(key))
    if (WITH_BODY.has(request.method) && !isJson(request.headers['content-type'])) {
      const detail = 'Send the body as Content-Type: application/json.'
      throw new Refusal(buildProblem({status: 415, code: 'unsupported_media_type', detail}))
    }
  })
}

function rewindCursor(cursor: string, store: DealStore): string {
  const place = parseCursor(cursor, store.cursorSecret)
  if (!place) return cursor
  const after = store.keyBefore(place.after, place.status ?? undefined) ?? {createdAt: 0, id: ''}
  return formatCursor({...place, after}, store.cursorSecret)
}

async function listen(app: FastifyInstance, host: string, port: number): Promise<string> {
  try {
    return await app.listen({host, port})
  } catch (cause) {
    throw new ConfigError({
      code: 'SERVICE_LISTEN',
      problem: `The service cannot listen on '${host}:${port}': expected a free port of this machine.`,
      next: 'Choose another port, or 0 for any free one.',
      cause,
    })
  }
}

/**
 * Starts a local Deal Financing Service over HTTP.
 *
 * @throws ConfigError when a key has the wrong form, the database cannot be opened or the port is taken
 */
export async function startService(options: ServiceOptions): Promise<RunningService> {
  const {host = '127.0.0.1', port = 0, dbPath = ':memory:', clock, log} = options
  const app = createApp(log)
  const closing = new AbortController()
  const faults = createFaultBook()
  const requests = createRequestLog()

  app.addHook('onRequest', async (request, reply) => {
    reply.header('X-Request-Id', request.id)
    requests.add({method: request.method, path: pathOf(request), at: realClock.now()})
  })
  addFaultHooks(app, faults, {
    realClock,
    signal: closing.signal,
    pathOf,
    rewindCursor: (cursor) => rewindCursor(cursor, store),
  })
  addAccessHooks(app, options)

  const store = openDealStore(dbPath)
  let closed: Promise<void> | undefined
  const close = (): Promise<void> => {
    // Connections go first: a request that waits must see a closed connection, not an error of the abort.
    app.server.closeAllConnections()
    closing.abort(new Error('The service is closing.'))
    closed ??= app.close().then(() => store.close())
    return closed
  }
  app.register(async (api) => addDealRoutes(api, {store, clock}), {prefix: PREFIX})
  try {
    const url = `${await listen(app, host, port)}${PREFIX}`
    return {url, store, faults, requests, close, [Symbol.asyncDispose]: close}
  } catch (error) {
    await close()
    throw error
  }
}
