import {createHmac, type KeyObject, timingSafeEqual} from 'node:crypto'
import type {Operation} from '../contract/endpoint.ts'
import type {OperationId, Operations} from '../contract/endpoints.ts'
import type {WebhookEvent} from '../contract/webhook.ts'
import type {Clock} from '../core/clock.ts'
import {refuse} from './refusal.ts'
import type {FoundPage, Page, ServiceDatabase} from './service-database.ts'

export interface Call<Op extends Operation> {
  /** The `{id}` of the path; empty if it has none. */
  id: string
  /** The second id of the path; empty if it has none. */
  childId: string
  query: Op['query']
  body: Op['body']
  ifMatch: string | undefined
  page: Page
}

/**
 * A writing handler shares one transaction with the events it emits and the answer kept for its Idempotency-Key: all three are
 * stored, or none. Before it runs, the path's deal or webhook endpoint has been found to exist.
 */
export type Handlers = {[Id in OperationId]: (call: Call<Operations[Id]>) => Found<Operations[Id]['answer']>}

type Found<Answer> = Answer extends unknown[] ? FoundPage : Answer

export const PREFIX = '/v1'

export interface ServiceWorld {
  database: ServiceDatabase
  /** Stamps what is created. */
  clock: Clock
  /** Notifies every endpoint subscribed to the event's type, once the transaction is committed. */
  emit(event: Omit<WebhookEvent, 'timestamp'>): void
  /** Gets errors of background work. */
  onError(error: unknown): void
}

/** 132 bits in base64url. */
const MAC_LENGTH = 22

/** `list` includes the filters. */
function signCursor(payload: string, list: string, secret: KeyObject): string {
  return createHmac('sha256', secret).update(`${list}\n${payload}`).digest('base64url').slice(0, MAC_LENGTH)
}

export function formatCursor(after: Page['after'], list: string, secret: KeyObject): string {
  const payload = Buffer.from(JSON.stringify(after)).toString('base64url')
  return signCursor(payload, list, secret) + payload
}

/** @throws Refusal (400) */
export function readCursor(text: string, list: string, secret: KeyObject): Page['after'] {
  const payload = text.slice(MAC_LENGTH)
  const given = Buffer.from(text.slice(0, MAC_LENGTH))
  const expected = Buffer.from(signCursor(payload, list, secret))
  if (given.length !== expected.length || !timingSafeEqual(given, expected)) throw refuse('invalid_cursor')
  return JSON.parse(Buffer.from(payload, 'base64url').toString())
}
