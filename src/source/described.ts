import type {FieldDescription, Paging, SourceDescription} from '../contract/description.ts'
import {createBroken, requireOnce} from '../contract/list.ts'
import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import {instantsOfWallTime, isCalendarDate, parseInstant, wallTimeOf} from '../core/clock.ts'
import {newError} from '../core/errors.ts'
import {findValue, formatJson, isObject, listRepeated} from '../core/json.ts'
import {formatCents} from '../core/money.ts'
import {tellForeign} from '../core/text.ts'
import type {WireRecord} from '../core/types.ts'
import type {ResponseHeaders} from './rate-limit.ts'

/*
 * A source that `source.json` describes looks like the Deal Financing Service to everything behind the client: requests are
 * rewritten on their way out, answers on their way in.
 */

export type Query = Record<string, string | number>

/** A request in the source's own terms. */
interface Request {
  /** Below the base URL. */
  path: string
  query: Query
  /** For the tape: the path as described, the query without anything the source could have put into it, and where the records stand. */
  told: {path: string; query: Query; at: string[]}
  /** The text of the answer that the Deal Financing Service would have given. */
  translate: (body: unknown, headers: ResponseHeaders) => string
}

/** Undefined for paths that are the same everywhere. @throws `SOURCE_NOT_FOUND` */
export function createTranslator(source: SourceDescription, base: URL) {
  const readers = new Map(STREAMS.map((stream) => [stream.plural, createRecordReader(stream, source)]))
  const stepsOf = (path: string | undefined) => path?.split('.') ?? []

  function listOf(plural: string, id: string | undefined, given: Query): Request | undefined {
    const described = source[plural as 'deals' | 'borrowers' | 'documents']
    const read = readers.get(plural)
    if (!described || !read) return undefined
    const {paging = source.paging} = described
    const {limit, status, changed_since: since} = given
    const cursor = given.cursor === undefined ? null : String(given.cursor)
    const filter = status === undefined ? {} : filterBy(source, String(status))
    const changed = since === undefined ? {} : {[source.deals.changedSince ?? '']: since}
    const size = source.pageSize === undefined || limit === undefined ? {} : {[source.pageSize]: limit}
    const asked = {...size, ...filter, ...changed}
    const first = fillIn(described.list, id)
    const steps = stepsOf(described.records)
    const isByUrl = paging.by === 'link' || paging.by === 'url'
    const isUrl = cursor !== null && isByUrl
    const path = isUrl ? cursor : first
    // A longer number could identify somebody.
    const page = cursor && tellForeign(cursor, /^\d{1,8}$/)
    const shown = isUrl ? {next: page ?? ''} : {...asked, ...pageQuery(paging, page)}
    return {
      path,
      query: isUrl ? {} : {...asked, ...pageQuery(paging, cursor)},
      told: {path: first, query: shown, at: steps},
      translate(body, headers) {
        requireOnce(body, steps)
        // Some sources write an empty list as null.
        const records = findValue(body, steps) ?? (findValue(body, steps) === null ? [] : undefined)
        if (!Array.isArray(records))
          throw createBroken(`expected a list at '${described.records ?? '(answer)'}', found none`)
        const next = findNext(paging, {body, headers, cursor, count: records.length})
        const {length} = records
        const isFull = paging.by === 'nothing' ? length === limit : length >= Number(limit)
        const isCut = isFull && cursor === null && source.pageSize !== undefined
        if (next === undefined) requireTold(paging, length, isCut)
        const cursorOfNext = next && isByUrl ? belowBase(next, {source, base, path}) : next || null
        const data = records.map((record) => formatRecord(read(record)))
        return `{"data":[${data}],"has_more":${cursorOfNext !== null},"next_cursor":${JSON.stringify(cursorOfNext)}}`
      },
    }
  }

  function pageOf(id: string): Request | undefined {
    const {page, record} = source.deals
    if (page === undefined) return undefined
    const at = stepsOf(record)
    const asked = {path: fillIn(page, id), query: {}}
    return {
      ...asked,
      told: {...asked, at},
      translate(body) {
        requireOnce(body, at)
        return `{"data":${formatRecord(readers.get('deals')?.(findValue(body, at)))}}`
      },
    }
  }

  return (path: string, query: Query): Request | undefined => {
    const [, id, child] = /^\/deals(?:\/([^/]+)(?:\/(\w+))?)?$/.exec(path) ?? []
    if (!path.startsWith('/deals')) return undefined
    const isPage = id !== undefined && child === undefined
    const request = isPage ? pageOf(id) : listOf(child ?? 'deals', id, query)
    if (request) return request
    throw newError('SOURCE_NOT_FOUND', `GET ${path}: source.json describes nothing of the kind.`)
  }
}

