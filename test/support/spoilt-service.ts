import {once} from 'node:events'
import {STATUS_CODES} from 'node:http'
import type {Socket} from 'node:net'
import {Readable} from 'node:stream'
import {setImmediate} from 'node:timers/promises'
import type {FastifyInstance, FastifyReply, FastifyRequest} from 'fastify'
import {z} from 'zod'
import {realClock} from '../../src/core/clock.ts'
import {isObject} from '../../src/core/json.ts'
import type {WireRecord} from '../../src/core/types.ts'
import {PREFIX} from '../../src/service/requests.ts'
import {type RunningService, type ServiceOptions, startService} from '../../src/service/server.ts'
import {createFaultBook, type EnvelopeShape, type Fault, type FaultBook, type Faults} from './faults.ts'

/** One request the service received. */
interface LoggedRequest {
  method: string
  /** With the query, relative to the base URL: `/deals?limit=100`. */
  path: string
  /** Real time, ms since the epoch. */
  at: number
}

/** A local service whose answers can be spoilt, and which logs its requests. */
export interface SpoiltService extends RunningService {
  faults: Faults
  /** The requests since the start or the last clear, oldest first. */
  requests: {readonly count: number; readonly entries: readonly LoggedRequest[]; clear(): void}
  /** Saves what it holds; the returned function restores it, and forgets faults and requests. */
  remember(): () => void
}

/** The path relative to the base URL, with the query. */
function pathOf({url}: FastifyRequest): string {
  return url.startsWith(`${PREFIX}/`) ? url.slice(PREFIX.length) : url
}

const WEB_PAGE = '<!doctype html><html><body><h1>Down for maintenance</h1></body></html>'

function hasCursor(query: unknown): query is {cursor: string} {
  return typeof query === 'object' && query !== null && 'cursor' in query && typeof query.cursor === 'string'
}

function isListBody(body: WireRecord): boolean {
  return Array.isArray(body.data) && typeof body.has_more === 'boolean'
}

function reshapeEnvelope(body: WireRecord, shape: EnvelopeShape): WireRecord {
  const {has_more, next_cursor, data} = body
  switch (shape) {
    case 'pagination':
      return {data, pagination: {has_more, next_cursor}}
    case 'meta':
      return {data, meta: {has_more, next_cursor}}
    case 'data_object':
      return {data: {deals: data, has_more, next_cursor}}
    case 'missing_has_more':
      return {data, next_cursor}
    case 'string_has_more':
      return {data, has_more: String(has_more), next_cursor}
    case 'no_cursor':
      return {data, has_more}
  }
}

/** Applies one fault to a JSON body. List faults leave other bodies alone. */
function spoilBody(body: WireRecord, fault: Fault, askedCursor: string | undefined): unknown {
  if (fault.kind === 'mutate') return fault.change(body)
  if (!isListBody(body)) return body
  if (fault.kind === 'envelope') return reshapeEnvelope(body, fault.shape)
  if (fault.kind !== 'repeat_cursor') return body
  return {...body, has_more: true, next_cursor: askedCursor ?? body.next_cursor}
}

/** Applies every fault in turn to the JSON text of a body; text that is not a JSON object is unchanged. */
function spoilJson(text: string, due: readonly Fault[], askedCursor: string | undefined): string {
  let body: unknown = JSON.parse(text)
  for (const fault of due) if (isObject(body)) body = spoilBody(body, fault, askedCursor)
  return JSON.stringify(body)
}

/** Sends an answer instead of the endpoint's; false if the fault leaves that to the endpoint. */
function answerInstead(fault: Fault, reply: FastifyReply): boolean {
  switch (fault.kind) {
    case 'status': {
      const {status} = fault
      const problem = {type: 'about:blank', title: STATUS_CODES[status], status, code: 'injected_fault'}
      const body = typeof fault.body === 'string' ? fault.body : JSON.stringify(fault.body ?? problem)
      const type = fault.body === undefined ? 'application/problem+json' : 'application/json'
      reply.code(status).type(type)
      reply.headers(fault.headers ?? {}).send(body)
      return true
    }
    case 'reset':
      if (fault.when !== 'before_headers') return false
      reply.hijack()
      reply.raw.socket?.resetAndDestroy()
      return true
    case 'wrong_json':
      reply.type('application/json').send('{"data": [{"id": "deal_')
      return true
    case 'html':
      reply.type('text/html').send(WEB_PAGE)
      return true
    default:
      return false
  }
}

