import {createHmac} from 'node:crypto'
import {Readable} from 'node:stream'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {z} from 'zod'
import {borrowerSchema} from '../contract/borrower.ts'
import {DEAL_STATUSES} from '../contract/deal.ts'
import {
  ENDPOINTS,
  type Endpoint,
  IDEMPOTENCY_KEY,
  noBodySchema,
  type OperationId,
  type Operations,
} from '../contract/endpoints.ts'
import {type Task, taskSchema} from '../contract/other-records.ts'
import {DAY_MS, parseInstant, realClock} from '../core/clock.ts'
import {formatCents} from '../core/money.ts'
import type {Scope} from './access.ts'
import {createDealHandlers, createDealListing, etagOf, requireDeal, type StatusTotal} from './deals.ts'
import {
  createDocumentHandlers,
  createGenerationHandlers,
  createGenerator,
  type DocumentWorld,
  openFileStore,
  receiveParts,
} from './documents.ts'
import {
  type Answer,
  type Call,
  type Handlers,
  readListPage,
  refuse,
  requireFound,
  type ServiceWorld,
} from './requests.ts'
import {createId, type ListKey, rowInstant, type ServiceDatabase} from './service-database.ts'
import {createWebhooks, type WebhookOptions} from './webhooks.ts'

/**
 * Joins handlers, files, webhooks and the generator of documents.
 *
 * @param parts.onError gets errors of background work
 */
