import {randomUUID} from 'node:crypto'
import {Webhook} from 'standardwebhooks'
import type {NewBorrower} from '../contract/borrower.ts'
import type {DealChanges, DealStatus, NewDeal} from '../contract/deal.ts'
import type {NewDocumentGeneration} from '../contract/document.ts'
import {ENDPOINTS, type OperationId, type Operations} from '../contract/endpoints.ts'
import {createListProgress, findEnvelope, type PageBody, readPage} from '../contract/list.ts'
import type {NewRate, NewTask} from '../contract/other-records.ts'
import {type Problem, problemSchema} from '../contract/problem.ts'
import {
  type NewWebhookEndpoint,
  type WebhookEndpointChanges,
  type WebhookEvent,
  webhookEventSchema,
} from '../contract/webhook.ts'
import {type RealClock, realClock} from '../core/clock.ts'
import {isOfKind} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {parseRetryAfter} from '../core/retry-after.ts'

/** An unsuccessful answer of the service, or no answer (`status` 0). */
export class ApiError extends Error {
  /** 0 if no answer came. */
  readonly status: number
  /** Stable, for programs: `deal_not_found`; `no_answer` if none came. */
  readonly code: string
  /** The refused fields. */
  readonly errors: readonly {path: string; message: string}[]
  /** The service's id of the request. */
  readonly requestId: string | null

  constructor(
    problem: Pick<Problem, 'status' | 'code' | 'detail' | 'errors'>,
    more: {requestId?: string | null; cause?: unknown} = {},
  ) {
    super(`${problem.detail ?? 'The service refused the request.'} [${problem.code}]`, {cause: more.cause})
    this.name = 'ApiError'
    this.status = problem.status
    this.code = problem.code
    this.errors = problem.errors ?? []
    this.requestId = more.requestId ?? null
  }
}

/** How to reach the service. */
export interface ClientOptions {
  /** With the API prefix: `https://deals.example.com/v1`. */
  baseUrl: string
  /** `sk_live_…` or `sk_test_…`. */
  apiKey: string
  /** How often a request is retried; default 4. */
  retries?: number
  /** The limit of one attempt; default 30 s. */
  timeoutMs?: number
  fetch?: typeof fetch
  clock?: RealClock
  /** Uniform in [0, 1), for jitter. */
  random?: () => number
}

type Paging = {
  /** Records per request, 1 to 100; default 100. A list is always read to its end. */
  limit?: number
}

/** A file to upload. */
export interface DocumentUpload {
  file: Blob | Uint8Array<ArrayBuffer>
  fileName?: string
  /** `appraisal`, … */
  category: string
  name: string
}

/** A typed client of the Deal Financing Service; every method throws an ApiError if the service refuses. */
export type DealClient = ReturnType<typeof createDealClient>

/**
 * Creates a client.
 *
 * @example
 * const client = createDealClient({baseUrl: 'http://127.0.0.1:4010/v1', apiKey: 'sk_test_…'})
 * for await (const deal of client.deals.list({stage: 'underwriting'})) console.log(deal.id)
 */
export function createDealClient(options: ClientOptions) {
  const {open, remove, one, list} = createCaller(createSender(options))
  return {
    deals: {
      list: ({stage, ...paging}: Paging & {stage?: DealStatus} = {}) =>
        list('listDeals', [], {...paging, status: stage}),
      create: (deal: NewDeal, more?: WriteOptions) => one('createDeal', {...more, body: deal}),
      get: (id: string) => one('getDeal', {ids: [id]}),
      update: (id: string, changes: DealChanges, more?: WriteOptions) =>
        one('updateDeal', {...more, ids: [id], body: changes}),
      delete: (id: string, more?: WriteOptions) => remove('deleteDeal', {...more, ids: [id]}),
    },
    borrowers: {
      link: (dealId: string, borrower: NewBorrower, more?: WriteOptions) =>
        one('linkBorrower', {...more, ids: [dealId], body: borrower}),
      list: (dealId: string, paging?: Paging) => list('listBorrowers', [dealId], paging),
    },
    documents: {
      upload(dealId: string, document: DocumentUpload, more?: WriteOptions) {
        const {file, fileName = 'file', category, name} = document
        const body = new FormData()
        body.set('category', category)
        body.set('name', name)
        body.set('file', file instanceof Blob ? file : new Blob([file]), fileName)
        return one('uploadDocument', {...more, ids: [dealId], body})
      },
      list: (dealId: string, paging?: Paging) => list('listDocuments', [dealId], paging),
      download: async (dealId: string, documentId: string) =>
        await (await open('downloadDocument', {ids: [dealId, documentId]})).blob(),
    },
    documentGenerations: {
      request: (dealId: string, asked: NewDocumentGeneration, more?: WriteOptions) =>
        one('requestDocumentGeneration', {...more, ids: [dealId], body: asked}),
      get: (dealId: string, id: string) => one('getDocumentGeneration', {ids: [dealId, id]}),
    },
    tasks: {
      create: (dealId: string, task: NewTask, more?: WriteOptions) =>
        one('createTask', {...more, ids: [dealId], body: task}),
      list: (dealId: string, paging?: Paging) => list('listTasks', [dealId], paging),
      complete: (id: string) => one('completeTask', {ids: [id]}),
    },
    rates: {
      push: (rate: NewRate, more?: WriteOptions) => one('pushRate', {...more, body: rate}),
      list: (filter?: Paging & {provider?: string; loan_program?: string; current?: boolean}) =>
        list('listRates', [], filter),
    },
    reports: {
      portfolio: () => one('getPortfolioReport'),
    },
    webhookEndpoints: {
      create: (endpoint: NewWebhookEndpoint, more?: WriteOptions) =>
        one('createWebhookEndpoint', {...more, body: endpoint}),
      list: (paging?: Paging) => list('listWebhookEndpoints', [], paging),
      update: (id: string, changes: WebhookEndpointChanges) =>
        one('updateWebhookEndpoint', {ids: [id], body: changes}),
      delete: (id: string) => remove('deleteWebhookEndpoint', {ids: [id]}),
      deliveries: (id: string, paging?: Paging) => list('listWebhookDeliveries', [id], paging),
      redeliver: (id: string, deliveryId: string) => one('redeliverWebhook', {ids: [id, deliveryId]}),
    },
    webhooks: {verify: verifyWebhook},
  }
}