/** Resolves once this many more bytes are sent, or the connection is gone. */
async function waitUntilSent(socket: Socket, bytes: number): Promise<void> {
  const target = socket.bytesWritten + bytes
  while (!socket.destroyed && (socket.bytesWritten < target || socket.writableLength > 0))
    await setImmediate()
}

async function* cutBody(body: Buffer, socket: Socket, how: 'reset' | 'close'): AsyncGenerator<Buffer> {
  const half = body.subarray(0, Math.floor(body.length / 2))
  const sent = waitUntilSent(socket, half.length)
  yield half
  await sent
  if (socket.destroyed) return
  const closed = once(socket, 'close')
  if (how === 'reset') socket.resetAndDestroy()
  else socket.destroySoon()
  await closed
}

/** Sends a finished body in a spoilt way; returns it unchanged if the fault is of another kind. */
function spoilSending(payload: string | Readable, fault: Fault, reply: FastifyReply): string | Readable {
  const {socket} = reply.raw
  if (typeof payload !== 'string' || !socket) return payload
  if (fault.kind !== 'truncate' && fault.kind !== 'reset') return payload
  const body = Buffer.from(payload)
  const isChunked = fault.kind === 'truncate' && fault.framing === 'chunked'
  if (!isChunked) reply.header('content-length', body.length)
  const cut = cutBody(body, socket, fault.kind === 'reset' ? 'reset' : 'close')
  return Readable.from(cut, {objectMode: false})
}

/** Lets the rules of `book` spoil the answers of every route. */
function addFaultHooks(app: FastifyInstance, book: FaultBook): void {
  const closing = new AbortController()
  app.addHook('preClose', async () => closing.abort(new Error('The service is closing.')))
  const spoilt = new WeakMap<FastifyRequest, {due: Fault[]; askedCursor: string | undefined}>()

  app.addHook('onRequest', async (request, reply) => {
    const {query} = request
    const askedCursor = hasCursor(query) ? query.cursor : undefined
    const due = book.takeDue({method: request.method, path: pathOf(request)})
    spoilt.set(request, {due, askedCursor})
    for (const fault of due) {
      if (fault.kind === 'delay') await realClock.sleep(fault.ms, closing.signal)
      if (answerInstead(fault, reply)) return reply
    }
  })

  app.addHook<string | Readable>('onSend', async (request, reply, payload) => {
    const {due, askedCursor} = spoilt.get(request) ?? {due: [], askedCursor: undefined}
    if (due.length === 0 || typeof payload !== 'string') return payload
    const isJson = String(reply.getHeader('content-type')).startsWith('application/json')
    const isAnswered = due.some(({kind}) => kind === 'wrong_json' || kind === 'status')
    const body = isJson && !isAnswered ? spoilJson(payload, due, askedCursor) : payload
    return due.reduce<string | Readable>((sent, fault) => spoilSending(sent, fault, reply), body)
  })
}

/** Starts a local service; without faults it answers normally. */
export async function startSpoiltService(options: ServiceOptions): Promise<SpoiltService> {
  const faults = createFaultBook()
  let entries: LoggedRequest[] = []
  const service = await startService({
    ...options,
    extend(app) {
      app.addHook('onRequest', async (request) => {
        entries.push({method: request.method, path: pathOf(request), at: realClock.now()})
      })
      addFaultHooks(app, faults)
    },
  })
  const requests = {
    get count() {
      return entries.length
    },
    get entries() {
      return entries
    },
    clear: () => {
      entries = []
    },
  }
  const remember = () => {
    const {database} = service
    const tables = database.all(
      z.object({name: z.string()}),
      `select name from main.sqlite_schema where type = 'table' and name not like 'sqlite_%'`,
    )
    for (const {name} of tables) database.run(`create temp table kept_${name} as select * from main.${name}`)
    return () => {
      faults.clear()
      requests.clear()
      database.run('pragma foreign_keys = off')
      for (const {name} of tables) {
        database.run(`delete from main.${name}`)
        database.run(`insert into main.${name} select * from kept_${name}`)
      }
      database.run('pragma foreign_keys = on')
    }
  }
  return {...service, faults, requests, remember}
}
