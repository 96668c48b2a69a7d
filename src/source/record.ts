import {createHmac} from 'node:crypto'
import {z} from 'zod'
import {EXPECTED_OF} from '../contract/description.ts'
import type {MappedField} from '../contract/mapped-field.ts'
import {childIdOf, idField, instantOrDate, type Stream, sourceText} from '../contract/stream.ts'
import {formatInstant} from '../core/clock.ts'
import {expectationOf} from '../core/errors.ts'
import {findValue, isObject, listRepeated} from '../core/json.ts'
import {FIELD_NAME, tellForeign, tellPath} from '../core/text.ts'
import type {NormalisedPage, Observation, Quarantined, WireRecord} from '../core/types.ts'

/**
 * Turns wire records of a stream into observations. Records about people must be sealed first. Names unknown fields and sets
 * aside each record it cannot read. `parentId` is the record whose list they are from.
 */
export function createNormaliser(stream: Stream) {
  const known = new Set(stream.wireFields)
  const schema = z.compile(stream.schema)
  const readMapped = stream.mapped?.length ? createMappedReader(stream.mapped) : undefined

  function normalise(
    record: unknown,
    observedAt: bigint,
    parentId: string | undefined,
  ): Observation | Omit<Quarantined, 'position'> {
    const parsed = schema.safeParse(record)
    if (!parsed.success) {
      const [issue = {path: [], message: 'unreadable'}] = parsed.error.issues
      const [translated = ''] = Object.keys(Object(findValue(record, issue.path.map(String))))
      const isElsewhere = parentId !== undefined && issue.path[0] === stream.parent?.column
      return {
        id: readId(record, stream),
        path: issue.path.join('.') || '(record)',
        reason: isElsewhere
          ? 'expected the deal whose list it is in'
          : (EXPECTED_OF.get(translated) ?? expectationOf(issue)),
        observedAt,
      }
    }
    return {
      id: String(parsed.data[stream.idColumn]),
      fields: parsed.data,
      unknownFields: listUnknownFields(Object(record), known),
      observedAt,
      mapped: readMapped?.(record),
    }
  }

  return (records: readonly unknown[], observedAt: bigint, parentId?: string): NormalisedPage => {
    const page: NormalisedPage = {observations: [], quarantined: []}
    for (const [position, record] of records.entries()) {
      const placed = placeUnder(record, stream, parentId)
      const twice = listRepeated(record)
      const result = twice[0]
        ? rejectRepeated(placed, twice, stream, observedAt)
        : normalise(placed, observedAt, parentId)
      if ('reason' in result) page.quarantined.push({...result, position})
      else page.observations.push(result)
    }
    return page
  }
}

/** Nobody knows which value is meant. */
function rejectRepeated(
  record: unknown,
  [twice = [], ...more]: readonly (string | number)[][],
  stream: Stream,
  observedAt: bigint,
): Omit<Quarantined, 'position'> {
  const isOfId = [twice, ...more].some((path) => path.length === 1 && path[0] === 'id')
  return {
    id: isOfId ? null : readId(record, stream),
    path: tellPath(twice),
    reason: 'expected each name once in an object',
    observedAt,
  }
}

/** If a child names another parent than the list's, the field becomes unreadable. */
function placeUnder(record: unknown, {parent}: Stream, parentId: string | undefined): unknown {
  if (!parent || parentId === undefined || !isObject(record)) return record
  const named = record[parent.column]
  const isAgreed = named === undefined || named === null || named === parentId
  return {...record, [parent.column]: isAgreed ? parentId : {listed_under: parentId}}
}

function isId(value: unknown): value is string {
  return idField.safeParse(value).success
}

function readId(record: unknown, {parent}: Stream): string | null {
  if (!isObject(record) || !isId(record.id)) return null
  if (!parent) return record.id
  const parentId = record[parent.column]
  return isId(parentId) ? childIdOf(parentId, record.id) : null
}

/** One level deep and without values; null if there are none. */
function listUnknownFields(record: WireRecord, known: ReadonlySet<string>): string | null {
  const paths: string[] = []
  for (const name in record) {
    if (known.has(name)) continue
    const value = record[name]
    const inner = isObject(value) ? Object.keys(value) : []
    const told = tellForeign(name, FIELD_NAME)
    paths.push(...(inner.length > 0 ? inner.map((key) => `${told}.${tellForeign(key, FIELD_NAME)}`) : [told]))
  }
  return paths.length > 0 ? paths.join('\n') : null
}

const HASHED = /^hmac-sha256:[0-9a-f]{64}$/

/**
 * Removes personal data from the records of a stream before anything else sees them. Hashed fields become `hmac-sha256:…`,
 * dropped fields are removed, and unknown fields keep only their names. Anything but an object becomes null; so does a record
 * that repeats a name. Sealing twice changes nothing.
 */