/** A page tells the next one, unless the list may end there. @throws `SOURCE_CURSOR_MISSING` */
function requireTold(paging: Paging, count: number, isCut: boolean): void {
  const isEnd =
    paging.by === 'nothing' ||
    paging.by === 'link' ||
    (paging.by === 'cursor' && paging.header !== undefined) ||
    ((paging.by === 'cursor' || paging.by === 'url') && paging.absentEnds === true)
  if (count === 0 || (isEnd && !isCut)) return
  throw newError(
    'SOURCE_CURSOR_MISSING',
    `Page of the source: ${count} records, and nothing where source.json says the next page is told.`,
    {
      next: isEnd
        ? 'Correct `paging` in source.json. If the list really ends with this full page, change LOANTAPE_PAGE_SIZE.'
        : 'Correct `paging` in source.json. If the source leaves it out after the last page, say `"absentEnds": true` there.',
    },
  )
}

const fillIn = (template: string, id = '') => template.replaceAll('{id}', () => id)

/** JSON has no infinite numbers: they become objects, which the contract rejects. */
export const formatRecord = (record: unknown = null): string =>
  formatJson(record, (_name, value) =>
    typeof value === 'number' && !Number.isFinite(value) ? {number: String(value)} : value,
  ) ?? '{"id":{"nested_too_deeply":true}}'

function filterBy({deals}: SourceDescription, status: string): Query {
  const theirs = Object.entries(deals.fields.status?.values ?? {}).filter(([, ours]) => ours === status)
  if (deals.filter !== undefined && theirs.length < 2) return {[deals.filter]: theirs[0]?.[0] ?? status}
  throw newError(
    'SOURCE_REQUEST_REFUSED',
    `LOANTAPE_STAGE '${status}': source.json has ${deals.filter === undefined ? 'no `filter` of deals' : 'several values for it'}.`,
  )
}

/** `cursor` is null for the first page. */
function pageQuery(paging: Paging, cursor: string | null): Query {
  if (paging.by === 'page') return {[paging.parameter]: cursor ?? paging.first}
  return cursor !== null && 'parameter' in paging ? {[paging.parameter]: cursor} : {}
}

/** `cursor` is what it was asked for with, `count` the number of its records. */
interface ReadPage {
  body: unknown
  headers: ResponseHeaders
  cursor: string | null
  count: number
}

