import {type Clock, realClock} from '../clock.ts'
import type {OperationId} from '../contract/operations.ts'
import {createBorrowerHandlers} from './borrowers.ts'
import type {ServiceDatabase} from './database.ts'
import {createDealHandlers} from './deals.ts'
import {createGenerationHandlers, createGenerator} from './document-generations.ts'
import {createDocumentHandlers} from './documents.ts'
import {type FileStore, openFileStore} from './files.ts'
import type {ServiceWorld} from './handlers.ts'
import {createOutbox, pruneDeliveries, RETRY_DELAYS_MS} from './outbox.ts'
import {type AddressLookup, createAddressGuard} from './private-address.ts'
import {refuse} from './problem-reply.ts'
import {createRateHandlers} from './rates.ts'
import {createReportHandlers} from './reports.ts'
import type {RouteWorld} from './routes.ts'
import type {DealStore} from './store.ts'
import {createTaskHandlers} from './tasks.ts'
import {createWebhookHandlers} from './webhook-endpoints.ts'

/** How a service notifies. */
export interface WebhookOptions {
  /** Lets notifications go to this machine and its networks, and over plain http; default false. */
  allowPrivate?: boolean
  /** Waits before the second and every further attempt; default those of Standard Webhooks. */
  retryDelaysMs?: readonly number[]
  lookup?: AddressLookup
}

/** What the API is made of. */
export interface ApiParts {
  prefix: string
  database: ServiceDatabase
  store: DealStore
  clock: Clock
  limits: ServiceWorld['limits']
  webhooks?: WebhookOptions
  /** Is told what fails while nobody waits for an answer. */
  onError: (error: unknown) => void
}

/** The operations, and what goes on behind them. */
export interface Api extends RouteWorld {
  files: FileStore
  /** Goes on with what an earlier service left. */
  start(): void
  stop(): Promise<void>
}

function hasUrl(body: unknown): body is {url: string} {
  return typeof body === 'object' && body !== null && 'url' in body && typeof body.url === 'string'
}

/** Joins handlers, files, outbox and generator. */
export function buildApi(parts: ApiParts): Api {
  const {database, webhooks = {}, clock, onError} = parts
  const guard = createAddressGuard({allowPrivate: false, ...webhooks})
  const retryDelaysMs = webhooks.retryDelaysMs ?? RETRY_DELAYS_MS
  const outbox = createOutbox({database, guard, clock, realClock, retryDelaysMs, onError})
  const world: ServiceWorld = {...parts, files: openFileStore(database), emit: outbox.emit}
  const generator = createGenerator(world, onError)
  const handlers = {
    ...createDealHandlers(world),
    ...createBorrowerHandlers(world),
    ...createDocumentHandlers(world),
    ...createTaskHandlers(world),
    ...createGenerationHandlers(world, generator.wake),
    ...createRateHandlers(world),
    ...createReportHandlers(world),
    ...createWebhookHandlers(world, outbox.wake),
  }
  return {
    ...world,
    handlers,
    now: () => realClock.now(),
    async checkBody(id: OperationId, body: unknown) {
      if (id !== 'createWebhookEndpoint' && id !== 'updateWebhookEndpoint') return
      const problem = hasUrl(body) ? await guard.findProblem(body.url) : null
      if (problem !== null) throw refuse('invalid_body', {errors: [{path: 'url', message: problem}]})
    },
    start() {
      pruneDeliveries(database, clock.now())
      generator.wake()
      outbox.wake()
    },
    async stop() {
      generator.stop()
      await outbox.stop()
      world.files.close()
    },
  }
}
