import {createHmac, timingSafeEqual} from 'node:crypto'
import {z} from 'zod'
import type {ListBody, PageQuery} from '../contract/page.ts'
import {refuse} from './problem-reply.ts'
import type {ServiceDatabase} from './service-database.ts'

/** A place in a list: lists are ordered by `createdAt` (ms since the epoch), then `id`, both ascending. */
export interface ListKey {
  createdAt: number
  id: string
}

/** Where a list goes on: behind `after`, in the list of this name and filter (null: unfiltered). */
export interface ListPlace {
  list: string
  filter: string | null
  after: ListKey
}

const MAC_BYTES = 16
/** Before every record. */
export const FIRST: ListKey = {createdAt: Number.MIN_SAFE_INTEGER, id: ''}

const placeSchema = z.tuple([z.number().int(), z.string(), z.string(), z.string().nullable()])

function signPlace(payload: Buffer, secret: Buffer): Buffer {
  return createHmac('sha256', secret).update(payload).digest().subarray(0, MAC_BYTES)
}

/** Writes a place as an opaque, signed cursor (base64url). */
export function formatCursor({list, filter, after}: ListPlace, secret: Buffer): string {
  const payload = Buffer.from(JSON.stringify([after.createdAt, after.id, list, filter]))
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
  const [createdAt, id, list, filter] = placeSchema.parse(JSON.parse(payload.toString()))
  return {list, filter, after: {createdAt, id}}
}

function readPlace(cursor: string, list: {name: string; filter: string | null}, secret: Buffer): ListKey {
  const place = parseCursor(cursor, secret)
  if (place && place.list === list.name && place.filter === list.filter) return place.after
  const detail = place
    ? 'The cursor belongs to another list or to another filter. Start this list anew.'
    : 'The cursor was not issued by this service or was changed. Start the list anew.'
  throw refuse('invalid_cursor', {detail})
}

/**
 * Reads one page of a list: one record more than asked for tells whether there are more.
 *
 * @param list.fetch gives at most `limit` records behind `after`, in order
 */
export function readListPage<T extends {id: string; created_at: string}>(
  {limit, cursor}: PageQuery,
  list: {name: string; filter: string | null; fetch(after: ListKey, limit: number): T[]},
  secret: Buffer,
): ListBody<T> {
  const found = list.fetch(cursor === undefined ? FIRST : readPlace(cursor, list, secret), limit + 1)
  const data = found.slice(0, limit)
  const last = data.at(-1)
  if (found.length <= limit || !last) return {data, has_more: false, next_cursor: null}
  const after = {createdAt: Date.parse(last.created_at), id: last.id}
  const place = {list: list.name, filter: list.filter, after}
  return {data, has_more: true, next_cursor: formatCursor(place, secret)}
}

/** Reads one page of the rows of a table, or of those whose parent this is. */
export function readTablePage<T extends {id: string; created_at: string}>(
  query: PageQuery,
  {name, row, parent = {}}: {name: string; row: z.ZodType<T>; parent?: Record<string, string>},
  database: ServiceDatabase,
): ListBody<T> {
  const [column = "''", filter = null] = Object.entries(parent)[0] ?? []
  const sql = `select * from ${name} where ${column} = ? and (created_at, id) > (?, ?)
    order by created_at, id limit ?`
  const fetch = (after: ListKey, limit: number): T[] =>
    database.all(row, sql, filter ?? '', after.createdAt, after.id, limit)
  return readListPage(query, {name, filter, fetch}, database.secret)
}