/** A request to send. */
interface Outgoing {
  method: string
  /** Relative to the base URL, with the query. */
  path: string
  headers: Record<string, string>
  body?: string | FormData | undefined
}

const BACKOFF_MS = 250
const LONGEST_WAIT_MS = 60_000
const OVERLOADED = new Set([429, 503])
const FAILING = new Set([500, 502, 503, 504])

/**
 * The wait before attempt `attempt` + 1: the service's `Retry-After` (seconds or date), else full jitter over a doubling
 * span.
 */
export function waitBefore(
  attempt: number,
  retryAfter: string | null,
  {now, random}: {now: number; random: () => number},
): number {
  const named = retryAfter === null ? null : parseRetryAfter(retryAfter, now)
  return Math.min(LONGEST_WAIT_MS, named ?? random() * BACKOFF_MS * 2 ** attempt)
}

async function refusalOf(response: Response): Promise<ApiError> {
  const requestId = response.headers.get('x-request-id')
  // A proxy in between may answer with something else.
  const parsed = problemSchema.safeParse(parseJson(await response.text()))
  if (parsed.success) return new ApiError(parsed.data, {requestId})
  const detail = `The service answered ${response.status} without saying why.`
  return new ApiError({status: response.status, code: 'unknown', detail}, {requestId})
}

/** Far more than any file the service accepts. */
const MOST_BYTES = 64 * 1024 * 1024

/** Reads a whole body: a truncated one fails the attempt, and one that unpacks to more than the limit is an error. */
async function readAnswer(response: Response): Promise<Response | ApiError> {
  const parts: Uint8Array[] = []
  let length = 0
  for await (const part of response.body ?? []) {
    length += part.length
    parts.push(part)
    if (length > MOST_BYTES)
      return new ApiError({
        status: response.status,
        code: 'answer_too_large',
        detail: `The service answered with more than ${MOST_BYTES} bytes.`,
      })
  }
  return new Response(length > 0 ? Buffer.concat(parts) : null, response)
}

/** Creates the sender: it retries when the service is overloaded, and repeatable requests also when it fails. */
function createSender(options: ClientOptions): (outgoing: Outgoing) => Promise<Response> {
  const {apiKey, retries = 4, timeoutMs = 30_000, fetch = globalThis.fetch, clock = realClock} = options
  const {random = Math.random} = options
  const baseUrl = options.baseUrl.replace(/\/+$/, '')

  async function attempt({method, path, headers, body}: Outgoing): Promise<Response | ApiError> {
    try {
      const response = await fetch(baseUrl + path, {
        method,
        headers: {authorization: `Bearer ${apiKey}`, ...headers},
        redirect: 'error',
        signal: AbortSignal.timeout(timeoutMs),
        ...(body !== undefined && {body}),
      })
      return await readAnswer(response)
    } catch (cause) {
      return new ApiError({status: 0, code: 'no_answer', detail: 'The service did not answer.'}, {cause})
    }
  }

  return async (outgoing) => {
    for (let count = 0; ; count++) {
      const answer = await attempt(outgoing)
      if (answer instanceof Response && answer.ok) return answer
      const {status} = answer
      // Sending twice does no harm: it is a read or has an Idempotency-Key.
      const isRepeatable = outgoing.method === 'GET' || 'idempotency-key' in outgoing.headers
      const mayRepeat = OVERLOADED.has(status) || ((status === 0 || FAILING.has(status)) && isRepeatable)
      const refusal = answer instanceof Response ? await refusalOf(answer) : answer
      if (!mayRepeat || count >= retries) throw refusal
      const retryAfter = answer instanceof Response ? answer.headers.get('retry-after') : null
      await clock.sleep(waitBefore(count, retryAfter, {now: clock.now(), random}))
    }
  }
}

