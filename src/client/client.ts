import {randomUUID} from 'node:crypto'
import {Webhook} from 'standardwebhooks'
import {z} from 'zod'
import type {DealStatus} from '../contract/deal.ts'
import {ENDPOINTS, type OperationId, type Operations} from '../contract/endpoints.ts'
import {createListProgress, type PageBody, readPage} from '../contract/list.ts'
import {type Problem, type ProblemCode, problemSchema} from '../contract/problem.ts'
import type {WebhookEvent} from '../contract/webhook.ts'
import {type RealClock, realClock} from '../core/clock.ts'
import {isOfKind} from '../core/errors.ts'
import {isObject, parseJson} from '../core/json.ts'
import {parseRetryAfter} from '../core/retry.ts'

/** Why a call failed: a code of the service, possibly newer than these, or a code of the client. */
export type ApiErrorCode =
  | ProblemCode
  | 'no_answer'
  | 'answer_too_large'
  | 'broken_list'
  | 'unknown'
  | (string & {})

/** The service refused a request, or did not answer (`status` 0). */
export class ApiError extends Error {
  readonly status: number
  /** Stable, for programs: `deal_not_found`; `no_answer` if none came. */
  readonly code: ApiErrorCode
  /** The fields that were refused, and why. */
  readonly errors: readonly {path: string; message: string}[]
  /** The service's id of the request. */
  readonly requestId: string | null
  /** Whether the service may have done what was asked: an attempt had no answer, one that cannot be read, or a 5xx. */
  mayBeDone = false

  constructor(
    problem: Pick<Problem, 'status' | 'code' | 'detail' | 'errors'>,
    more: {requestId?: string | null; cause?: unknown} = {},
  ) {
    super(`${problem.detail} [${problem.code}]`, {cause: more.cause})
    this.name = 'ApiError'
    this.status = problem.status
    this.code = problem.code
    this.errors = problem.errors ?? []
    this.requestId = more.requestId ?? null
  }
}

export interface ClientOptions {
  /** With the API prefix: `https://deals.example.com/v1`. */
  baseUrl: string
  /** `sk_live_…` or `sk_test_…`. */
  apiKey: string
  /** Retries of a request; default 4. */
  retries?: number
  /** Time limit of one attempt, ms; default 30 s. */
  timeoutMs?: number
  fetch?: typeof fetch
  clock?: RealClock
  /** Uniform in [0, 1), for jitter. */
  random?: () => number
}

export interface CallOptions {
  /** Ends the call, which then throws the signal's reason. */
  signal?: AbortSignal | undefined
  /** Time limit of one attempt, ms; by default the client's. */
  timeoutMs?: number | undefined
}

export interface WriteOptions extends CallOptions {
  /** For a creation: requests with the same key take effect once. By default a new key, which retries of the call reuse. */
  idempotencyKey?: string
  /** For an update or deletion: the `etag` of the record you have read. */
  ifMatch?: string | undefined
}

/** Where to begin a list, and how many records to request at once. */
export interface Paging extends CallOptions {
  /** Records per request, 1 to 100; default 100. A list is always read to its end. */
  limit?: number
  /** A `nextCursor` to continue from. */
  cursor?: string
}

export interface ListPage<T> {
  records: T[]
  /** Where the list continues; null at its end. */
  nextCursor: string | null
}

/** A list, read by record or by page. Each reading asks the service again. */
export interface List<T> extends AsyncIterable<T> {
  pages(): AsyncGenerator<ListPage<T>, void, undefined>
}

/** A record carries its entity tag, which JSON and copies leave out. */
type Answered<T> = T extends object ? T & {readonly etag?: string} : T

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
 * @throws TypeError if nothing can be sent to the URL, or with the key
 * @example
 * const client = createDealClient({baseUrl: 'http://127.0.0.1:4010/v1', apiKey: 'sk_test_…'})
 * for await (const deal of client.deals.list({stage: 'underwriting'})) console.log(deal.id)
 */
