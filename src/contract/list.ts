import {z} from 'zod'
import {type LoantapeError, newError} from '../core/errors.ts'
import {formatJson, isObject, listRepeated} from '../core/json.ts'
import {FIELD_NAME, tellForeign, tellPath} from '../core/text.ts'
import type {WireRecord} from '../core/types.ts'

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

/** Unknown parameters are refused, because an ignored filter would list the wrong records. */
export type PageQuery = z.output<typeof pageQuerySchema>
export const pageQuerySchema = z.strictObject(pageFields)

export const noQuerySchema = z.strictObject({})

export interface PageBody {
  records: unknown[]
  /** Where the records stand in the body. */
  path: string[]
  /** Null if and only if `has_more` is false. */
  nextCursor: string | null
  /** Where the records and `has_more` stand: `data top level`. */
  envelope: string
}

const TOP_LEVEL = 'top level'

/**
 * Reads a page of a list. The specification leaves open where `has_more` and `next_cursor` stand: each at the top level, in an
 * object there, or in an object within `data`. The records are `data` or the only list in it.
 * @param pinned the envelope of an earlier page, which this one must have
 * @throws ContractError `SOURCE_ENVELOPE`, `SOURCE_ENVELOPE_CHANGED`, `SOURCE_CURSOR_MISSING`
 */
export function readPage(body: unknown, pinned: string | null = null): PageBody {
  if (!isObject(body)) throw createBroken(`expected an object, found ${kindOf(body)}`)
  const {path, records} = findRecords(body)
  requireOnce(body, path)
  const all = listPlaces(body)
  const places = all.filter(({fields}) => 'has_more' in fields)
  const hasMore = readHasMore(places)
  const told = tellPath(path)
  const [found = '', ...others] = places
    .toSorted((one, other) => Number('next_cursor' in other.fields) - Number('next_cursor' in one.fields))
    .map(({name}) => `${told} | ${name}`)
  if (pinned !== null && pinned !== found && !others.includes(pinned))
    throw newError(
      'SOURCE_ENVELOPE_CHANGED',
      `Envelope '${found}' in a page of the source: expected the pinned '${pinned}'.`,
    )
  return {records, path, nextCursor: hasMore ? readCursor(all) : null, envelope: pinned ?? found}
}

function findRecords({data}: WireRecord): Pick<PageBody, 'path' | 'records'> {
  if (Array.isArray(data)) return {path: ['data'], records: data}
  if (!isObject(data)) throw createBroken(`expected 'data' to hold the records, found ${kindOf(data)}`)
  const lists = Object.entries(data).filter(([, items]) => Array.isArray(items))
  const [[name, records] = ['', []], ...others] = lists as [string, unknown[]][]
  if (name === '' || others.length > 0)
    throw createBroken(`expected one array of records in 'data', found ${lists.length}`)
  return {path: ['data', name], records}
}

/** Refuses a body that repeats a name outside the records: nobody knows which value is meant. @throws `SOURCE_ENVELOPE` */
export function requireOnce(body: unknown, path: readonly string[]): void {
  const isWithin = (names: readonly unknown[]) =>
    names.length > path.length && path.every((name, depth) => name === names[depth])
  const twice = listRepeated(body).find((names) => !isWithin(names))
  if (!twice) return
  throw createBroken(`expected each name once in an object, found '${tellPath(twice)}' twice`)
}

interface Place {
  name: string
  fields: WireRecord
}

/** The order of places does not depend on that of the fields. */
function listPlaces(body: WireRecord): Place[] {
  const within = (fields: unknown, prefix: string) =>
    Object.entries(isObject(fields) ? fields : {})
      .flatMap(([name, value]) =>
        isObject(value) ? [{name: `${prefix}${tellForeign(name, FIELD_NAME)}`, fields: value}] : [],
      )
      .sort((one, other) => (one.name < other.name ? -1 : 1))
  return [{name: TOP_LEVEL, fields: body}, ...within(body, ''), ...within(body.data, 'data.')]
}

function readHasMore([first, ...others]: Place[]): boolean {
  if (!first)
    throw createBroken("expected a boolean 'has_more' at the top level or in one object, found none")
  const {has_more: hasMore} = first.fields
  const other = others.find(({fields}) => fields.has_more !== hasMore)
  if (other)
    throw createBroken(`expected one 'has_more', found two that differ: ${first.name} and ${other.name}`)
  if (typeof hasMore === 'boolean') return hasMore
  throw createBroken(`expected 'has_more' (${first.name}) to be a boolean, found ${kindOf(hasMore)}`)
}

/** Where none stands beside `has_more`, one of another place counts. */
function readCursor(places: Place[]): string {
  const told = places.filter(({fields}) => 'next_cursor' in fields)
  const beside = told.filter(({fields}) => 'has_more' in fields)
  const given = (beside.length > 0 ? beside : told).map(({fields}) => fields.next_cursor)
  const [cursor, another] = new Set(given.filter((one) => typeof one === 'string' && one !== ''))
  if (another !== undefined) throw createBroken("expected one 'next_cursor', found several that differ")
  if (typeof cursor === 'string') return cursor
  throw newError(
    'SOURCE_CURSOR_MISSING',
    `Page of the source with has_more true: expected 'next_cursor' to be a text that is not empty, found ${kindOf(given[0])}.`,
  )
}

function kindOf(value: unknown): string {
  if (value === undefined) return 'none'
  if (value === null) return 'null'
  if (value === '') return 'an empty text'
  if (Array.isArray(value)) return 'an array'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

export function createBroken(expectation: string): LoantapeError {
  return newError('SOURCE_ENVELOPE', `Page of the source: ${expectation}.`)
}

/** Pages in a row without progress that end the walk. */
const MOST_STALE_PAGES = 3

export function createListProgress({
  name,
  cursors = [],
  seenIds = new Set(),
  mostIds = Number.POSITIVE_INFINITY,
}: {
  /** Name of the list in errors: `GET /deals`. */
  name: string
  /** The cursors read so far; null stands for the first page. */
  cursors?: Iterable<string | null>
  /** The ids read so far; those of each page are added. */
  seenIds?: Set<string> | undefined
  /** A list with more ids than this counts as endless. */
  mostIds?: number | undefined
}) {
  const seen = new Set(cursors)
  seen.delete(null)
  // When records are added in front of the reading position, the last ones read come again, once.
  const again = new Set<string>()
  let stalePages = 0
  return {
    /** @throws ContractError `SOURCE_CURSOR_LOOP`, `SOURCE_ENDLESS` */
    take({records, nextCursor}: Pick<PageBody, 'records' | 'nextCursor'>): void {
      const before = seenIds.size + again.size
      for (const id of records.map(idOf)) (seenIds.has(id) ? again : seenIds).add(id)
      stalePages = seenIds.size + again.size > before ? 0 : stalePages + 1
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
  return typeof id === 'string' ? id : String(formatJson(record))
}
