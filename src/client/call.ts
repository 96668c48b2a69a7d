import {randomUUID} from 'node:crypto'
import {ENDPOINTS} from '../contract/endpoints.ts'
import {findEnvelope, type PageBody, readPage} from '../contract/envelope.ts'
import {createListProgress} from '../contract/list-progress.ts'
import type {OperationId, Operations} from '../contract/operations.ts'
import type {ListBody} from '../contract/page.ts'
import {createSeenIds} from '../contract/seen-ids.ts'
import {ContractError} from '../errors.ts'
import {ApiError} from './api-error.ts'
import type {Outgoing} from './send.ts'

/** Query parameters by name; an absent one is not sent. */
export type Query = Record<string, string | number | boolean | undefined>

/** What is said beside the body of a writing request. */
export interface WriteOptions {
  /** Of a creation: the same key takes effect once; a new one by default, kept over retries. */
  idempotencyKey?: string
  /** Of an update or deletion: the ETag of the record as you know it. */
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

/** Creates calls over what sends requests. */
export function createCaller(send: (outgoing: Outgoing) => Promise<Response>) {
  const open = (id: OperationId, parts: CallParts = {}) => send(buildRequest(id, parts))
  return {
    /** The answer as it is, for what is no JSON. */
    open,
    async call<Id extends OperationId>(id: Id, parts?: CallParts): Promise<Operations[Id]['answer']> {
      const text = await (await open(id, parts)).text()
      // Typed by the contract, not parsed by it: a client must not fail over a field or a word that is new.
      const answer = text === '' ? undefined : JSON.parse(text)
      return answer
    },
  }
}

/**
 * The records of a list, page after page, asked for as they are read; 100 a page unless told.
 *
 * @throws ApiError `broken_list` on a page that does not say how the list goes on, or that leads nowhere
 */
export async function* readPages<T>(
  askForPage: (query: Query) => Promise<ListBody<T>>,
  {limit = 100, ...filter}: Query = {},
): AsyncGenerator<T, void, undefined> {
  const progress = createListProgress({
    name: 'the list',
    cursors: [],
    seenIds: createSeenIds(),
    idField: 'id',
  })
  let envelope: string | undefined
  let cursor: string | null = null
  do {
    const body: ListBody<T> = await askForPage({limit, ...filter, cursor: cursor ?? undefined})
    const page: PageBody = readWhole(() => {
      envelope ??= findEnvelope(body)
      const read = readPage(body, envelope)
      progress.take(read)
      return read
    })
    // Typed by the contract, as every answer is.
    yield* page.records as T[]
    cursor = page.nextCursor
  } while (cursor !== null)
}

function readWhole(read: () => PageBody): PageBody {
  try {
    return read()
  } catch (cause) {
    if (!(cause instanceof ContractError)) throw cause
    throw new ApiError({status: 200, code: 'broken_list', detail: cause.problem}, {cause})
  }
}
