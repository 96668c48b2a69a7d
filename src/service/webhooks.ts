import {randomBytes} from 'node:crypto'
import {type LookupAddress, type LookupOptions, lookup as systemLookup} from 'node:dns'
import {isIP, type LookupFunction} from 'node:net'
import {promisify} from 'node:util'
import ipaddr from 'ipaddr.js'
import {Webhook} from 'standardwebhooks'
import {Agent, request} from 'undici'
import {z} from 'zod'
import {
  EVENT_TYPES,
  type EventType,
  type WebhookEvent,
  webhookDeliverySchema,
  webhookEndpointSchema,
} from '../contract/webhook.ts'
import {DAY_MS, HOUR_MS, realClock, SMALL_STEP_MS} from '../core/clock.ts'
import {messageOf} from '../core/errors.ts'
import {namesUser} from '../core/text.ts'
import {refuse} from './refusal.ts'
import type {Handlers, ServiceWorld} from './requests.ts'
import {createId, givenOf, kindOf, type ServiceDatabase} from './service-database.ts'

const events = z.array(z.enum(EVENT_TYPES))
const endpoint = webhookEndpointSchema.extend({
  events: z.string().transform((text) => events.parse(JSON.parse(text))),
})

export const WEBHOOK_ENDPOINTS = kindOf('webhook_endpoint', endpoint, 'webhook_endpoint_not_found')

const DELIVERIES = kindOf('webhook_delivery_record', webhookDeliverySchema, 'webhook_delivery_not_found')

function writeEvents(events: readonly EventType[] = EVENT_TYPES): string {
  return JSON.stringify([...new Set(events)])
}

export interface WebhookOptions {
  /** Allows private addresses and plain http; default false. */
  allowPrivate?: boolean
  /** Waits before the second and each further attempt, ms; by default those of Standard Webhooks. */
  retryDelaysMs?: readonly number[]
  lookup?: AddressLookup
}

type WebhookWorld = Pick<ServiceWorld, 'database' | 'clock' | 'onError'>

/** `onDue` is called when a delivery may have become due. */
export function createWebhookHandlers({database, clock}: WebhookWorld, onDue: () => void) {
  return {
    createWebhookEndpoint: ({body: {url, events, description = null}}) => {
      const secret = `whsec_${randomBytes(32).toString('base64')}`
      const endpoint = database.create(WEBHOOK_ENDPOINTS, {
        id: createId('whe'),
        url,
        events: writeEvents(events),
        description,
        status: 'enabled',
        secret,
        created_at: clock.now(),
      })
      return {...endpoint, secret}
    },
    listWebhookEndpoints: ({page}) => database.page(WEBHOOK_ENDPOINTS, page),
    getWebhookEndpoint: ({id}) => database.record(WEBHOOK_ENDPOINTS, {id}),
    updateWebhookEndpoint: ({id, body: {events, ...given}}) => {
      const disabled_reason = given.status === 'enabled' ? null : undefined
      const changes = {...given, events: events && writeEvents(events), disabled_reason}
      database.update('webhook_endpoint', {id}, givenOf(changes))
      database.afterCommit(onDue)
      return database.record(WEBHOOK_ENDPOINTS, {id})
    },
    deleteWebhookEndpoint: ({id}) => {
      database.run('delete from webhook_endpoint where id = ?', [id])
    },
    listWebhookDeliveries: ({id, page}) => database.page(DELIVERIES, page, {endpoint_id: id}),
    redeliverWebhook: ({id, childId}) => {
      if (database.record(WEBHOOK_ENDPOINTS, {id}).status === 'disabled')
        throw refuse('webhook_endpoint_disabled')
      const delivery = {id: childId, endpoint_id: id}
      const next_attempt_at = realClock.now()
      database.update('webhook_delivery', delivery, {status: 'pending', attempts: 0, next_attempt_at})
      database.afterCommit(onDue)
      return database.record(DELIVERIES, delivery)
    },
  } satisfies Partial<Handlers>
}

/** As Standard Webhooks recommends. After the last, the delivery has failed. */
const RETRY_DELAYS_MS: readonly number[] = [
  ...[5_000, 5 * 60_000, 30 * 60_000],
  ...[2, 5, 10, 14, 20, 24].map((hours) => hours * HOUR_MS),
]

/** Deliveries at once per endpoint, so that one that hangs does not delay the others. */
const MOST_PER_ENDPOINT = 4
const LOOK_MS = 250

