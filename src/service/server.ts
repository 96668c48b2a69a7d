import {isUtf8} from 'node:buffer'
import {createHmac, randomUUID} from 'node:crypto'
import type {Socket} from 'node:net'
import multipart from '@fastify/multipart'
import {
  type FastifyError,
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  fastify,
} from 'fastify'
import {z} from 'zod'
import {
  type Endpoint,
  IDEMPOTENCY_KEY,
  noBodySchema,
  type Operation,
  type ServedFile,
} from '../contract/endpoint.ts'
import {ENDPOINTS, type OperationId, type Operations} from '../contract/endpoints.ts'
import type {PageQuery} from '../contract/list.ts'
import type {ProblemCode} from '../contract/problem.ts'
import {type Clock, DAY_MS, realClock} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {isObject, parseWritten} from '../core/json.ts'
import {createSilentLog, type Log} from '../core/log.ts'
import {addAccessHooks, type RateLimit} from './access.ts'
import {createDealHandlers, createDealStore, createRecordHandlers, DEALS, etagOf} from './deals.ts'
import {addDescription} from './description.ts'
import {createDocumentHandlers, createGenerator, MOST_FILE_BYTES, receiveParts} from './documents.ts'
import {Refusal, refuse} from './refusal.ts'
import {type Call, formatCursor, type Handlers, PREFIX, readCursor, type ServiceWorld} from './requests.ts'
import {
  FIRST,
  type FoundPage,
  type Kind,
  openServiceDatabase,
  type ServiceDatabase,
} from './service-database.ts'
import {
  createAddressGuard,
  createOutbox,
  createWebhookHandlers,
  WEBHOOK_ENDPOINTS,
  type WebhookOptions,
} from './webhooks.ts'

export interface ServiceOptions {
  /** Default 0: a free port. */
  port?: number
  /** A SQLite file; default `:memory:`. */
  dbPath?: string
  /** `sk_live_…` or `sk_test_…`, at least one; keys of the database are accepted too. */
  apiKeys: readonly string[]
  /** Stamps `created_at`. */
  clock: Clock
  /** None by default. */
  rateLimit?: RateLimit
  webhooks?: WebhookOptions
  log?: Log
  /** Adds hooks that run before the service's own. */
  extend?: (app: FastifyInstance) => void
}

export type RunningService = Awaited<ReturnType<typeof startService>>

/** @throws ConfigError for a malformed key, an unusable database, or a port in use */
export async function startService(options: ServiceOptions) {
  const {port = 0, dbPath = ':memory:', log = createSilentLog()} = options
  const app = createApp(log)
  const database = openServiceDatabase(dbPath)
  const store = createDealStore(database)
  const api = buildApi(options, database, log)
  let closed: Promise<void> | undefined
  /** Ends every connection at once, busy or idle. */
  const close = (): Promise<void> => {
    // Connections first, so that a waiting request sees a closed connection, not an error from the abort.
    app.server.closeAllConnections()
    closed ??= app
      .close()
      .then(() => api.stop())
      .then(() => database[Symbol.dispose]())
    return closed
  }
  try {
    app.addHook('onRequest', (request, reply, done) => {
      reply.header('X-Request-Id', request.id)
      done()
    })
    options.extend?.(app)
    addAccessHooks(app, {...options, database})
    addBodyParsers(app)
    addDescription(app)
    app.register(async (scope) => addRoutes(scope, api), {prefix: PREFIX})
    const address = await app.listen({host: '127.0.0.1', port}).catch((cause: unknown) => {
      throw newError(
        'SERVICE_LISTEN',
        `The service cannot listen on '127.0.0.1:${port}': expected a free port of this machine.`,
        {cause},
      )
    })
    /** `http://127.0.0.1:4010/v1` */
    const url = address + PREFIX
    api.start()
    return {url, store, database, close, [Symbol.asyncDispose]: close}
  } catch (error) {
    await close()
    throw error
  }
}