export function createDealClient(options: ClientOptions) {
  const send = createSender(options)
  const {one, list} = createCaller(send)
  const create =
    <Id extends OperationId>(id: Id) =>
    (body: Operations[Id]['body'], more?: WriteOptions) =>
      one(id, {...more, body})
  const createAt =
    <Id extends OperationId>(id: Id) =>
    (ownerId: string, body: Operations[Id]['body'], more?: WriteOptions) =>
      one(id, {...more, ids: [ownerId], body})
  const at =
    <Id extends OperationId>(id: Id) =>
    (recordId: string, more?: WriteOptions) =>
      one(id, {...more, ids: [recordId]})
  const within =
    <Id extends OperationId>(id: Id) =>
    (ownerId: string, recordId: string, more?: WriteOptions) =>
      one(id, {...more, ids: [ownerId, recordId]})
  const listAt =
    <Id extends OperationId>(id: Id) =>
    (ownerId: string, paging?: Paging) =>
      list(id, [ownerId], paging)
  return {
    deals: {
      list({stage: status, ...paging}: Paging & {stage?: DealStatus} = {}) {
        const asked = {...paging, status}
        return list('listDeals', [], asked)
      },
      create: create('createDeal'),
      get: at('getDeal'),
      update: createAt('updateDeal'),
      delete: at('deleteDeal'),
    },
    borrowers: {link: createAt('linkBorrower'), list: listAt('listBorrowers')},
    documents: {
      upload(dealId: string, document: DocumentUpload, more?: WriteOptions) {
        const {file, fileName = 'file', category, name} = document
        const body = new FormData()
        body.set('category', category)
        body.set('name', name)
        body.set('file', file instanceof Blob ? file : new Blob([file]), fileName)
        return one('uploadDocument', {...more, ids: [dealId], body})
      },
      list: listAt('listDocuments'),
      get: within('getDocument'),
      download: async (dealId: string, documentId: string, more?: CallOptions) =>
        (await send('downloadDocument', {...more, ids: [dealId, documentId]})).blob(),
    },
    documentGenerations: {
      request: createAt('requestDocumentGeneration'),
      list: listAt('listDocumentGenerations'),
      get: within('getDocumentGeneration'),
    },
    tasks: {create: createAt('createTask'), list: listAt('listTasks'), complete: at('completeTask')},
    rates: {
      push: create('pushRate'),
      list: (options?: Paging & {provider?: string; loan_program?: string; current?: boolean}) =>
        list('listRates', [], options),
    },
    reports: {portfolio: (more?: CallOptions) => one('getPortfolioReport', more)},
    webhookEndpoints: {
      create: create('createWebhookEndpoint'),
      list: (paging?: Paging) => list('listWebhookEndpoints', [], paging),
      get: at('getWebhookEndpoint'),
      update: createAt('updateWebhookEndpoint'),
      delete: at('deleteWebhookEndpoint'),
      deliveries: listAt('listWebhookDeliveries'),
      redeliver: within('redeliverWebhook'),
    },
    webhooks: {verify: verifyWebhook},
  }
}

const BACKOFF_MS = 250
const LONGEST_WAIT_MS = 60_000
const OVERLOADED = new Set([429, 503])
/** 0: no answer. */
const FAILING = new Set([0, 500, 502, 504])

const said = z.string().min(1).optional().catch(undefined)

/** Problem details (RFC 9457), all of whose members are optional; a proxy in between may answer in another form. */
const refusalSchema = z
  .object({title: said, detail: said, code: said, errors: problemSchema.shape.errors.catch(undefined)})
  .catch({})

async function refusalOf(response: Response): Promise<ApiError> {
  const {status, headers} = response
  const {title, detail, code = 'unknown', errors} = refusalSchema.parse(parseJson(await response.text()))
  const reason = detail ?? title ?? `The service answered ${status} without saying why.`
  return new ApiError({status, code, detail: reason, errors}, {requestId: headers.get('x-request-id')})
}

/** Far more than any file the service accepts. */
const MOST_BYTES = 64 * 1024 * 1024

/** Reads a whole body. A truncated one fails the attempt; one that unpacks to more than the limit is an error. */
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

/** Retries when the service is overloaded, and repeatable requests also when it fails. */
function createSender(options: ClientOptions) {
  const {apiKey, retries = 4, timeoutMs = 30_000, fetch = globalThis.fetch, clock = realClock} = options
  const {random = Math.random} = options
  const baseUrl = options.baseUrl.replace(/\/+$/, '')
  const authorization = `Bearer ${apiKey}`
  // A URL or key that can never be sent is the caller's mistake, not a missing answer.
  new Request(baseUrl, {headers: {authorization}})
  if (!/^https?:/i.test(baseUrl)) throw new TypeError(`baseUrl '${baseUrl}': expected http:// or https://`)

  async function attempt(request: ReturnType<typeof buildRequest>, call: CallOptions) {
    const limit = AbortSignal.timeout(call.timeoutMs ?? timeoutMs)
    const signal = call.signal ? AbortSignal.any([call.signal, limit]) : limit
    const {path, method, body} = request
    const headers = {authorization, ...request.headers}
    // An Idempotency-Key or entity tag that can never be sent is the caller's mistake, too, not a missing answer.
    new Headers(headers)
    try {
      const init = {method, headers, ...(body !== null && {body}), redirect: 'manual', signal} as const
      return await readAnswer(await fetch(baseUrl + path, init))
    } catch (cause) {
      call.signal?.throwIfAborted()
      return new ApiError({status: 0, code: 'no_answer', detail: 'The service did not answer.'}, {cause})
    }
  }

  return async (id: OperationId, parts: CallParts = {}): Promise<Response> => {
    const request = buildRequest(id, parts)
    // Repeating does no harm to a read or with an Idempotency-Key.
    const isRepeatable = request.method === 'GET' || request.method === 'POST'
    let mayBeDone = false
    for (let count = 0; ; count++) {
      const answer = await attempt(request, parts)
      if (answer instanceof Response && answer.ok) return answer
      const {status} = answer
      mayBeDone ||= status < 300 || status >= 500
      const mayRepeat = OVERLOADED.has(status) || (FAILING.has(status) && isRepeatable)
      const refusal = answer instanceof Response ? await refusalOf(answer) : answer
      refusal.mayBeDone = mayBeDone
      if (!mayRepeat || count >= retries) throw refusal
      const asked = answer instanceof Response ? answer.headers.get('retry-after') : null
      const askedMs = parseRetryAfter(asked ?? '', clock.now())
      // Full jitter over a doubling span, unless the service says how long.
      const wait = Math.min(LONGEST_WAIT_MS, askedMs || random() * BACKOFF_MS * 2 ** count)
      await clock.sleep(wait, parts.signal).finally(() => parts.signal?.throwIfAborted())
    }
  }
}