const dueRow = z.object({
  id: z.string(),
  endpoint_id: z.string(),
  event_id: z.string(),
  attempts: z.number(),
  next_attempt_at: z.number(),
  url: z.string(),
  secret: z.string(),
  payload: z.string(),
})

type Due = z.output<typeof dueRow>

// The first deliveries of each endpoint, by an index: others waiting cost nothing. Those being sent are still due and count.
const SELECT_DUE = `
  select d.id, d.endpoint_id, d.event_id, d.attempts, d.next_attempt_at, e.url, e.secret, event.payload
  from webhook_endpoint as e
  cross join webhook_delivery as d on d.id in (
    select id from webhook_delivery
    where endpoint_id = e.id and status = 'pending' and next_attempt_at <= ?
    order by next_attempt_at, created_at, id
    limit ${MOST_PER_ENDPOINT}
  )
  cross join event on event.id = d.event_id
  where e.status = 'enabled'`

// A longer wait than the attempts allow was stored while the clock was ahead. Deliveries being sent are left to their answers.
const HASTEN = `
  update webhook_delivery set next_attempt_at = ?1
  where status = 'pending' and id not in (select value from json_each(?3))
    and next_attempt_at > ?1 + ${SMALL_STEP_MS} + coalesce(json_extract(?2, '$[' || attempts || ']'), 0)`

export function pruneDeliveries(database: ServiceDatabase, now: number): void {
  database.transaction(() => {
    const ended = "delete from webhook_delivery where status <> 'pending' and created_at < ?"
    database.run(ended, [now - 30 * DAY_MS])
    database.run('delete from event where id not in (select event_id from webhook_delivery)')
  })
}

/** The status of the answer, or why there was none. */
interface Outcome {
  status: number | null
  error: string | null
}

const SELECT_SUBSCRIBED = `
  select id from webhook_endpoint
  where status = 'enabled' and exists (select 1 from json_each(events) where value = ?)`

/** Stores nothing if the delivery changed meanwhile. A 410 disables the endpoint if its URL is the same. */
function storeOutcome(
  {id, endpoint_id, url, next_attempt_at: asked_at, ...due}: Due,
  {status: last_status, error: last_error}: Outcome,
  database: ServiceDatabase,
  {now, retryDelaysMs}: {now: number; retryDelaysMs: readonly number[]},
): void {
  const attempts = due.attempts + 1
  const isTaken = last_status !== null && last_status >= 200 && last_status < 300
  const disabled = {status: 'disabled', disabled_reason: 'answered 410 Gone'}
  database.transaction(() => {
    const isGone =
      last_status === 410 && database.update('webhook_endpoint', {id: endpoint_id, url}, disabled).changes > 0
    const delay = isTaken || isGone ? undefined : retryDelaysMs[attempts - 1]
    const status = isTaken ? 'delivered' : delay === undefined ? 'failed' : 'pending'
    const next_attempt_at = delay === undefined ? null : now + delay
    const outcome = {status, attempts, next_attempt_at, last_status, last_error}
    database.update('webhook_delivery', {id, next_attempt_at: asked_at}, outcome)
  })
}

async function send(
  {url, secret, event_id, payload}: Due,
  world: {guard: AddressGuard; agent: Agent; signal: AbortSignal},
): Promise<Outcome> {
  const problem = await world.guard.findProblem(url)
  if (problem !== null) return {status: null, error: problem}
  const sentAt = new Date(realClock.now())
  try {
    const {statusCode, body} = await request(url, {
      method: 'POST',
      dispatcher: world.agent,
      signal: AbortSignal.any([world.signal, AbortSignal.timeout(15_000)]),
      headers: {
        'content-type': 'application/json',
        'user-agent': 'loantape-service',
        'webhook-id': event_id,
        'webhook-timestamp': String(Math.floor(sentAt.getTime() / 1000)),
        'webhook-signature': new Webhook(secret).sign(event_id, sentAt, payload),
      },
      body: payload,
    })
    await body.dump()
    return {status: statusCode, error: null}
  } catch (error) {
    return {status: null, error: messageOf(error).slice(0, 200)}
  }
}

/**
 * Events are stored in the transaction of the change and sent until they are accepted, at least once and in no fixed order,
 * always with the same `webhook-id`. Uses the real clock.
 */