function buildApi(options: ServiceOptions, database: ServiceDatabase, log: Log) {
  const {clock, webhooks = {}} = options
  const onError = (error: unknown): void => log.error({err: error}, 'service failed in the background')
  const guard = createAddressGuard(webhooks)
  const outbox = createOutbox(guard, webhooks, {database, clock, onError})
  const world: ServiceWorld = {database, clock, emit: outbox.emit, onError}
  const generator = createGenerator(world)
  const handlers: Handlers = {
    ...createDealHandlers(world),
    ...createRecordHandlers(world),
    ...createDocumentHandlers(world, generator.wake),
    ...createWebhookHandlers(world, outbox.wake),
  }
  return {
    database,
    handlers,
    /** Checks that need the network come before the transaction. */
    async checkBody(body: unknown): Promise<Refusal | undefined> {
      if (!isObject(body) || typeof body.url !== 'string') return undefined
      const message = await guard.findProblem(body.url)
      return message === null ? undefined : refuse('invalid_body', {errors: [{path: 'url', message}]})
    },
    /** Resumes the background work of an earlier service. */
    start() {
      generator.wake()
      outbox.start()
    },
    async stop() {
      generator.stop()
      await outbox.stop()
    },
  }
}

type Api = ReturnType<typeof buildApi>

declare module 'fastify' {
  interface FastifyContextConfig {
    endpoint?: Endpoint
  }
  interface FastifyRequest {
    keyOwner: string
  }
}

/** Problems by code or status of the framework's error. */
const FAULTS: Record<string | number, ProblemCode> = {
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'malformed_body',
  FST_INVALID_JSON_FIELD_ERROR: 'malformed_body',
  FST_PROTO_VIOLATION: 'malformed_body',
  FST_ERR_BAD_URL: 'malformed_url',
  406: 'unsupported_media_type',
  413: 'body_too_large',
  414: 'url_too_long',
  415: 'unsupported_media_type',
}

function answerError(error: Error, request: FastifyRequest, reply: FastifyReply, log: Log): FastifyReply {
  const {problem, headers} = error instanceof Refusal ? error : explainFault(error, request, log)
  reply.header('X-Request-Id', request.id).headers(headers)
  return reply.code(problem.status).type('application/problem+json').send(problem)
}

function explainFault(error: Partial<FastifyError>, request: FastifyRequest, log: Log): Refusal {
  const {statusCode = 500, code = ''} = error
  const known = FAULTS[code] ?? FAULTS[statusCode]
  if (known || (statusCode >= 400 && statusCode < 500)) return refuse(known ?? 'bad_request')
  log.error({err: error, method: request.method, path: request.routeOptions.url}, 'service failed')
  return refuse('internal')
}

const createRequestId = () => `req_${randomUUID()}`

/** Answers what Node cannot parse as a request. A request that does not arrive in time gets no answer. */
function answerClientError(error: NodeJS.ErrnoException, socket: Socket): void {
  const body = JSON.stringify(refuse('bad_request').problem)
  const head = [
    'HTTP/1.1 400 Bad Request',
    'Connection: close',
    `Content-Length: ${body.length}`,
    'Content-Type: application/problem+json',
    `X-Request-Id: ${createRequestId()}`,
  ]
  if (socket.writable && error.code !== 'ERR_HTTP_REQUEST_TIMEOUT')
    socket.write([...head, '', body].join('\r\n'))
  socket.destroy(error)
}

/** A request must arrive within this time, files included. */
const REQUEST_MS = 300_000

function createApp(log: Log): FastifyInstance {
  const app = fastify({
    forceCloseConnections: true,
    genReqId: createRequestId,
    requestTimeout: REQUEST_MS,
    clientErrorHandler: answerClientError,
    frameworkErrors: (error, request, reply) => answerError(error, request, reply, log),
  })
  // Node answers an expectation that it does not know with 417 and nothing else.
  app.server.on('checkExpectation', app.routing)
  app.setErrorHandler<Error>((error, request, reply) => answerError(error, request, reply, log))
  app.addHook('onSend', ({method, routeOptions}, {statusCode: status, elapsedTime}, _payload, done) => {
    log.debug(
      {method, path: routeOptions.url, status, duration_ms: Math.round(elapsedTime)},
      'service answers',
    )
    done()
  })
  return app
}