/** What asks for the next page; null after the last page; undefined if the answer does not tell. */
function findNext(paging: Paging, {body, headers, cursor, count}: ReadPage): string | null | undefined {
  const at = (path: string) => findValue(body, path.split('.'))
  const told = (path: string) => (at(path) === undefined ? undefined : textAt(body, path))
  if (paging.by === 'nothing') return undefined
  if (paging.by === 'link') return findLink(headers.link)
  if (paging.by === 'url') return told(paging.next)
  const isMore = paging.more === undefined ? undefined : at(paging.more)
  if (paging.more !== undefined && typeof isMore !== 'boolean')
    throw createBroken(`expected a boolean at '${paging.more}', found none`)
  if (isMore === false) return null
  if (paging.by === 'cursor') {
    const {header, next: place = 'next_cursor'} = paging
    const next = header === undefined ? told(place) : headers[header.toLowerCase()]?.toString()
    if (isMore && !next)
      throw newError(
        'SOURCE_CURSOR_MISSING',
        'Page of the source: it says that more follow, without a cursor.',
      )
    return next
  }
  const isPage = paging.by === 'page'
  const [first, place] = isPage ? [paging.first, paging.pages] : [0, paging.total]
  const from = Number(cursor ?? first)
  const next = from + (isPage ? 1 : count)
  const end = place === undefined ? undefined : countAt(body, place) + first
  // A source may cap pages below the size asked for, so a short page is not the end.
  const isEnd = end === undefined ? isMore === undefined && count === 0 : next >= end
  // Some sources count an empty list as one page.
  const isMissing = count === 0 && (cursor === null ? !isEnd : end !== undefined && from < end)
  if (isMissing || (isEnd && isMore) || (count > 0 && end !== undefined && next > end)) {
    const told = [place, paging.more].filter((path) => path !== undefined).join("' and '")
    throw createBroken(`expected '${told}' to agree with the ${count} records at ${paging.parameter}=${from}`)
  }
  return isEnd ? null : String(next)
}

/** A text or exact whole number as text; null if it is null or empty. */
function textAt(body: unknown, path: string): string | null {
  const value = findValue(body, path.split('.'))
  if (value === null || value === '') return null
  if (typeof value === 'string' || Number.isSafeInteger(value)) return String(value)
  throw createBroken(`expected a text or a whole number that is exact at '${path}', found something else`)
}

function countAt(body: unknown, path: string): number {
  const [digits] = /^\d{1,15}$/.exec(textAt(body, path) ?? '') ?? []
  if (digits !== undefined) return Number(digits)
  throw createBroken(`expected a whole number at '${path}', found none`)
}