interface CallParts extends WriteOptions {
  /** Ids in the order of the path. */
  ids?: readonly string[]
  query?: Readonly<Record<string, unknown>>
  body?: unknown
}

function buildRequest(id: OperationId, parts: CallParts) {
  const {method, path} = ENDPOINTS[id]
  const {ids = [], query = {}, body, idempotencyKey = randomUUID(), ifMatch} = parts
  const left = [...ids]
  const filled = path.replace(/\{\w+\}/g, () => encodeURIComponent(left.shift() ?? ''))
  const search = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) if (value !== undefined) search.set(name, String(value))
  const isForm = body instanceof FormData
  const isJson = !isForm && (body !== undefined || method === 'POST')
  return {
    method,
    path: search.size > 0 ? `${filled}?${search}` : filled,
    headers: {
      accept: id === 'downloadDocument' ? '*/*' : 'application/json',
      ...(isJson && {'content-type': 'application/json'}),
      ...(method === 'POST' && {'idempotency-key': idempotencyKey}),
      ...(ifMatch !== undefined && {'if-match': ifMatch}),
    },
    body: isForm ? body : (JSON.stringify(body) ?? null),
  }
}

type ItemOf<Id extends OperationId> = Operations[Id]['answer'] extends (infer Item)[] ? Item : never

/** Answers are typed by the contract but not parsed, so new fields do not break a client. */
function createCaller(send: ReturnType<typeof createSender>) {
  return {
    async one<Id extends OperationId>(
      id: Id,
      parts?: CallParts,
    ): Promise<Answered<Operations[Id]['answer']>> {
      const response = await send(id, parts)
      const text = await response.text()
      const {method, record} = ENDPOINTS[id]
      if (record === null) return undefined as Answered<Operations[Id]['answer']>
      const body = parseJson(text)
      const data = isObject(body) && isObject(body.data) ? body.data : undefined
      // Without the id, the caller could not find what was created.
      if (data && (method !== 'POST' || (typeof data.id === 'string' && data.id !== ''))) {
        const etag = {value: response.headers.get('etag') ?? undefined}
        return Object.defineProperty(data, 'etag', etag) as Answered<Operations[Id]['answer']>
      }
      const detail = 'The service answered without a record.'
      const broken = new ApiError({status: response.status, code: 'unknown', detail})
      broken.mayBeDone = method !== 'GET'
      throw broken
    },
    /**
     * Fetches pages as they are read.
     * @throws ApiError `broken_list` if a page does not say how the list continues, or the list makes no progress
     */
    list<Id extends OperationId>(
      id: Id,
      ids: readonly string[],
      {limit = 100, cursor: start, signal, timeoutMs, ...filter}: Paging = {},
    ): List<ItemOf<Id>> {
      async function* pages(): AsyncGenerator<ListPage<ItemOf<Id>>, void, undefined> {
        const progress = createListProgress({name: 'the list', cursors: [start ?? null]})
        let envelope: string | undefined
        let cursor = start
        do {
          const response = await send(id, {signal, timeoutMs, ids, query: {...filter, limit, cursor}})
          const body = parseJson(await response.text())
          let page: PageBody
          try {
            page = readPage(body, envelope)
            progress.take(page)
          } catch (cause) {
            if (!isOfKind(cause, 'contract')) throw cause
            throw new ApiError({status: 200, code: 'broken_list', detail: cause.problem}, {cause})
          }
          yield {records: page.records as ItemOf<Id>[], nextCursor: page.nextCursor}
          envelope = page.envelope
          cursor = page.nextCursor ?? undefined
        } while (cursor !== undefined)
      }
      return {
        pages,
        async *[Symbol.asyncIterator]() {
          for await (const {records} of pages()) yield* records
        },
      }
    },
  }
}

/** Headers of Node's `http` or the Fetch API. */
type WebhookHeaders = Headers | Record<string, string | string[] | undefined>

/**
 * Verifies and reads a notification signed by Standard Webhooks; `body` is the unchanged text of the request. Its type may be
 * newer than this version.
 * @throws WebhookVerificationError if the signature does not match this secret (`whsec_…`) or is older than five minutes
 */
export function verifyWebhook(body: string, headers: WebhookHeaders, secret: string): WebhookEvent {
  const entries = headers instanceof Headers ? [...headers] : Object.entries(headers)
  const texts = Object.fromEntries(entries.map(([name, value]) => [name, String(value)]))
  return new Webhook(secret).verify(body, texts) as WebhookEvent
}