const refuseJson = (problem: string) => refuse('malformed_json', {detail: `The body: ${problem}.`})

/** An empty body is not JSON, but endpoints without a body accept it. */
function addBodyParsers(app: FastifyInstance): void {
  app.removeContentTypeParser('application/json')
  const parse = async (request: FastifyRequest, body: Buffer): Promise<unknown> => {
    if (body.length === 0 && request.routeOptions.config.endpoint?.body === noBodySchema) return undefined
    if (!isUtf8(body)) throw refuseJson('expected UTF-8')
    return parseWritten(String(body), refuseJson, z.unknown())
  }
  app.addContentTypeParser('application/json', {parseAs: 'buffer'}, parse)
  app.register(multipart, {
    limits: {
      fileSize: MOST_FILE_BYTES,
      files: 2,
      fields: 10,
      fieldSize: 1_000,
      fieldNameSize: 100,
      parts: 12,
    },
    throwFileSizeLimit: false,
  })
}

function addRoutes(app: FastifyInstance, api: Api): void {
  app.setValidatorCompiler<z.ZodType>(({schema, httpPart}) => (value: unknown) => {
    // The framework passes null for what was not sent.
    const parsed = schema.safeParse(value ?? undefined)
    return parsed.success ? {value: parsed.data} : {error: refuseInput(parsed.error, httpPart)}
  })
  const isOperationId = (id: string): id is OperationId => id in ENDPOINTS
  for (const id of Object.keys(ENDPOINTS).filter(isOperationId)) addRoute(id, app, api)
}

type Parsed<Op extends Operation> = Pick<Call<Op>, 'query' | 'body'> & {params: Record<string, string>}

/** If one of these does not exist, nothing below it is found. */
const OWNERS: readonly (readonly [path: string, kind: Kind<unknown>])[] = [
  ['/deals/{id}', DEALS],
  ['/webhook-endpoints/{id}', WEBHOOK_ENDPOINTS],
]

function addRoute<Id extends OperationId>(operationId: Id, app: FastifyInstance, api: Api): void {
  const endpoint: Endpoint<Operations[Id]> = ENDPOINTS[operationId]
  const {method, path, query, body, record, isMultipart, isList} = endpoint
  const {database, handlers} = api
  const [, owner] = OWNERS.find(([start]) => path.startsWith(start)) ?? []
  const find = (request: FastifyRequest): unknown => {
    const {params, query, body} = request as Parsed<Operations[Id]>
    const [id = '', childId = ''] = Object.values(params)
    if (owner) database.record(owner, {id})
    const ifMatch = request.headers['if-match']
    const call = {id, childId, query, body, ifMatch, page: {after: FIRST, limit: 0}}
    return isList ? readPage(operationId, call, api) : handlers[operationId](call)
  }
  const answer = (request: FastifyRequest) => formatAnswer(endpoint, request, find(request))
  const change = async (request: FastifyRequest, reply: FastifyReply) => {
    const refusal = await api.checkBody(request.body)
    const work = () => {
      if (refusal) throw refusal
      return answer(request)
    }
    return send(write(work, request, database), reply)
  }
  const read = (request: FastifyRequest, reply: FastifyReply) => {
    if (record !== null) return void send(answer(request), reply)
    const {headers, content} = find(request) as ServedFile
    void reply.headers(headers).send(content)
  }
  app.route({
    method,
    url: path.replace(/\{(\w+)\}/g, ':$1'),
    schema: {operationId, querystring: query, ...(method !== 'GET' && {body})},
    config: {endpoint},
    ...(isMultipart && {preValidation: receiveParts}),
    handler: method === 'GET' ? read : change,
  })
}

