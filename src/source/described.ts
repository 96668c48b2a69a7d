import type {FieldDescription, SourceDescription} from '../contract/description.ts'
import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import {parseInstant, wallTimeOf} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {findValue, isObject, listRepeated} from '../core/json.ts'
import {formatCents} from '../core/money.ts'
import type {WireRecord} from '../core/types.ts'
import type {ResponseHeaders} from './rate-limit.ts'

/*
 * A source that `source.json` describes looks like the Deal Financing Service to everything behind the client: requests are
 * rewritten on their way out, answers on their way in.
 */

type Query = Record<string, string | number>

/** A request as the source wants it. */
interface Asked {
  /** Relative to the base URL. */
  path: string
  query: Query
  /** Makes the answer of the service from that of the source. */
  read: (body: unknown, headers: ResponseHeaders) => WireRecord
}

/** Rewrites requests and answers. */
/** Creates the translator of a source below `base`. */
export function createTranslator(source: SourceDescription, base: URL) {
  const plurals = ['deals', 'borrowers', 'documents'] as const
  const readers = new Map(STREAMS.map((stream) => [stream.plural, createRecordReader(stream, source)]))

  function askForList(
    plural: (typeof plurals)[number],
    id: string | undefined,
    query: Query,
  ): Asked | undefined {
    const described = source[plural]
    const read = readers.get(plural)
    if (!described || !read) return undefined
    const cursor = query.cursor === undefined ? null : String(query.cursor)
    const {status} = query
    const filter = plural === 'deals' && status !== undefined ? filterBy(source, String(status)) : {}
    const size =
      source.pageSize === undefined || query.limit === undefined ? {} : {[source.pageSize]: query.limit}
    const {path, more} = askFor(source.paging, fillIn(described.list, id), cursor)
    return {
      path,
      query: {...size, ...filter, ...more},
      read(body, headers) {
        const steps = described.records?.split('.') ?? []
        const records = steps.length === 0 ? body : findValue(body, steps)
        if (!Array.isArray(records))
          throw createBroken(`expected records at '${described.records ?? '(answer)'}', found none`)
        requireOnce(body, steps)
        const next = findNext(source, {body, headers, base, path, cursor, count: records.length})
        return {data: records.map(read), has_more: next !== null, next_cursor: next}
      },
    }
  }

  return {
    /**
     * Rewrites a request; undefined for paths that no description names.
     *
     * @throws ContractError `SOURCE_NOT_FOUND` for what this source does not offer
     */
    ask(path: string, query: Query): Asked | undefined {
      const [, id, child] = /^\/deals(?:\/([^/]+)(?:\/(\w+))?)?$/.exec(path) ?? []
      if (!path.startsWith('/deals')) return undefined
      if (id === undefined || child !== undefined) {
        const plural = plurals.find((one) => one === (child ?? 'deals'))
        const asked = plural && askForList(plural, id, query)
        if (asked) return asked
      } else if (source.deals.page !== undefined) {
        const steps = source.deals.record?.split('.') ?? []
        const read = readers.get('deals')
        return {
          path: fillIn(source.deals.page, id),
          query: {},
          read(body) {
            requireOnce(body, steps)
            return {data: read?.(findValue(body, steps))}
          },
        }
      }
      throw newError('SOURCE_NOT_FOUND', `GET ${path} is not described in source.json.`)
    },
  }
}

/** Fails if an object on the way to the records repeats a name: nobody knows which value is meant. */
function requireOnce(body: unknown, steps: readonly string[]): void {
  const isWithin = (names: readonly unknown[]) =>
    names.length > steps.length && steps.every((step, depth) => step === names[depth])
  if (!listRepeated(body).every(isWithin)) throw createBroken('expected each name once in an object')
}

const fillIn = (template: string, id = '') => template.replaceAll('{id}', () => id)

function filterBy({deals}: SourceDescription, status: string): Query {
  if (deals.filter === undefined)
    throw newError(
      'SOURCE_REQUEST_REFUSED',
      'LOANTAPE_STAGE is set: expected a `filter` of deals in source.json.',
    )
  const [theirs = status] =
    Object.entries(deals.fields.status?.values ?? {}).find(([, ours]) => ours === status) ?? []
  return {[deals.filter]: theirs}
}

type Paging = SourceDescription['paging']

/** The path and the parameters that ask for a page; `cursor` is null for the first. */
function askFor(paging: Paging, path: string, cursor: string | null): {path: string; more: Query} {
  if (paging.by === 'page') return {path, more: {[paging.parameter]: cursor ?? paging.first}}
  if (cursor === null || paging.by === 'nothing') return {path, more: {}}
  if (paging.by === 'cursor' || paging.by === 'offset') return {path, more: {[paging.parameter]: cursor}}
  return {path: cursor, more: {}}
}

/** What the next page is asked for with; null after the last. */
function findNext(source: SourceDescription, page: PageRead): string | null {
  const {paging} = source
  const {body, headers, cursor, count} = page
  if (paging.by === 'nothing') return null
  if (paging.by === 'link') return belowBase(findLink(headers.link), source, page)
  if (paging.by === 'url') return belowBase(textAt(body, paging.next), source, page)
  const said = paging.more === undefined ? undefined : findValue(body, paging.more.split('.'))
  if (paging.more !== undefined && typeof said !== 'boolean')
    throw createBroken(`expected a boolean at '${paging.more}', found none`)
  if (said === false) return null
  if (paging.by === 'cursor') {
    const {header, next: place = 'next_cursor'} = paging
    const next = header === undefined ? textAt(body, place) : String(headers[header.toLowerCase()] ?? '')
    if (next !== '') return next
    if (said === undefined) return null
    throw newError('SOURCE_CURSOR_MISSING', 'Page of the source: it says that more follow, without a cursor.')
  }
  // A source may cap a page below the size asked for, so a short page is not the end.
  if (count === 0 && said === undefined) return null
  return paging.by === 'page'
    ? String(Number(cursor ?? paging.first) + 1)
    : String(Number(cursor ?? 0) + count)
}

