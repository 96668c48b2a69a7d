import {z} from 'zod'
import {type LoantapeError, newError} from '../core/errors.ts'
import {isObject, listRepeated} from '../core/json.ts'
import {FIELD_NAME, tellForeign} from '../core/text.ts'
import type {WireRecord} from '../core/types.ts'

/** Records one list request may ask for. */
const PAGE_LIMIT = {min: 1, max: 100, default: 25}

/** The paging parameters of every list, for the query of one with filters of its own. */
export const pageFields = {
  limit: z
    .string()
    .regex(/^\d{1,4}$/, 'expected a whole number')
    .transform(Number)
    .pipe(z.number().int().min(PAGE_LIMIT.min).max(PAGE_LIMIT.max))
    .default(PAGE_LIMIT.default)
    .meta({description: 'Maximum records to return.'}),
  cursor: z.string().optional().meta({description: 'next_cursor of a page before.'}),
}

/** The query of a list without filters; an unknown parameter is refused, for an ignored filter lists the wrong records. */
export type PageQuery = z.output<typeof pageQuerySchema>
export const pageQuerySchema = z.strictObject(pageFields)

/** The query of an endpoint that takes none. */
export const noQuerySchema = z.strictObject({})

/**
 * A list response. The specification does not say where `has_more` and `next_cursor` stand; this is where the
 * local service puts them.
 */
export interface ListBody<T> {
  data: T[]
  has_more: boolean
  next_cursor: string | null
}

/** What one list response says. */
export interface PageBody {
  records: unknown[]
  /** Null exactly when `has_more` is false. */
  nextCursor: string | null
}

/** An object of the response, named by its path. */
interface Place {
  name: string
  fields: WireRecord
}

/** A response, looked through. */
interface Finding {
  /** `path` leads to them from the body. */
  records: {path: string[]; items: unknown[]}
  /** Every place that has `has_more`; they agree. */
  positions: Place[]
  hasMore: boolean
}

const TOP_LEVEL = 'top level'

/**
 * Finds where a response keeps its records and its position: at the top level, in one object of it, or in `data`.
 *
 * @returns the path of the records and of the object that holds `has_more` and `next_cursor`: `data | top level`
 * @throws ContractError `SOURCE_ENVELOPE` when there are no records or no boolean `has_more`, or when they contradict
 * each other
 */
export function findEnvelope(body: unknown): string {
  const {records, positions} = inspectBody(body)
  const position = positions.find((place) => 'next_cursor' in place.fields) ?? positions[0]
  return formatEnvelope(records, position)
}

function formatEnvelope(records: Finding['records'], position: Place | undefined): string {
  const path = records.path.map((name) => tellForeign(name, FIELD_NAME))
  return `${path.join('.')} | ${position?.name ?? TOP_LEVEL}`
}

/**
 * Reads a response that is expected to have this envelope, as {@link findEnvelope} names it.
 *
 * @throws ContractError `SOURCE_ENVELOPE` as {@link findEnvelope}; `SOURCE_ENVELOPE_CHANGED` when it has another one;
 * `SOURCE_CURSOR_MISSING` when more records are announced without a cursor
 */
export function readPage(body: unknown, envelope: string): PageBody {
  const {records, positions, hasMore} = inspectBody(body)
  if (!positions.some((position) => formatEnvelope(records, position) === envelope))
    throw newError(
      'SOURCE_ENVELOPE_CHANGED',
      `Envelope '${findEnvelope(body)}' in a page of the source: expected the pinned '${envelope}'.`,
    )
  return {records: records.items, nextCursor: hasMore ? readCursor(positions) : null}
}

function inspectBody(body: unknown): Finding {
  if (!isObject(body)) throw createBroken(`expected an object, found ${kindOf(body)}`)
  const records = findRecords(body)
  const twice = listRepeated(body).find(
    (path) => path.length <= records.path.length || records.path.some((name, depth) => path[depth] !== name),
  )
  if (twice) {
    const told = twice.map((name) => tellForeign(String(name), FIELD_NAME)).join('.')
    throw createBroken(`expected each name once in an object, found '${told}' twice`)
  }
  const positions = listPlaces(body).filter((place) => 'has_more' in place.fields)
  const [first] = positions
  if (!first)
    throw createBroken("expected a boolean 'has_more' at the top level or in one object, found none")
  const hasMore = first.fields.has_more
  const other = positions.find((place) => place.fields.has_more !== hasMore)
  if (other) {
    throw createBroken(`expected one 'has_more', found two that differ: ${first.name} and ${other.name}`)
  }
  if (typeof hasMore !== 'boolean') {
    throw createBroken(`expected 'has_more' (${first.name}) to be a boolean, found ${kindOf(hasMore)}`)
  }
  return {records, positions, hasMore}
}

/** The records of a page's body, and where they stand in it. */
export function findRecords(body: WireRecord): Finding['records'] {
  const {data} = body
  if (Array.isArray(data)) return {path: ['data'], items: data}
  if (!isObject(data)) throw createBroken(`expected 'data' to hold the records, found ${kindOf(data)}`)
  const arrays = Object.entries(data).flatMap(([name, items]) =>
    Array.isArray(items) ? [{name, items}] : [],
  )
  const [only] = arrays
  if (!only || arrays.length > 1) {
    throw createBroken(`expected one array of records in 'data', found ${arrays.length}`)
  }
  return {path: ['data', only.name], items: only.items}
}

