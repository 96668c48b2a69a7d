import type {Clock} from '../clock.ts'
import type {Operation, OperationId, Operations} from '../contract/operations.ts'
import type {WebhookEvent} from '../contract/webhook.ts'
import type {FileStore} from './files.ts'
import type {ServiceDatabase} from './service-database.ts'
import type {DealStore} from './store.ts'

/** One call of an operation, parsed. */
export interface Call<Op extends Operation> {
  /** The `{id}` of the path; empty where it has none. */
  id: string
  /** The second id of the path; empty where it has none. */
  childId: string
  query: Op['query']
  body: Op['body']
  ifMatch: string | undefined
}

/** What a handler answers with. */
export interface Answer<Op extends Operation> {
  body: Op['answer']
  headers?: Record<string, string>
}

/**
 * The handler of every operation. Handlers of writing operations run in one transaction with the events they emit
 * and the answer kept for their Idempotency-Key: none of the three is stored without the others.
 */
export type Handlers = {
  [Id in OperationId]: (call: Call<Operations[Id]>) => Answer<Operations[Id]>
}

/** What stands before every path of an endpoint. */
export const PREFIX = '/v1'

/** What handlers work on. */
export interface ServiceWorld {
  database: ServiceDatabase
  store: DealStore
  files: FileStore
  /** Stamps what is created. */
  clock: Clock
  /** Notifies every endpoint that wants this type, once the transaction under way is committed. */
  emit(event: Omit<WebhookEvent, 'timestamp'>): void
  /** The most documents that one deal may have. */
  documentsPerDeal: number
}