export function createSealer(
  {privacy, wireFields, plural}: Stream,
  key: string | undefined,
): (record: unknown) => unknown {
  if (privacy?.hashed.length && key === undefined)
    throw new Error(`no key for the personal fields of ${plural}`)
  const hashed = new Set(privacy?.hashed)
  const dropped = new Set(privacy?.dropped)
  const known = new Set(wireFields)
  return (record) => {
    if (!isObject(record) || listRepeated(record).length > 0) return null
    const sealed = Object.entries(record).flatMap(([name, value]): [string, unknown][] => {
      if (dropped.has(name)) return []
      if (hashed.has(name)) return [[name, hashField(value, key ?? '')]]
      return [[name, known.has(name) ? sealKnown(value) : null]]
    })
    return Object.fromEntries(sealed) satisfies WireRecord
  }
}

/** Fields of the contract are plain values; an object in place of one could hold anything. */
function sealKnown(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? {} : value
}

/** Addresses that differ only in case or surrounding spaces belong to one person and hash alike. Anything but text becomes null. */
function hashField(value: unknown, key: string): string | null {
  if (typeof value !== 'string' || value.trim() === '') return null
  if (HASHED.test(value)) return value
  const canonical = value.trim().normalize('NFC').toLowerCase()
  return `hmac-sha256:${createHmac('sha256', key).update(canonical).digest('hex')}`
}

/** Undefined if the value does not fit the column. */
type Reader = (value: unknown) => string | undefined

/** Reads mapped fields as JSON text, or null if a record has none. A value that does not fit is unreadable. */
export function createMappedReader(fields: readonly MappedField[]): (record: unknown) => string | null {
  const readers = fields.map(({name, path, type}) => ({name, path, read: readerOf(type)}))
  return (record) => {
    const values = readers.flatMap(({name, path, read}) => {
      const value = findValue(record, path, null)
      if (value === undefined) return []
      const text = value === null ? null : read(value)
      return [{name, value: text ?? null, is_readable: text !== undefined}]
    })
    return values.length > 0 ? JSON.stringify(values) : null
  }
}

function readerOf(type: string): Reader {
  const [, digits, decimals] = /^decimal\((\d+),(\d+)\)$/.exec(type) ?? []
  if (digits !== undefined) return (value) => readDecimal(value, Number(digits), Number(decimals))
  return READERS[type] ?? (() => undefined)
}

const READERS: Readonly<Record<string, Reader>> = {
  // JSON for the engine must not hold lone surrogates.
  varchar: (value) =>
    sourceText.safeParse(typeof value === 'number' ? readNumber(value) : value).data?.toWellFormed(),
  bigint: (value) => readDecimal(value, 18, 0),
  boolean: (value) => (typeof value === 'boolean' ? String(value) : undefined),
  date(value) {
    const [, day] = typeof value === 'string' ? (MIDNIGHT.exec(value) ?? []) : []
    return instantOrDate.safeParse(day).success ? day : undefined
  },
  timestamp(value) {
    const dated = instantOrDate.safeParse(value).data
    return dated && formatInstant(dated.micros).slice(0, -1)
  },
}

/** A date, alone or as midnight in some zone. */
const MIDNIGHT = /^(\d{4}-\d{2}-\d{2})(?:[T ]00:00(?::00(?:\.0+)?)?\s*(?:Z|[+-]\d{2}:?\d{2})?)?$/

/** Undefined if a double may have rounded the number. */
function readNumber(value: number): string | undefined {
  return Math.abs(value) <= Number.MAX_SAFE_INTEGER ? String(value) : undefined
}

/** Each zero can match in one place only: otherwise a long text of zeros would take minutes. */
const DECIMAL = /^([+-]?)0*(?!0)(\d*)(?:\.((?:\d*[1-9])?)0*)?$/

function readDecimal(value: unknown, digits: number, decimals: number): string | undefined {
  const text = typeof value === 'number' ? readFixed(value, decimals) : value
  const match = typeof text === 'string' ? DECIMAL.exec(text.trim()) : null
  const [, sign = '', whole = '', fraction = ''] = match ?? []
  const isNumber = match !== null && /\d/.test(match[0])
  if (!isNumber || whole.length > digits - decimals || fraction.length > decimals) return undefined
  const number = `${whole || '0'}.${fraction.padEnd(decimals, '0')}`
  return (sign === '-' ? '-' : '') + (decimals === 0 ? whole || '0' : number)
}

/** Undefined unless it is exact: a double holds about 15 digits. */
function readFixed(value: number, decimals: number): string | undefined {
  if (Math.abs(value) * 10 ** decimals > Number.MAX_SAFE_INTEGER) return undefined
  const text = value.toFixed(decimals)
  return [value, Number(value.toPrecision(15))].includes(Number(text)) ? text : undefined
}
