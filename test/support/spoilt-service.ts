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
import {type ServiceOptions, startService} from '../../src/service/server.ts'
import {createFaultBook, ENVELOPES, type Fault} from './faults.ts'

/** A local service whose answers can be spoilt, and which logs its requests. */
export type SpoiltService = Awaited<ReturnType<typeof startSpoiltService>>

function pathOf({url}: FastifyRequest): string {
  return url.startsWith(`${PREFIX}/`) ? url.slice(PREFIX.length) : url
}

/** Type and body of the answers with status 200 that are not JSON. */
const WRONG_BODIES = {
  wrong_json: ['application/json', '{"data": [{"id": "deal_'],
  html: ['text/html', '<!doctype html><html><body><h1>Down for maintenance</h1></body></html>'],
} as const

const cursorOf = ({query}: FastifyRequest) => (query as {cursor?: string} | null)?.cursor

/** Applies one fault to a JSON body. List faults leave other bodies alone. */
function spoilBody(body: WireRecord, fault: Fault, askedCursor: string | undefined): unknown {
  if (fault.kind === 'mutate') return fault.change(body)
  if (!Array.isArray(body.data) || typeof body.has_more !== 'boolean') return body
  if (fault.kind === 'envelope') return ENVELOPES[fault.shape](body)
  if (fault.kind !== 'repeat_cursor') return body
  return {...body, has_more: true, next_cursor: askedCursor ?? body.next_cursor}
}

/** Applies every fault in turn to the JSON text of a body; text that is not a JSON object is unchanged. */
function spoilJson(text: string, due: readonly Fault[], askedCursor: string | undefined): string {
  let body: unknown = JSON.parse(text)
  for (const fault of due) if (isObject(body)) body = spoilBody(body, fault, askedCursor)
  return JSON.stringify(body)
}

/** Sends an answer instead of the endpoint's. @returns false if the fault leaves the answer to the endpoint */
function answerInstead(fault: Fault, reply: FastifyReply): boolean {
  if (fault.kind === 'status') {
    const {status, headers = {}} = fault
    const problem = {type: 'about:blank', title: STATUS_CODES[status], status, code: 'injected_fault'}
    const body = typeof fault.body === 'string' ? fault.body : JSON.stringify(fault.body ?? problem)
    const type = fault.body === undefined ? 'application/problem+json' : 'application/json'
    reply.code(status).type(type).headers(headers).send(body)
    return true
  }
  if (fault.kind === 'wrong_json' || fault.kind === 'html') {
    const [type, body] = WRONG_BODIES[fault.kind]
    reply.type(type).send(body)
    return true
  }
  if (fault.kind !== 'reset' || fault.when !== 'before_headers') return false
  reply.hijack()
  reply.raw.socket?.resetAndDestroy()
  return true
}

/** Resolves once this many more bytes are sent or the connection is gone. */
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

function addFaultHooks(app: FastifyInstance, book: ReturnType<typeof createFaultBook>): void {
  const closing = new AbortController()
  app.addHook('preClose', async () => closing.abort(new Error('The service is closing.')))
  const spoilt = new WeakMap<FastifyRequest, Fault[]>()

  app.addHook('onRequest', async (request, reply) => {
    const due = book.takeDue({method: request.method, path: pathOf(request)})
    spoilt.set(request, due)
    for (const fault of due) {
      if (fault.kind === 'delay') await realClock.sleep(fault.ms, closing.signal)
      if (answerInstead(fault, reply)) return reply
    }
  })

  app.addHook<string | Readable>('onSend', async (request, reply, payload) => {
    const due = spoilt.get(request) ?? []
    if (due.length === 0 || typeof payload !== 'string') return payload
    const isJson = String(reply.getHeader('content-type')).startsWith('application/json')
    const isAnswered = due.some(({kind}) => kind === 'wrong_json' || kind === 'status')
    const body = isJson && !isAnswered ? spoilJson(payload, due, cursorOf(request)) : payload
    return due.reduce<string | Readable>((sent, fault) => spoilSending(sent, fault, reply), body)
  })
}

/** Starts a local service that answers normally until faults are added. */
export async function startSpoiltService(options: ServiceOptions) {
  const faults = createFaultBook()
  /** The requests since the start or the last clear, oldest first. */
  const requests = {
    /** Paths have their query and are relative to the base URL, `/deals?limit=100`; `at` is real time, ms since the epoch. */
    entries: [] as {method: string; path: string; at: number}[],
    get count() {
      return requests.entries.length
    },
    clear() {
      requests.entries = []
    },
  }
  const service = await startService({
    ...options,
    extend(app) {
      app.addHook('onRequest', async (request) => {
        requests.entries.push({method: request.method, path: pathOf(request), at: realClock.now()})
      })
      addFaultHooks(app, faults)
    },
  })
  /** Saves the service's data. The returned function restores it and clears faults and requests. */
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
