import type {OperationId} from '../contract/operations.ts'
import {createBorrowerHandlers} from './borrowers.ts'
import {createDealHandlers} from './deals.ts'
import {createGenerationHandlers, createGenerator} from './document-generations.ts'
import {createDocumentHandlers} from './documents.ts'
import {openFileStore} from './files.ts'
import type {Handlers, ServiceWorld} from './handlers.ts'
import {createOutbox, pruneDeliveries, RETRY_DELAYS_MS} from './outbox.ts'
import {type AddressLookup, createAddressGuard} from './private-address.ts'
import {refuse} from './problem-reply.ts'
import {createRateHandlers} from './rate-answers.ts'
import {createReportHandlers} from './reports.ts'
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

function hasUrl(body: unknown): body is {url: string} {
  return typeof body === 'object' && body !== null && 'url' in body && typeof body.url === 'string'
}

/**
 * Joins handlers, files, outbox and generator: the operations, and what goes on behind them.
 *
 * @param parts.onError is told what fails while nobody waits for an answer
 */
export function buildApi(
  parts: Omit<ServiceWorld, 'files' | 'emit'> & {
    webhooks?: WebhookOptions
    onError: (error: unknown) => void
  },
) {
  const {database, webhooks = {}, clock, onError} = parts
  const guard = createAddressGuard({allowPrivate: false, ...webhooks})
  const retryDelaysMs = webhooks.retryDelaysMs ?? RETRY_DELAYS_MS
  const outbox = createOutbox({database, guard, clock, retryDelaysMs, onError})
  const world: ServiceWorld = {...parts, files: openFileStore(database), emit: outbox.emit}
  const generator = createGenerator(world, onError)
  const handlers: Handlers = {
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
    async checkBody(id: OperationId, body: unknown) {
      if (id !== 'createWebhookEndpoint' && id !== 'updateWebhookEndpoint') return
      const problem = hasUrl(body) ? await guard.findProblem(body.url) : null
      if (problem !== null) throw refuse('invalid_body', {errors: [{path: 'url', message: problem}]})
    },
    /** Goes on with what an earlier service left. */
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
