import {createHmac} from 'node:crypto'
import type {Stream} from '../contract/stream.ts'
import {isObject} from '../json.ts'
import type {WireRecord} from '../types.ts'

const HASHED = /^hmac-sha256:[0-9a-f]{64}$/

/**
 * Creates what takes personal data out of the records of a stream, before anything else sees them: hashed fields become
 * `hmac-sha256:…`, dropped ones go, and of fields the contract does not know only the names stay. What is no object
 * becomes null. Sealing what is sealed changes nothing. Streams without privacy pass as they are.
 *
 * @param key of the hashes
 */
export function createSealer(
  {privacy, wireFields, plural}: Stream,
  key: string | undefined,
): (record: unknown) => unknown {
  if (!privacy) return (record) => record
  if (privacy.hashed.length > 0 && key === undefined) {
    throw new Error(`no key for the personal fields of ${plural}`)
  }
  const hashed = new Set(privacy.hashed)
  const dropped = new Set(privacy.dropped)
  const known = new Set(wireFields)
  return (record) => {
    if (!isObject(record)) return null
    const sealed = Object.entries(record).flatMap(([name, value]): [string, unknown][] => {
      if (dropped.has(name)) return []
      if (hashed.has(name)) return [[name, hashField(value, key ?? '')]]
      return [[name, known.has(name) ? sealKnown(value) : null]]
    })
    return Object.fromEntries(sealed) satisfies WireRecord
  }
}

/** Contract fields are plain values: an object in place of one could hold anything. */
function sealKnown(value: unknown): unknown {
  return typeof value === 'object' && value !== null ? {} : value
}

/** Addresses that differ in letter case or spaces around are one person's; what is no text identifies nobody. */
function hashField(value: unknown, key: string): string | null {
  if (typeof value !== 'string' || value.trim() === '') return null
  if (HASHED.test(value)) return value
  const canonical = value.trim().normalize('NFC').toLowerCase()
  return `hmac-sha256:${createHmac('sha256', key).update(canonical).digest('hex')}`
}