/** A page, and the request that it answers. */
interface PageRead {
  body: unknown
  headers: ResponseHeaders
  base: URL
  /** Below the base URL. */
  path: string
  cursor: string | null
  /** Its records. */
  count: number
}

/** The text or number at a path; empty if there is none. */
function textAt(body: unknown, path: string): string {
  const value = findValue(body, path.split('.'))
  if (value === undefined || value === null) return ''
  if (typeof value === 'string' || typeof value === 'number') return String(value)
  throw createBroken(`expected a text at '${path}', found something else`)
}

/** The target of `rel=next` in a Link header (RFC 8288); empty if there is none. */
function findLink(header: unknown): string {
  const links = String(header ?? '').matchAll(/<([^>]*)>((?:\s*;\s*[^,;="]+(?:=(?:"[^"]*"|[^,;"]*))?)*)/g)
  for (const [, url = '', attributes = ''] of links)
    if (/;\s*rel\s*=\s*(?:"(?:[^"]*\s)?next(?:\s[^"]*)?"|next)\s*(?:;|$)/i.test(attributes)) return url
  return ''
}

/** A URL, which may be relative to the page's, as a path below the base URL; null for an empty one. */
function belowBase(url: string, {auth}: SourceDescription, {base, path}: PageRead): string | null {
  if (url === '') return null
  const prefix = `${base.origin}${base.pathname.replace(/\/+$/, '')}`
  const next = URL.canParse(url, `${prefix}${path}`) ? new URL(url, `${prefix}${path}`) : undefined
  // Any other place would get the key.
  if (!next?.href.startsWith(`${prefix}/`))
    throw createBroken(`expected the next URL below '${prefix}', found another place`)
  if (auth.by === 'query') next.searchParams.delete(auth.name)
  next.hash = ''
  return next.href.slice(prefix.length)
}

const createBroken = (expectation: string) =>
  newError('SOURCE_ENVELOPE', `Page of the source: ${expectation}.`)

/** Creates the function that gives the fields of a record our names and forms; what is not described stays as it is. */
export function createRecordReader(
  {plural, columns}: Stream,
  source: SourceDescription,
): (record: unknown) => unknown {
  const described = source[plural as 'deals']?.fields ?? {}
  const typeOf = (name: string) => columns.find((column) => column.name === name)?.type
  const fields = Object.entries<FieldDescription | undefined>(described).flatMap(([name, field]) =>
    field ? [{name, steps: field.path.split('.'), read: readerOf(field, typeOf(name))}] : [],
  )
  if (fields.length === 0) return (record) => record
  return (record) => {
    if (!isObject(record)) return record
    const read: WireRecord = {...record}
    const values = fields.map(({steps}) => takeOut(read, steps))
    fields.forEach((field, index) => {
      delete read[field.name]
      const value = values[index]
      if (value !== undefined) read[field.name] = value === null ? null : field.read(value)
    })
    return read
  }
}

/** Takes the value at a path out of a record; objects on the way are copied. */
function takeOut(record: WireRecord, [name = '', ...rest]: readonly string[]): unknown {
  const value = Object.hasOwn(record, name) ? record[name] : undefined
  if (rest.length > 0 && !isObject(value)) return undefined
  const inner = rest.length > 0 ? {...Object(value)} : {}
  const found = rest.length > 0 ? takeOut(inner, rest) : value
  if (Object.keys(inner).length > 0) record[name] = inner
  else delete record[name]
  return found
}

/** Reads a value that is not null. One that cannot be read becomes an object, which the contract rejects with its record. */
function readerOf(field: FieldDescription, type: string | undefined): (value: unknown) => unknown {
  const {unit, values, timeZone, epoch} = field
  if (unit === 'cents') return readCents
  if (epoch !== undefined) return (value) => readEpoch(value, epoch === 'seconds' ? 1000 : 1)
  if (timeZone !== undefined)
    return (value) => (typeof value === 'string' ? readLocal(value, timeZone) : value)
  if (values !== undefined)
    return (value) => (typeof value === 'string' && Object.hasOwn(values, value) ? values[value] : value)
  // An id may be a number.
  return type === undefined
    ? (value) => (Number.isSafeInteger(value) ? String(value) : value)
    : (value) => value
}

function readCents(value: unknown): unknown {
  const text = typeof value === 'number' && Number.isSafeInteger(value) ? String(value) : value
  return typeof text === 'string' && /^-?\d{1,18}$/.test(text) ? formatCents(BigInt(text)) : {cents: value}
}

function readEpoch(value: unknown, unitMs: number): unknown {
  const instant = new Date(typeof value === 'number' ? Math.round(value * unitMs) : Number.NaN)
  return Number.isNaN(instant.getTime()) ? {epoch: value} : instant.toISOString()
}

const LOCAL = /^(\d{4}-\d{2}-\d{2})[T ](\d{2}:\d{2}(?::\d{2})?)(\.\d{1,9})?$/

/** A time without an offset as an instant; any other text stays as it is. */
function readLocal(text: string, timeZone: string): string {
  const [, date, time, fraction = ''] = LOCAL.exec(text) ?? []
  const wall = Number((parseInstant(`${date}T${time}Z`) ?? 0n) / 1000n)
  if (time === undefined || wall === 0) return text
  const guess = wall - (wallTimeOf(wall, timeZone) - wall)
  const instant = wall - (wallTimeOf(guess, timeZone) - guess)
  return `${new Date(instant).toISOString().slice(0, 19)}${fraction}Z`
}