export function buildApi(
  parts: Omit<DocumentWorld, 'files' | 'emit'> & {
    webhooks?: WebhookOptions
    onError: (error: unknown) => void
  },
) {
  const {database, onError} = parts
  const webhooks = createWebhooks(parts.webhooks ?? {}, parts)
  const world: DocumentWorld = {...parts, files: openFileStore(database), emit: webhooks.emit}
  const generator = createGenerator(world, onError)
  const handlers: Handlers = {
    ...createDealHandlers(world),
    ...createBorrowerHandlers(world),
    ...createDocumentHandlers(world),
    ...createTaskHandlers(world),
    ...createGenerationHandlers(world, generator.wake),
    ...createRateHandlers(world),
    ...createReportHandlers(world),
    ...webhooks.handlers,
  }
  return {
    ...world,
    handlers,
    async checkBody(id: OperationId, body: unknown) {
      if (id !== 'createWebhookEndpoint' && id !== 'updateWebhookEndpoint') return
      const {url} = z.object({url: z.string().optional()}).parse(body)
      const problem = url === undefined ? null : await webhooks.findProblem(url)
      if (problem !== null) throw refuse('invalid_body', {errors: [{path: 'url', message: problem}]})
    },
    /** Continues the background work of an earlier service. */
    start() {
      generator.wake()
      webhooks.start()
    },
    async stop() {
      generator.stop()
      await webhooks.stop()
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
interface RouteWorld extends DocumentWorld {
  handlers: Handlers
  /** Checks that need the network, before the transaction begins. @throws Refusal */
  checkBody(id: OperationId, body: unknown): Promise<void>
}

/** Adds a route for every endpoint of the contract. */
export function addRoutes(app: FastifyInstance, world: RouteWorld): void {
  const isOperationId = (id: string): id is OperationId => id in ENDPOINTS
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

const paramsSchema = z.record(z.string(), z.string()).transform(Object.values<string>)

function createRouteHandler<Id extends OperationId>(id: Id, world: RouteWorld) {
  const endpoint: Endpoint<Operations[Id]> = ENDPOINTS[id]
  return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
    const [ownId = '', childId = ''] = paramsSchema.parse(request.params)
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
        const answer = answerCall(id, call, world)
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

/** Calls a handler. What lies below a deal is not found if its deal is not. */
function answerCall<Id extends OperationId>(
  id: Id,
  call: Call<Operations[Id]>,
  {handlers, store}: RouteWorld,
): Answer<Operations[Id]> {
  if (ENDPOINTS[id].path.startsWith('/deals/{id}')) requireDeal(store, call.id)
  return handlers[id](call)
}

/** Parses input of a request. @throws Refusal naming every wrong path, never a value */
function parseInput<T>(schema: z.ZodType<T>, value: unknown, code: 'invalid_body' | 'invalid_parameter'): T {
  const parsed = schema.safeParse(value)
  if (parsed.success) return parsed.data
  const errors = parsed.error.issues.flatMap((issue) => {
    const path = issue.path.join('.')
    if (issue.code !== 'unrecognized_keys') return [{path, message: issue.message}]
    return issue.keys.map((key) => ({path: path ? `${path}.${key}` : key, message: 'unknown field'}))
  })
  const where = code === 'invalid_body' ? 'body' : 'query'
  const paths = [...new Set(errors.map(({path}) => path || where))].join(', ')
  throw refuse(code, {detail: `Not as expected: ${paths}. See errors.`, errors})
}

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
  const {database} = world
  const {method, url, keyOwner} = request
  const work = (): KeptAnswer => formatAnswer<Id>(answerCall(id, call, world), ENDPOINTS[id])
  const key = method === 'POST' ? request.headers['idempotency-key'] : undefined
  if (key === undefined) return database.transaction(work)
  if (typeof key !== 'string' || !IDEMPOTENCY_KEY.test(key)) throw refuse('invalid_idempotency_key')
  // Keyed: four digits of a national id could be guessed from a plain digest.
  const digest = createHmac('sha256', database.secret).update(JSON.stringify([method, url, digested ?? null]))
  const keyed = {owner: keyOwner, key, fingerprint: digest.digest('base64url')}
  return database.transaction(() => answerOnce(keyed, work, {database, now: realClock.now()}))
}

const KEPT_MS = DAY_MS

/** An answer kept for an Idempotency-Key. */
type KeptAnswer = Omit<z.output<typeof answerRow>, 'fingerprint'>
const answerRow = z.object({
  fingerprint: z.string(),
  status: z.number(),
  headers: z.string().transform((text) => z.record(z.string(), z.string()).parse(JSON.parse(text))),
  /** JSON text. */
  body: z.string(),
})

/**
 * Runs `work` once per owner and Idempotency-Key; its answer is stored in the same transaction and repeated for 24 hours.
 *
 * @throws Refusal (422) if the key was used with another request
 */
export function answerOnce(
  keyed: {owner: string; key: string; fingerprint: string},
  work: () => KeptAnswer,
  {database, now}: {database: ServiceDatabase; now: number},
): KeptAnswer {
  const {owner, key, fingerprint} = keyed
  database.run('delete from idempotent_answer where created_at < ?', now - KEPT_MS)
  const known = database.get(
    answerRow,
    'select * from idempotent_answer where owner = ? and key = ?',
    owner,
    key,
  )
  if (known) {
    if (known.fingerprint !== fingerprint) throw refuse('idempotency_key_reused')
    return {...known, headers: {...known.headers, 'Idempotency-Replayed': 'true'}}
  }
  const answer = work()
  const {status, headers, body} = answer
  database.insert('idempotent_answer', {
    owner,
    key,
    fingerprint,
    status,
    headers: JSON.stringify(headers),
    body,
    created_at: now,
  })
  return answer
}

const borrowerRow = borrowerSchema.extend({
  has_ssn_last_four: z.number().transform(Boolean),
  created_at: rowInstant,
})

/** Creates the operations on borrowers; the digits of the national id are checked and dropped. */
function createBorrowerHandlers(world: ServiceWorld) {
  const {database, clock} = world
  return {
    linkBorrower: ({id: deal_id, body: {ssn_last_four, ...given}}) => {
      const has_ssn_last_four = Number(ssn_last_four !== undefined)
      const row = {id: createId('bor'), deal_id, ...given, has_ssn_last_four, created_at: clock.now()}
      return {body: {data: database.create(borrowerRow, 'borrower', row)}}
    },
    listBorrowers: createDealListing(world, 'borrower', borrowerRow),
  } satisfies Partial<Handlers>
}

const taskRow = taskSchema.extend({
  created_at: rowInstant,
  completed_at: rowInstant.nullable(),
})

function requireTask(database: ServiceDatabase, id: string): Task {
  return requireFound(database.get(taskRow, 'select * from task where id = ?', id), 'task_not_found')
}

/** Creates the operations on tasks. */
function createTaskHandlers(world: ServiceWorld) {
  const {database, clock, emit} = world
  return {
    createTask: ({id: deal_id, body: {title, due_on = null}}) => {
      const row = {id: createId('task'), deal_id, title, due_on, status: 'open', created_at: clock.now()}
      return {body: {data: database.create(taskRow, 'task', row)}}
    },
    listTasks: createDealListing(world, 'task', taskRow),
    completeTask: ({id}) => {
      const {deal_id} = requireTask(database, id)
      const completed = database.run(
        "update task set status = 'completed', completed_at = ? where id = ? and status = 'open'",
        clock.now(),
        id,
      )
      if (completed > 0) emit({type: 'task.completed', data: {id, deal_id, status: 'completed'}})
      return {body: {data: requireTask(database, id)}}
    },
  } satisfies Partial<Handlers>
}

const LIFECYCLE: readonly string[] = DEAL_STATUSES

function stageOf({status}: StatusTotal): number {
  const stage = LIFECYCLE.indexOf(status)
  return stage === -1 ? LIFECYCLE.length : stage
}

/** Creates the reports. */
function createReportHandlers({store}: DocumentWorld) {
  return {
    getPortfolioReport: () => {
      const totals = store.totals().sort((one, other) => stageOf(one) - stageOf(other))
      const data = {
        deals: totals.reduce((sum, total) => sum + total.deals, 0),
        amount: formatCents(totals.reduce((sum, total) => sum + total.amountCents, 0n)),
        by_status: totals.map(({status, deals, amountCents}) => ({
          status,
          deals,
          amount: formatCents(amountCents),
        })),
      }
      return {body: {data}}
    },
  } satisfies Partial<Handlers>
}

const rateRow = z
  .object({
    id: z.string(),
    provider: z.string(),
    loan_program: z.string(),
    rate_pct_e4: z.number(),
    effective_at: rowInstant,
    created_at: rowInstant,
  })
  .transform(({rate_pct_e4, ...rate}) => ({...rate, rate_pct: rate_pct_e4 / 10_000}))

// In force: the latest rate in effect; of two with the same instant, the one received last.
const SELECT_PAGE = `
  select * from rate
  where provider = coalesce(?1, provider)
    and loan_program = coalesce(?2, loan_program)
    and (?3 is null or id = (
      select latest.id from rate as latest
      where latest.provider = rate.provider
        and latest.loan_program = rate.loan_program
        and latest.effective_at <= ?3
      order by latest.effective_at desc, latest.created_at desc, latest.id desc
      limit 1
    ))
    and (created_at, id) > (?4, ?5)
  order by created_at, id
  limit ?6`

/** Creates the operations on rates: providers push, all callers read the history or the rates in force. */
function createRateHandlers(world: ServiceWorld) {
  const {database, clock} = world
  return {
    pushRate: ({body: {provider, loan_program, rate_pct, effective_at}}) => {
      const created_at = clock.now()
      const given = effective_at === undefined ? null : parseInstant(effective_at)
      const data = database.create(rateRow, 'rate', {
        id: createId('rate'),
        provider,
        loan_program,
        rate_pct_e4: Math.round(rate_pct * 10_000),
        effective_at: given === null ? created_at : Number(given / 1000n),
        created_at,
      })
      return {body: {data}}
    },
    listRates: ({query}) => {
      const {provider = null, loan_program = null, current = false} = query
      const now = current ? clock.now() : null
      const fetch = ({createdAt, id}: ListKey, limit: number) =>
        database.all(rateRow, SELECT_PAGE, provider, loan_program, now, createdAt, id, limit)
      const filter = JSON.stringify([provider, loan_program, current])
      return {body: readListPage(query, {name: 'rates', filter, fetch}, database.secret)}
    },
  } satisfies Partial<Handlers>
}