/** In an order that does not depend on the order of the fields. */
function listPlaces(body: WireRecord): Place[] {
  const places = [{name: TOP_LEVEL, fields: body}, ...listObjects(body, '')]
  return isObject(body.data) ? [...places, ...listObjects(body.data, 'data.')] : places
}

function listObjects(fields: WireRecord, prefix: string): Place[] {
  return Object.entries(fields)
    .flatMap(([name, value]) =>
      isObject(value) ? [{name: `${prefix}${tellForeign(name, FIELD_NAME)}`, fields: value}] : [],
    )
    .sort((left, right) => (left.name < right.name ? -1 : 1))
}

function readCursor(positions: Place[]): string {
  const given = positions.map((place) => place.fields.next_cursor)
  const cursors = new Set(given.filter((cursor) => typeof cursor === 'string' && cursor !== ''))
  const [cursor] = cursors
  if (cursors.size > 1) throw createBroken("expected one 'next_cursor', found several that differ")
  if (typeof cursor === 'string') return cursor
  throw newError(
    'SOURCE_CURSOR_MISSING',
    `Page of the source with has_more true: expected 'next_cursor' to be a text that is not empty, found ${kindOf(given[0])}.`,
  )
}

/** What a value is, in words that never repeat it. */
function kindOf(value: unknown): string {
  if (value === undefined) return 'none'
  if (value === null) return 'null'
  if (value === '') return 'an empty text'
  if (Array.isArray(value)) return 'an array'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

function createBroken(expectation: string): LoantapeError {
  return newError('SOURCE_ENVELOPE', `Page of the source: ${expectation}.`)
}

/** Pages in a row without a record that is new. */
const MOST_STALE_PAGES = 3

/**
 * Follows a list from where it has been read to, and makes sure that it leads on.
 *
 * @param name for words in errors: `GET /deals`
 * @param cursors those met so far; null stands for the first page
 * @param seenIds the ids of the records met so far; those of the pages are added
 * @param idField the field of a record that holds its id
 * @param mostIds a list that goes on beyond so many does not end
 */
export function createListProgress({
  name,
  cursors,
  seenIds,
  idField,
  mostIds = Number.POSITIVE_INFINITY,
}: {
  name: string
  cursors: Iterable<string | null>
  seenIds: SeenIds
  idField: string
  mostIds?: number | undefined
}) {
  const seen = new Set(cursors)
  seen.delete(null)
  let stalePages = 0
  return {
    /**
     * Takes in the next page.
     *
     * @throws ContractError `SOURCE_CURSOR_LOOP`, `SOURCE_ENDLESS`
     */
    take({records, nextCursor}: PageBody): void {
      const news = records.filter((record) => seenIds.add(idOf(record, idField)))
      stalePages = news.length > 0 ? 0 : stalePages + 1
      if (nextCursor === null) return
      if (seen.has(nextCursor))
        throw newError(
          'SOURCE_CURSOR_LOOP',
          `Next cursor of ${name} was met before among the ${seen.size} of this walk: expected one that leads on.`,
        )
      if (stalePages === MOST_STALE_PAGES) {
        const isEmpty = records.length === 0
        throw newError(
          'SOURCE_CURSOR_LOOP',
          `${MOST_STALE_PAGES} pages in a row of ${name} hold no record that is new${isEmpty ? ', the last none at all' : ''}, and each names another cursor: expected a list that leads on.`,
        )
      }
      if (seenIds.size > mostIds)
        throw newError(
          'SOURCE_ENDLESS',
          `${seenIds.size} records of ${name} so far, and it goes on: expected a list of at most ${mostIds}.`,
        )
      seen.add(nextCursor)
    },
  }
}

/** The id of a record; the whole of it where there is none. */
function idOf(record: unknown, idField: string): string {
  const id = isObject(record) && record[idField]
  return typeof id === 'string' ? id : JSON.stringify(record)
}

/** Ids met so far, each in four to eight bytes: a million of them take 8 MB, in a Set a hundred. */
export interface SeenIds {
  /** Whether the id is new. One in thousands of new ones is taken for known when millions are. */
  add(id: string): boolean
  readonly size: number
}

const SMALLEST = 64

/** Creates an empty set of ids: 32-bit hashes in a table with open addressing, at most half full. */
export function createSeenIds(): SeenIds {
  let slots = new Uint32Array(SMALLEST)
  let size = 0

  /** The slot that holds the hash, or the free one where it belongs. */
  function findSlot(hash: number): number {
    let slot = hash % slots.length
    while (slots[slot] !== 0 && slots[slot] !== hash) slot = (slot + 1) % slots.length
    return slot
  }

  function grow(): void {
    const before = slots
    slots = new Uint32Array(before.length * 2)
    for (const hash of before) if (hash !== 0) slots[findSlot(hash)] = hash
  }

  return {
    get size() {
      return size
    },
    add(id) {
      const hash = hashOf(id)
      const slot = findSlot(hash)
      if (slots[slot] === hash) return false
      slots[slot] = hash
      size += 1
      if (size * 2 > slots.length) grow()
      return true
    },
  }
}

/** FNV-1a over the UTF-16 units, with the last mixing of MurmurHash3; never 0. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0 || 1
}
