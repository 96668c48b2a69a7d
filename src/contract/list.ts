import {z} from 'zod'
import {type LoantapeError, newError} from '../core/errors.ts'
import {isObject, listRepeated} from '../core/json.ts'
import {FIELD_NAME, tellForeign} from '../core/text.ts'
import type {WireRecord} from '../core/types.ts'

/** The paging parameters of every list, for queries that add filters. */
export const pageFields = {
  limit: z
    .string()
    .regex(/^\d{1,4}$/, 'expected a whole number')
    .transform(Number)
    .pipe(z.number().int().min(1).max(100))
    .default(25)
    .meta({description: 'Maximum records to return.'}),
  cursor: z.string().optional().meta({description: 'next_cursor of a page before.'}),
}

/** The query of a list without filters. Unknown parameters are refused: an ignored filter would list the wrong records. */
export type PageQuery = z.output<typeof pageQuerySchema>
export const pageQuerySchema = z.strictObject(pageFields)

/** The query of an endpoint without parameters. */
export const noQuerySchema = z.strictObject({})

/** A parsed list response. */
export interface PageBody {
  records: unknown[]
  /** Null exactly when `has_more` is false. */
  nextCursor: string | null
}

/** An object of a response that may hold `has_more` and `next_cursor`. */
interface Pointer {
  /** Its path in the body. */
  name: string
  fields: WireRecord
}

/** The records of a response and their path in the body. */
interface Records {
  path: string[]
  items: unknown[]
}

const TOP_LEVEL = 'top level'

/**
 * Finds the records of a response, and the object that holds `has_more` and `next_cursor`: the top level or an object below
 * it or below `data`.
 *
 * @returns the paths of both: `data | top level`
 * @throws ContractError `SOURCE_ENVELOPE` if records or a boolean `has_more` are missing or contradict each other
 */
export function findEnvelope(body: unknown): string {
  const {records, pointers} = inspectBody(body)
  const pointer = pointers.find((pointer) => 'next_cursor' in pointer.fields) ?? pointers[0]
  return formatEnvelope(records, pointer)
}

function formatEnvelope(records: Records, pointer: Pointer | undefined): string {
  const path = records.path.map((name) => tellForeign(name, FIELD_NAME))
  return `${path.join('.')} | ${pointer?.name ?? TOP_LEVEL}`
}

/**
 * Reads a response with an envelope of {@link findEnvelope}.
 *
 * @throws ContractError `SOURCE_ENVELOPE` as {@link findEnvelope}; `SOURCE_ENVELOPE_CHANGED` if its envelope differs;
 * `SOURCE_CURSOR_MISSING` if more records are announced without a cursor
 */
export function readPage(body: unknown, envelope: string): PageBody {
  const {records, pointers, hasMore} = inspectBody(body)
  if (!pointers.some((pointer) => formatEnvelope(records, pointer) === envelope))
    throw newError(
      'SOURCE_ENVELOPE_CHANGED',
      `Envelope '${findEnvelope(body)}' in a page of the source: expected the pinned '${envelope}'.`,
    )
  return {records: records.items, nextCursor: hasMore ? readCursor(pointers) : null}
}

/** Finds the records, and every object with `has_more`; they agree. @throws ContractError `SOURCE_ENVELOPE` */
function inspectBody(body: unknown) {
  if (!isObject(body)) throw createBroken(`expected an object, found ${kindOf(body)}`)
  const records = findRecords(body)
  const repeated = listRepeated(body).find(
    (path) => path.length <= records.path.length || records.path.some((name, depth) => path[depth] !== name),
  )
  if (repeated) {
    const told = repeated.map((name) => tellForeign(String(name), FIELD_NAME)).join('.')
    throw createBroken(`expected each name once in an object, found '${told}' twice`)
  }
  const pointers = listPointers(body).filter((pointer) => 'has_more' in pointer.fields)
  const [first] = pointers
  if (!first)
    throw createBroken("expected a boolean 'has_more' at the top level or in one object, found none")
  const hasMore = first.fields.has_more
  const other = pointers.find((pointer) => pointer.fields.has_more !== hasMore)
  if (other) {
    throw createBroken(`expected one 'has_more', found two that differ: ${first.name} and ${other.name}`)
  }
  if (typeof hasMore !== 'boolean') {
    throw createBroken(`expected 'has_more' (${first.name}) to be a boolean, found ${kindOf(hasMore)}`)
  }
  return {records, pointers, hasMore}
}