/** The target of `rel=next` in a Link header (RFC 8288); null if it has none, undefined without the header. */
function findLink(header: string | string[] | undefined): string | null | undefined {
  const links = String(header ?? '').matchAll(/<([^>]*)>((?:\s*;\s*[^,;="]+(?:=(?:"[^"]*"|[^,;"]*))?)*)/g)
  for (const [, url = '', attributes = ''] of links)
    if (/;\s*rel\s*=\s*(?:"(?:[^"]*\s)?next(?:\s[^"]*)?"|next)\s*(?:;|$)/i.test(attributes)) return url
  return header === undefined ? undefined : null
}

/** A URL may be relative to its page's. @throws `SOURCE_ENVELOPE` */
function belowBase(
  url: string,
  {source: {auth}, base, path}: {source: SourceDescription; base: URL; path: string},
): string {
  const prefix = `${base.origin}${base.pathname.replace(/\/+$/, '')}`
  const next = URL.parse(url, `${prefix}${path}`)
  // Any other place would receive the key.
  if (!next?.href.startsWith(`${prefix}/`))
    throw createBroken(`expected the next URL below '${prefix}', found another place`)
  // These are sent with every request, and one may be a secret.
  const sent = [...base.searchParams.keys(), ...(auth.by === 'query' ? [auth.name] : [])]
  for (const name of [...next.searchParams.keys()])
    if (sent.some((one) => one.toLowerCase() === name.toLowerCase())) next.searchParams.delete(name)
  next.hash = ''
  return next.href.slice(prefix.length)
}

/** Gives a record our names and forms. One that repeats a name becomes unreadable. */
export function createRecordReader(
  {plural, columns, parent}: Stream,
  source: SourceDescription,
): (record: unknown) => unknown {
  // Ids may be numbers, whether described or not.
  const ids = ['id', ...(parent ? [parent.column] : [])]
  const described: Record<string, FieldDescription | undefined> = {
    ...Object.fromEntries(ids.map((name) => [name, {path: [name]}])),
    ...source[plural as 'deals']?.fields,
  }
  const fields = Object.entries(described).flatMap(([name, field]) => {
    const type = columns.find((column) => column.name === name)?.type ?? 'VARCHAR'
    if (!field) return []
    return [{name, places: field.path.map((path) => path.split('.')), read: readerOf(field, type)}]
  })
  return (record) => {
    if (!isObject(record)) return record
    if (listRepeated(record).length > 0) return {id: {repeated_names: true}}
    const read: WireRecord = {...record}
    for (const {name, places} of fields) for (const steps of [[name], ...places]) remove(read, steps)
    for (const {name, places, read: readPart} of fields) {
      const values = places
        .map((steps) => findValue(record, steps, null))
        .filter((value) => value !== undefined)
      if (values.length === 0) continue
      const parts = values.filter((value) => value !== null).map(readPart)
      read[name] = places.length > 1 ? joinParts(parts) : (parts[0] ?? null)
    }
    return read
  }
}

/** Null if no part says anything. What is no text makes the field unreadable. */
function joinParts(parts: readonly unknown[]): unknown {
  if (parts.some((part) => typeof part !== 'string')) return {parts}
  return parts.filter((part) => /\S/.test(String(part))).join(', ') || null
}

/** Objects on the way are copied, and go once they hold nothing else. */
function remove(record: WireRecord, [name = '', ...rest]: readonly string[]): void {
  const value = Object.hasOwn(record, name) ? record[name] : undefined
  const isWithin = rest.length > 0
  if (isWithin && value !== null && !isObject(value)) return
  const inner = isWithin ? {...Object(value)} : {}
  if (isWithin) remove(inner, rest)
  if (Object.keys(inner).length > 0) record[name] = inner
  else delete record[name]
}

/** Reads a field's non-null values. An unreadable value becomes an object, which the contract rejects. */
function readerOf(field: FieldDescription, type: string): (value: unknown) => unknown {
  const {unit, values = {}, timeZone, epoch} = field
  if (unit === 'cents') return readCents
  if (type === 'DECIMAL(18,2)') return readDollars
  if (epoch !== undefined) return (value) => readEpoch(value, epoch === 'seconds' ? 1000 : 1)
  if (timeZone !== undefined) return (value) => readLocal(value, timeZone)
  return (value) => {
    const isNumber = Number.isSafeInteger(value)
    const named = isNumber || typeof value === 'boolean' ? String(value) : value
    if (typeof named === 'string' && Object.hasOwn(values, named)) return values[named]
    return isNumber ? named : value
  }
}

function readCents(value: unknown): unknown {
  const text = Number.isSafeInteger(value) ? String(value) : value
  return typeof text === 'string' && /^-?\d{1,18}$/.test(text)
    ? formatCents(BigInt(text))
    : {whole_cents: value}
}

/** Removes separators of thousands. */
function readDollars(value: unknown): unknown {
  const isGrouped = typeof value === 'string' && /^\s*\d{1,3}(,\d{3})+(\.\d*)?\s*$/.test(value)
  return isGrouped ? value.replaceAll(',', '') : value
}

function readEpoch(value: unknown, unitMs: number): unknown {
  const isText = typeof value === 'string' && /^\d{1,15}$/.test(value)
  const number = isText || typeof value === 'number' ? Number(value) : Number.NaN
  const instant = new Date(Math.round(number * unitMs))
  return Number.isNaN(instant.getTime()) ? {since_1970: value} : instant.toISOString()
}

const LOCAL = /^(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}(?::\d{2})?)(\.\d{1,9})?$/

/** A time without an offset becomes an instant; dates and instants stay as they are. */
function readLocal(value: unknown, timeZone: string): unknown {
  const text = typeof value === 'string' ? value.trim() : ''
  if (isCalendarDate(text) || parseInstant(text) !== null) return text
  const [, date, time, fraction = ''] = LOCAL.exec(text) ?? []
  const wall = parseInstant(`${date}T${time}Z`)
  if (wall === null) return {time: value}
  const at = Number(wall / 1000n)
  const instants = instantsOfWallTime(at, timeZone)
  // A skipped time moves forward by the length of the gap.
  const instant = instants.find((one) => wallTimeOf(one, timeZone) === at) ?? instants[1]
  return `${new Date(instant).toISOString().slice(0, 19)}${fraction}Z`
}