/** Query parameters by name; an absent one is not sent. */
type Query = Record<string, string | number | boolean | undefined>

/** Options of a writing request. */
interface WriteOptions {
  /** For a creation: requests with the same key take effect once; by default a new key, kept for its retries. */
  idempotencyKey?: string
  /** For an update or deletion: the ETag of the record you have read. */
  ifMatch?: string
}

/** The parts of one call. */
interface CallParts extends WriteOptions {
  /** For the placeholders of the path, in order. */
  ids?: readonly string[]
  query?: Query | undefined
  body?: object | FormData
}

function buildRequest(id: OperationId, parts: CallParts): Outgoing {
  const {method, path} = ENDPOINTS[id]
  const {ids = [], query = {}, body, idempotencyKey = randomUUID(), ifMatch} = parts
  const left = [...ids]
  const filled = path.replace(/\{\w+\}/g, () => encodeURIComponent(left.shift() ?? ''))
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value))
  const isForm = body instanceof FormData
  const writes = method === 'POST' || method === 'PATCH'
  return {
    method,
    path: search.size > 0 ? `${filled}?${search}` : filled,
    headers: {
      accept: 'application/json',
      ...(writes && !isForm && {'content-type': 'application/json'}),
      ...(method === 'POST' && {'idempotency-key': idempotencyKey}),
      ...(ifMatch !== undefined && {'if-match': ifMatch}),
    },
    body: isForm ? body : writes ? JSON.stringify(body ?? {}) : undefined,
  }
}

type ItemOf<Id extends OperationId> = Operations[Id]['answer'] extends (infer Item)[] ? Item : never

/** Creates the calls of operations. Answers are typed by the contract but not parsed: new fields must not break a client. */
function createCaller(send: (outgoing: Outgoing) => Promise<Response>) {
  const open = (id: OperationId, parts: CallParts = {}) => send(buildRequest(id, parts))
  const readBody = async (id: OperationId, parts?: CallParts) =>
    JSON.parse(await (await open(id, parts)).text())
  return {
    /** The raw answer, for files. */
    open,
    /** An operation without an answer. */
    async remove(id: OperationId, parts: CallParts): Promise<void> {
      await open(id, parts)
    },
    /** The record of an answer. */
    one: async <Id extends OperationId>(id: Id, parts?: CallParts): Promise<Operations[Id]['answer']> =>
      (await readBody(id, parts)).data,
    /**
     * The records of a list; pages of 100 by default are fetched as they are read.
     *
     * @throws ApiError `broken_list` if a page does not say how the list continues, or the list makes no progress
     */
    async *list<Id extends OperationId>(
      id: Id,
      ids: readonly string[],
      {limit = 100, ...filter}: Query = {},
    ): AsyncGenerator<ItemOf<Id>, void, undefined> {
      const progress = createListProgress({name: 'the list', idField: 'id'})
      let envelope: string | undefined
      let cursor: string | null = null
      do {
        const body = await readBody(id, {ids, query: {limit, ...filter, cursor: cursor ?? undefined}})
        const page: PageBody = readWhole(() => {
          envelope ??= findEnvelope(body)
          const read = readPage(body, envelope)
          progress.take(read)
          return read
        })
        yield* page.records as ItemOf<Id>[]
        cursor = page.nextCursor
      } while (cursor !== null)
    },
  }
}

function readWhole(read: () => PageBody): PageBody {
  try {
    return read()
  } catch (cause) {
    if (!isOfKind(cause, 'contract')) throw cause
    throw new ApiError({status: 200, code: 'broken_list', detail: cause.problem}, {cause})
  }
}

/** Headers of Node's `http` or the Fetch API. */
type WebhookHeaders = Headers | Record<string, string | string[] | undefined>

/**
 * Reads a notification of the service, signed by Standard Webhooks.
 *
 * @param body the unchanged text of the request's body
 * @param secret `whsec_…` of the endpoint
 * @throws WebhookVerificationError if the signature does not match this secret or is older than five minutes
 */
export function verifyWebhook(body: string, headers: WebhookHeaders, secret: string): WebhookEvent {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers)
  const texts = Object.fromEntries(entries.map(([name, value]) => [name.toLowerCase(), String(value)]))
  return webhookEventSchema.parse(new Webhook(secret).verify(body, texts))
}