/** Finds the records of a response. @throws ContractError `SOURCE_ENVELOPE` */
export function findRecords(body: WireRecord): Records {
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

/** Sorted, so that the order of the fields does not matter. */
function listPointers(body: WireRecord): Pointer[] {
  const pointers = [{name: TOP_LEVEL, fields: body}, ...listObjects(body, '')]
  return isObject(body.data) ? [...pointers, ...listObjects(body.data, 'data.')] : pointers
}

function listObjects(fields: WireRecord, prefix: string): Pointer[] {
  return Object.entries(fields)
    .flatMap(([name, value]) =>
      isObject(value) ? [{name: `${prefix}${tellForeign(name, FIELD_NAME)}`, fields: value}] : [],
    )
    .sort((left, right) => (left.name < right.name ? -1 : 1))
}

function readCursor(pointers: Pointer[]): string {
  const given = pointers.map((pointer) => pointer.fields.next_cursor)
  const cursors = new Set(given.filter((cursor) => typeof cursor === 'string' && cursor !== ''))
  const [cursor] = cursors
  if (cursors.size > 1) throw createBroken("expected one 'next_cursor', found several that differ")
  if (typeof cursor === 'string') return cursor
  throw newError(
    'SOURCE_CURSOR_MISSING',
    `Page of the source with has_more true: expected 'next_cursor' to be a text that is not empty, found ${kindOf(given[0])}.`,
  )
}

/** The kind of a value, without the value. */
function kindOf(value: unknown): string {
  if (value === undefined) return 'none'
  if (value === null) return 'null'
  if (value === '') return 'an empty text'
  if (Array.isArray(value)) return 'an array'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

/** The error of a page that is not what it should be. */
export function createBroken(expectation: string): LoantapeError {
  return newError('SOURCE_ENVELOPE', `Page of the source: ${expectation}.`)
}

/** This many pages in a row without a new record end the walk. */
const MOST_STALE_PAGES = 3

/** A list that is read page by page. */
interface ListRead {
  /** For errors: `GET /deals`. */
  name: string
  /** The cursors read so far; null is the first page. */
  cursors?: Iterable<string | null>
  /** The ids read so far; those of each page are added. */
  seenIds?: SeenIds | undefined
  /** A list longer than this is taken as endless. */
  mostIds?: number | undefined
}

/** Creates the check that a list makes progress from page to page. */
export function createListProgress({
  name,
  cursors = [],
  seenIds = createSeenIds(),
  mostIds = Number.POSITIVE_INFINITY,
}: ListRead) {
  const seen = new Set(cursors)
  seen.delete(null)
  let stalePages = 0
  return {
    /**
     * Takes the next page.
     *
     * @throws ContractError `SOURCE_CURSOR_LOOP`, `SOURCE_ENDLESS`
     */
    take({records, nextCursor}: PageBody): void {
      const fresh = records.filter((record) => seenIds.add(idOf(record)))
      stalePages = fresh.length > 0 ? 0 : stalePages + 1
      if (nextCursor === null) return
      if (seen.has(nextCursor))
        throw newError(
          'SOURCE_CURSOR_LOOP',
          `Next cursor of ${name} was met before among the ${seen.size} of this walk: expected a new one.`,
        )
      if (stalePages === MOST_STALE_PAGES) {
        const isEmpty = records.length === 0
        throw newError(
          'SOURCE_CURSOR_LOOP',
          `${MOST_STALE_PAGES} pages in a row of ${name} hold no new record${isEmpty ? ', the last none at all' : ''}, yet each names a new cursor: expected a list that ends.`,
        )
      }
      if (seenIds.size > mostIds)
        throw newError(
          'SOURCE_ENDLESS',
          `${seenIds.size} records of ${name} so far, and more follow: expected a list of at most ${mostIds}.`,
        )
      seen.add(nextCursor)
    },
  }
}

function idOf(record: unknown): string {
  const id = isObject(record) && record.id
  return typeof id === 'string' ? id : JSON.stringify(record)
}

/** A set of ids, kept as numbers: a million take 8 MB, as texts 100 MB. */
export type SeenIds = ReturnType<typeof createSeenIds>

/** Creates an empty set of ids. */
export function createSeenIds() {
  /** Less than half full; a hash stands in its place or the next free one, and 0 is none. */
  let hashes = new Int32Array(1024)
  let size = 0

  function put(hash: number): boolean {
    let place = hash & (hashes.length - 1)
    while (hashes[place] !== 0 && hashes[place] !== hash) place = (place + 1) & (hashes.length - 1)
    const isNew = hashes[place] === 0
    hashes[place] = hash
    return isNew
  }

  function grow(): void {
    const all = hashes
    hashes = new Int32Array(all.length * 2)
    for (const hash of all) if (hash !== 0) put(hash)
  }

  return {
    get size(): number {
      return size
    },
    /** Whether the id is new. Among millions of ids, one new id in thousands is taken as known. */
    add(id: string): boolean {
      if (size * 2 >= hashes.length) grow()
      const isNew = put(hashOf(id) || 1)
      if (isNew) size += 1
      return isNew
    },
  }
}

/** FNV-1a over the UTF-16 units, with the final mixing of MurmurHash3. */
function hashOf(text: string): number {
  let hash = 0x811c9dc5
  for (let index = 0; index < text.length; index++)
    hash = Math.imul(hash ^ text.charCodeAt(index), 0x01000193)
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return hash ^ (hash >>> 16)
}
