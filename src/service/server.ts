import {randomUUID} from 'node:crypto'
import multipart from '@fastify/multipart'
import {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastify,
} from 'fastify'
import type {ProblemCode} from '../contract/problem.ts'
import type {Clock} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {createSilentLog, type Log} from '../core/log.ts'
import {addAccessHooks, type RateLimit, refuseUnknown} from './access.ts'
import {createDealStore, type DealStore} from './deals.ts'
import {addDescription} from './description.ts'
import type {FileStore} from './documents.ts'
import {PREFIX, Refusal, refuse} from './requests.ts'
import {addRoutes, buildApi} from './routes.ts'
import {openServiceDatabase, type ServiceDatabase} from './service-database.ts'
import type {WebhookOptions} from './webhooks.ts'

/** How to run a local Deal Financing Service. */
export interface ServiceOptions {
  /** Default `127.0.0.1`. */
  host?: string
  /** Default 0: a free port. */
  port?: number
  /** A SQLite file; default `:memory:`. Files of documents are stored beside it. */
  dbPath?: string
  /** `sk_live_…` or `sk_test_…`, at least one; keys of the database are accepted too. */
  apiKeys: readonly string[]
  /** Stamps `created_at`. */
  clock: Clock
  /** None by default. */
  rateLimit?: RateLimit
  /** The limit of one uploaded file; default 25 MiB. */
  maxFileBytes?: number
  /** Default 200. */
  documentsPerDeal?: number
  webhooks?: WebhookOptions
  log?: Log
  /** Adds hooks that run before the service's own. */
  extend?: (app: FastifyInstance, database: ServiceDatabase) => void
}

/** A running service. */
export interface RunningService extends AsyncDisposable {
  /** The base URL with the prefix: `http://127.0.0.1:4010/v1`. */
  url: string
  store: DealStore
  /** Holds the deals and everything else. */
  database: ServiceDatabase
  /** The files of documents. */
  files: FileStore
  /** Ends every connection at once, busy or idle, and closes the store. */
  close(): Promise<void>
}

const MAX_FILE_BYTES = 25 * 1024 * 1024
const DOCUMENTS_PER_DEAL = 200

/**
 * Starts a local Deal Financing Service over HTTP.
 *
 * @throws ConfigError if a key has the wrong form, the database cannot be opened or the port is taken
 */
export async function startService(options: ServiceOptions): Promise<RunningService> {
  const {host = '127.0.0.1', port = 0, dbPath = ':memory:', log = createSilentLog()} = options
  const app = createApp(log)
  const database = openServiceDatabase(dbPath)
  const store = createDealStore(database)
  const onError = (error: unknown): void => log.error({err: error}, 'service failed in the background')
  const api = buildApi({
    ...options,
    database,
    store,
    documentsPerDeal: options.documentsPerDeal ?? DOCUMENTS_PER_DEAL,
    onError,
  })
  let closed: Promise<void> | undefined
  const close = (): Promise<void> => {
    // First, so that a waiting request sees a closed connection, not an error from the abort.
    app.server.closeAllConnections()
    closed ??= app
      .close()
      .then(() => api.stop())
      .then(() => database.close())
    return closed
  }
  try {
    app.addHook('onRequest', async (request, reply) => {
      reply.header('X-Request-Id', request.id)
    })
    options.extend?.(app, database)
    addAccessHooks(app, {...options, database})
    addBodyParsers(app, options.maxFileBytes ?? MAX_FILE_BYTES)
    app.register(async (scope) => addRoutes(scope, api), {prefix: PREFIX})
    addDescription(app)
    const address = await app.listen({host, port}).catch((cause: unknown) => {
      throw newError(
        'SERVICE_LISTEN',
        `The service cannot listen on '${host}:${port}': expected a free port of this machine.`,
        {cause},
      )
    })
    const url = address + PREFIX
    api.start()
    return {url, store, database, files: api.files, close, [Symbol.asyncDispose]: close}
  } catch (error) {
    await close()
    throw error
  }
}

const PROBLEM_CODES: Record<string, ProblemCode> = {
  FST_ERR_CTP_INVALID_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'malformed_json',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'malformed_body',
  FST_ERR_CTP_BODY_TOO_LARGE: 'body_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_BAD_URL: 'malformed_url',
  FST_ERR_MAX_PARAM_LENGTH: 'url_too_long',
  FST_REQ_FILE_TOO_LARGE: 'body_too_large',
  FST_FILES_LIMIT: 'body_too_large',
  FST_PARTS_LIMIT: 'body_too_large',
  FST_FIELDS_LIMIT: 'body_too_large',
  FST_INVALID_MULTIPART_CONTENT_TYPE: 'unsupported_media_type',
  FST_PROTO_VIOLATION: 'malformed_body',
}

function answerError(error: Error, request: FastifyRequest, reply: FastifyReply, log: Log): FastifyReply {
  const {problem, headers} = error instanceof Refusal ? error : explainFault(error, request, log)
  reply.header('X-Request-Id', request.id).headers(headers)
  return reply.code(problem.status).type('application/problem+json').send(problem)
}

function explainFault(error: Partial<FastifyError>, request: FastifyRequest, log: Log): Refusal {
  const {statusCode = 500, code = ''} = error
  const known = PROBLEM_CODES[code]
  if (known || (statusCode >= 400 && statusCode < 500)) return refuse(known ?? 'bad_request')
  log.error({err: error, method: request.method, path: request.routeOptions.url}, 'service failed')
  return refuse('internal')
}

function createApp(log: Log): FastifyInstance {
  const app = fastify({
    forceCloseConnections: true,
    genReqId: () => `req_${randomUUID()}`,
    frameworkErrors: (error, request, reply) => answerError(error, request, reply, log),
  })
  app.setErrorHandler<Error>((error, request, reply) => answerError(error, request, reply, log))
  app.setNotFoundHandler((request) => {
    throw refuseUnknown(request.url)
  })
  app.addHook('onResponse', async (request, reply) => {
    const fields = {method: request.method, path: request.routeOptions.url, status: reply.statusCode}
    log.debug({...fields, duration_ms: Math.round(reply.elapsedTime)}, 'service answered')
  })
  return app
}

/** An empty body is not JSON, but endpoints without a body accept it. */
function addBodyParsers(app: FastifyInstance, maxFileBytes: number): void {
  const parseJson = app.getDefaultJsonParser('error', 'error')
  app.removeContentTypeParser('application/json')
  app.addContentTypeParser('application/json', {parseAs: 'string'}, (request, body, done) => {
    if (body === '' && request.routeOptions.config.takesNoBody) done(null, undefined)
    else parseJson(request, String(body), done)
  })
  app.register(multipart, {
    limits: {fileSize: maxFileBytes, files: 1, fields: 10, fieldSize: 1_000, fieldNameSize: 100, parts: 12},
    throwFileSizeLimit: false,
  })
}
