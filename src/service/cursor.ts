import {createHmac, timingSafeEqual} from 'node:crypto'
import {z} from 'zod'
import type {DealKey} from './store.ts'

/** Where a list goes on: behind `after`, in the list of this `status` (null: of all deals). */
export interface ListPlace {
  after: DealKey
  status: string | null
}

const MAC_BYTES = 16

const placeSchema = z.tuple([z.number().int(), z.string(), z.string().nullable()])

function signPlace(payload: Buffer, secret: Buffer): Buffer {
  return createHmac('sha256', secret).update(payload).digest().subarray(0, MAC_BYTES)
}

/** Writes a place as an opaque, signed cursor (base64url). */
export function formatCursor(place: ListPlace, secret: Buffer): string {
  const payload = Buffer.from(JSON.stringify([place.after.createdAt, place.after.id, place.status]))
  return Buffer.concat([signPlace(payload, secret), payload]).toString('base64url')
}

/**
 * Reads a cursor of {@link formatCursor}.
 *
 * @returns null when one character of it was changed, or another secret signed it
 */
export function parseCursor(cursor: string, secret: Buffer): ListPlace | null {
  const bytes = Buffer.from(cursor, 'base64url')
  // Base64 has spare bits and Buffer skips foreign characters: only the text we would write ourselves counts.
  if (bytes.length <= MAC_BYTES || bytes.toString('base64url') !== cursor) return null
  const payload = bytes.subarray(MAC_BYTES)
  if (!timingSafeEqual(bytes.subarray(0, MAC_BYTES), signPlace(payload, secret))) return null
  const [createdAt, id, status] = placeSchema.parse(JSON.parse(payload.toString()))
  return {after: {createdAt, id}, status}
}