function readPage<Id extends OperationId>(
  operationId: Id,
  call: Call<Operations[Id]>,
  {handlers, database}: Api,
): string {
  const {limit, cursor, ...filter} = call.query as PageQuery
  // A filter that is false filters nothing.
  const list = JSON.stringify([operationId, call.id, Object.entries(filter).filter(([, value]) => value)])
  const after = cursor === undefined ? FIRST : readCursor(cursor, list, database.secret)
  const {records, next} = handlers[operationId]({...call, page: {after, limit}}) as FoundPage
  const cursorOfNext = next && formatCursor(next, list, database.secret)
  return `{"data":[${records}],"has_more":${next !== null},"next_cursor":${JSON.stringify(cursorOfNext)}}`
}

/** Names every wrong path, never a value. */
function refuseInput({issues}: z.ZodError, httpPart = 'body'): Refusal {
  const errors = issues.flatMap((issue) => {
    if (issue.code !== 'unrecognized_keys') return [{path: issue.path.join('.'), message: issue.message}]
    return issue.keys.map((key) => ({path: [...issue.path, key].join('.'), message: 'unknown field'}))
  })
  const paths = [...new Set(errors.map(({path}) => path || httpPart))].join(', ')
  const code = httpPart === 'body' ? 'invalid_body' : 'invalid_parameter'
  return refuse(code, {detail: `Not as expected: ${paths}. See errors.`, errors})
}

/** A page is JSON already. */
function formatAnswer({status, headers: names}: Endpoint, {url}: FastifyRequest, found: unknown): KeptAnswer {
  const headers: Record<string, string> = {}
  if (names.includes('ETag')) headers.ETag = etagOf(found)
  if (names.includes('Location') && isObject(found))
    headers.Location = `${url.replace(/\?.*$/, '')}/${found.id}`
  if (found === undefined) return {status, headers, body: ''}
  return {status, headers, body: typeof found === 'string' ? found : JSON.stringify({data: found})}
}

function send({status, headers, body}: KeptAnswer, reply: FastifyReply): FastifyReply {
  reply.code(status).headers(headers)
  return body === '' ? reply.send() : reply.type('application/json; charset=utf-8').send(body)
}

/** Kept for an Idempotency-Key. */
type KeptAnswer = Omit<z.output<typeof answerRow>, 'fingerprint'>
const answerRow = z.object({
  fingerprint: z.string(),
  status: z.number(),
  headers: z.string().transform((text) => z.record(z.string(), z.string()).parse(JSON.parse(text))),
  /** JSON text. */
  body: z.string(),
})

/** Stores a change, its events, and the answer for an Idempotency-Key, kept 24 hours, in one transaction. @throws Refusal (422) */
function write(
  work: () => KeptAnswer,
  {method, url, keyOwner: owner, headers: sent, body}: FastifyRequest,
  database: ServiceDatabase,
): KeptAnswer {
  const key = method === 'POST' ? sent['idempotency-key'] : undefined
  if (key === undefined) return database.transaction(work)
  if (typeof key !== 'string' || !IDEMPOTENCY_KEY.test(key)) throw refuse('invalid_idempotency_key')
  const told = isObject(body) && isObject(body.file) ? {...body, file: {...body.file, content: null}} : body
  // Keyed with the token, which the database does not hold: otherwise four digits of a national id could be guessed.
  const token = String(sent.authorization).replace(/^Bearer +/i, '')
  const digest = createHmac('sha256', token).update(JSON.stringify([method, url, told ?? null]))
  const fingerprint = digest.digest('base64url')
  return database.transaction(() => {
    const now = realClock.now()
    database.run('delete from idempotent_answer where created_at < ?', [now - DAY_MS])
    const sql = 'select * from idempotent_answer where owner = ? and key = ?'
    const known = database.first(answerRow, sql, [owner, key])
    if (known && known.fingerprint !== fingerprint) throw refuse('idempotency_key_reused')
    if (known) return {...known, headers: {...known.headers, 'Idempotency-Replayed': 'true'}}
    const answer = work()
    const headers = JSON.stringify(answer.headers)
    database.insert('idempotent_answer', {...answer, owner, key, fingerprint, headers, created_at: now})
    return answer
  })
}