export function createOutbox(
  guard: AddressGuard,
  {retryDelaysMs = RETRY_DELAYS_MS}: WebhookOptions,
  {database, clock, onError}: WebhookWorld,
) {
  const stopping = new AbortController()
  const {signal} = stopping
  const agent = new Agent({connect: {lookup: guard.lookup, timeout: 10_000}, pipelining: 1})
  const sending = new Map<string, Promise<void>>()
  /** Until when an endpoint rests after a delivery without an outcome, so that its backlog leaves time for others; monotonic ms. */
  const restsUntil = new Map<string, number>()
  let lookedAt = Number.POSITIVE_INFINITY

  async function deliver(due: Due): Promise<void> {
    let restMs = 0
    try {
      const outcome = await send(due, {guard, agent, signal})
      if (outcome.status === null) restMs = LOOK_MS
      if (!signal.aborted) storeOutcome(due, outcome, database, {now: realClock.now(), retryDelaysMs})
    } catch (error) {
      // An outcome that could not be stored is asked for again.
      restMs = retryDelaysMs[0] ?? LOOK_MS
      onError(error)
    }
    restsUntil.set(due.endpoint_id, performance.now() + restMs)
    sending.delete(due.id)
    wake()
  }

  function wake(): void {
    if (signal.aborted) return
    try {
      const now = realClock.now()
      if (now < lookedAt)
        database.run(HASTEN, [
          now,
          ...[[0, ...retryDelaysMs], [...sending.keys()]].map((list) => JSON.stringify(list)),
        ])
      lookedAt = now
      for (const due of database.all(dueRow, SELECT_DUE, [now])) {
        const waits = sending.has(due.id) || (restsUntil.get(due.endpoint_id) ?? 0) > performance.now()
        if (!waits) sending.set(due.id, deliver(due))
      }
    } catch (error) {
      onError(error)
    }
  }

  const timer = setInterval(wake, LOOK_MS).unref()
  return {
    wake,
    /** Also sends what an earlier service left. */
    start(): void {
      pruneDeliveries(database, clock.now())
      wake()
    },
    /** Within the current transaction; sent once it is committed. */
    emit({type, data}: Omit<WebhookEvent, 'timestamp'>): void {
      const endpoints = database.column(z.string(), SELECT_SUBSCRIBED, [type])
      if (endpoints.length === 0) return
      const [event_id, created_at] = [createId('evt'), clock.now()]
      const payload = JSON.stringify({type, timestamp: new Date(created_at).toISOString(), data})
      database.insert('event', {id: event_id, type, payload, created_at})
      const pending = {status: 'pending', attempts: 0, next_attempt_at: realClock.now(), created_at}
      for (const endpoint_id of endpoints)
        database.insert('webhook_delivery', {id: createId('dlv'), endpoint_id, event_id, ...pending})
      database.afterCommit(wake)
    },
    /** The next service sends aborted deliveries again. */
    stop: async () => {
      stopping.abort(new Error('The service is closing.'))
      clearInterval(timer)
      await Promise.all(sending.values())
      await agent.destroy()
    },
  }
}

/** `dns.lookup` outside tests. */
export type AddressLookup = (
  name: string,
  options: LookupOptions & {all: true},
  callback: (error: NodeJS.ErrnoException | null, addresses: LookupAddress[]) => void,
) => void

/** Keeps webhooks away from private networks (server-side request forgery). */
type AddressGuard = ReturnType<typeof createAddressGuard>

export function createAddressGuard({allowPrivate = false, lookup = systemLookup}: WebhookOptions) {
  // IPv4 in IPv6 counts as IPv4.
  const isRefused = (address: string): boolean =>
    !allowPrivate && ipaddr.process(address).range() !== 'unicast'

  /** Checks again, since a name can change its address after the first check. Node asks for all addresses. */
  const guardedLookup: LookupFunction = (name, lookupOptions, callback) => {
    lookup(name, {...lookupOptions, all: true}, (error, found) => {
      if (error) callback(error, '')
      else if (found.length === 0 || found.some(({address}) => isRefused(address)))
        callback(new Error('the host resolves to a private address'), '')
      else callback(null, found)
    })
  }

  return {
    async findProblem(text: string): Promise<string | null> {
      const {protocol, hostname} = new URL(text)
      if (namesUser(text)) return 'expected a URL without a user name or password'
      if (allowPrivate) return null
      if (protocol !== 'https:') return 'expected an https URL'
      const host = hostname.replace(/^\[|\]$/g, '')
      const found = isIP(host)
        ? [{address: host}]
        : await promisify(lookup)(host, {all: true}).catch(() => [])
      if (found.length === 0) return 'expected a host that can be resolved'
      return found.some(({address}) => isRefused(address)) ? 'expected a host on the public internet' : null
    },
    lookup: guardedLookup,
  }
}
