import {type LoantapeError, newError} from '../errors.ts'
import {FIELD_NAME, tellForeign} from '../foreign.ts'
import {isObject, listRepeated} from '../json.ts'
import type {WireRecord} from '../types.ts'

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
