import {createHmac, type KeyObject, timingSafeEqual} from 'node:crypto'
import {z} from 'zod'
import type {Operation} from '../contract/endpoint.ts'
import type {OperationId, Operations} from '../contract/endpoints.ts'
import type {WebhookEvent} from '../contract/webhook.ts'
import type {Clock} from '../core/clock.ts'
import {refuse} from './refusal.ts'
import type {FoundPage, Page, ServiceDatabase} from './service-database.ts'

/** The parsed input of an operation. */
export interface Call<Op extends Operation> {
  /** The `{id}` of the path; empty if it has none. */
  id: string
  /** The second id of the path; empty if it has none. */
  childId: string
  query: Op['query']
  body: Op['body']
  ifMatch: string | undefined
  /** The records of a list to find. */
  page: Page
}

/**
 * The handler of every operation. A writing handler shares one transaction with the events it emits and the answer kept
 * for its Idempotency-Key: all three are stored, or none. That a path's deal or webhook endpoint exists has been checked.
 */
export type Handlers = {[Id in OperationId]: (call: Call<Operations[Id]>) => Found<Operations[Id]['answer']>}

type Found<Answer> = Answer extends unknown[] ? FoundPage : Answer

/** The prefix of every path. */
export const PREFIX = '/v1'

/** What handlers work on. */
export interface ServiceWorld {
  database: ServiceDatabase
  /** Stamps what is created. */
  clock: Clock
  /** Notifies every endpoint subscribed to this type, once the transaction is committed. */
  emit(event: Omit<WebhookEvent, 'timestamp'>): void
  /** Gets errors of background work. */
  onError(error: unknown): void
  /** The most documents that one deal may have. */
  documentsPerDeal: number
}

const MAC_BYTES = 16

/** A list, its filters included, continues after this record. */
type Cursor = z.output<typeof cursorSchema>
const cursorSchema = z.object({
  list: z.string(),
  after: z.object({createdAt: z.number().int(), id: z.string()}),
})

function signCursor(payload: Buffer, secret: KeyObject): Buffer {
  return createHmac('sha256', secret).update(payload).digest().subarray(0, MAC_BYTES)
}

/** Writes an opaque, signed cursor (base64url). */
export function formatCursor(cursor: Cursor, secret: KeyObject): string {
  const payload = Buffer.from(JSON.stringify(cursor))
  return Buffer.concat([signCursor(payload, secret), payload]).toString('base64url')
}

/** Where a cursor of {@link formatCursor} says that this list continues. @throws Refusal (400) */
export function readCursor(text: string, list: string, secret: KeyObject): Cursor['after'] {
  const bytes = Buffer.from(text, 'base64url')
  const [mac, payload] = [bytes.subarray(0, MAC_BYTES), bytes.subarray(MAC_BYTES)]
  // Base64 has spare bits and Buffer skips foreign characters, so several texts decode to the same bytes.
  const isWhole = mac.length === MAC_BYTES && bytes.toString('base64url') === text
  const isOurs = isWhole && timingSafeEqual(mac, signCursor(payload, secret))
  const cursor = isOurs ? cursorSchema.parse(JSON.parse(payload.toString())) : null
  if (cursor?.list === list) return cursor.after
  const detail = cursor
    ? 'The cursor belongs to another list or to another filter. Start this list again.'
    : 'The cursor was not issued by this service or was changed. Start the list again.'
  throw refuse('invalid_cursor', {detail})
}
