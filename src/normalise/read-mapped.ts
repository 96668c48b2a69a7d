import {formatInstant} from '../clock.ts'
import {sourceText} from '../contract/fields.ts'
import {instantOrDate} from '../contract/instant-or-date.ts'
import type {MappedField} from '../contract/mapped-field.ts'
import {findValue} from '../json.ts'

/** What of a value becomes a column's, as text that the engine takes for it; undefined where it is none. */
type Reader = (value: unknown) => string | undefined

/** What a record said of one mapped field. */
interface MappedValue {
  /** The column. */
  name: string
  /** Null when null or unreadable. */
  value: string | null
  is_readable: boolean
}

/**
 * Creates a reader of mapped fields: what a record says of them as JSON text, null where it names none. A value that does not fit
 * the type of its column is unreadable, and the record counts all the same.
 */
export function createMappedReader(fields: readonly MappedField[]): (record: unknown) => string | null {
  const readers = fields.map(({name, path, type}) => ({name, path, read: readerOf(type)}))
  return (record) => {
    const values: MappedValue[] = []
    for (const {name, path, read} of readers) {
      const value = findValue(record, path)
      if (value === undefined) continue
      const text = value === null ? null : read(value)
      values.push({name, value: text ?? null, is_readable: text !== undefined})
    }
    return values.length > 0 ? JSON.stringify(values) : null
  }
}

function readerOf(type: string): Reader {
  const [, digits, decimals] = /^decimal\((\d+),(\d+)\)$/.exec(type) ?? []
  if (digits !== undefined) return (value) => readDecimal(value, Number(digits), Number(decimals))
  return READERS[type] ?? (() => undefined)
}

const READERS: Readonly<Record<string, Reader>> = {
  varchar: (value) => sourceText.safeParse(typeof value === 'number' ? readNumber(value) : value).data,
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

/** A date, alone or as many services write one: the midnight with which it begins somewhere. */
const MIDNIGHT = /^(\d{4}-\d{2}-\d{2})(?:[T ]00:00(?::00(?:\.0+)?)?\s*(?:Z|[+-]\d{2}:?\d{2})?)?$/

/** A number as text, where it is the one that was sent: a double may hold another one. */
function readNumber(value: number): string | undefined {
  return Math.abs(value) <= Number.MAX_SAFE_INTEGER ? String(value) : undefined
}

function readDecimal(value: unknown, digits: number, decimals: number): string | undefined {
  const text = typeof value === 'number' ? readFixed(value, decimals) : value
  const match = typeof text === 'string' ? /^([+-]?)0*(\d*)(?:\.(\d*?)0*)?$/.exec(text.trim()) : null
  const [, sign = '', whole = '', fraction = ''] = match ?? []
  const isNumber = match !== null && /\d/.test(match[0])
  if (!isNumber || whole.length > digits - decimals || fraction.length > decimals) return undefined
  const number = `${whole || '0'}.${fraction.padEnd(decimals, '0')}`
  return (sign === '-' ? '-' : '') + (decimals === 0 ? whole || '0' : number)
}

/** A number with so many decimals, where that is all of it: of the digits a double holds the 16th may be its own. */
function readFixed(value: number, decimals: number): string | undefined {
  if (Math.abs(value) * 10 ** decimals > Number.MAX_SAFE_INTEGER) return undefined
  const text = value.toFixed(decimals)
  return [value, Number(value.toPrecision(15))].includes(Number(text)) ? text : undefined
}
