import {z} from 'zod'
import {idField} from '../contract/fields.ts'
import {childIdOf, optionalColumnsOf, type Stream} from '../contract/stream.ts'
import {FIELD_NAME, tellForeign} from '../foreign.ts'
import {isObject, listRepeated} from '../json.ts'
import type {NormalisedPage, Observation, Quarantined} from '../types.ts'
import {createSealer} from './private-fields.ts'
import {createMappedReader} from './read-mapped.ts'

/**
 * Turns wire records of one stream into observations.
 *
 * @param parentId the record whose list they stood in; without it a child's own parent field says so
 */
export type Normaliser = (
  records: readonly unknown[],
  observedAt: bigint,
  parentId?: string,
) => NormalisedPage

/**
 * Creates the normaliser of a stream: a tolerant reader that only names unknown fields and sets aside,
 * whole, each record whose id, amounts or dates it cannot read. Of streams that may hold personal data both are sealed.
 *
 * @param hashKey needed by streams with hashed fields
 */
export function createNormaliser(stream: Stream, hashKey?: string): Normaliser {
  const normalise = createRecordNormaliser(stream)
  const seal = createSealer(stream, hashKey)
  return (records, observedAt, parentId) => {
    const page: NormalisedPage = {observations: [], quarantined: []}
    for (const [position, record] of records.entries()) {
      const placed = placeUnder(seal(record), stream, parentId)
      const twice = listRepeated(record)
      const result = twice[0]
        ? rejectRepeated(placed, twice, stream, observedAt)
        : normalise(placed, observedAt)
      if ('reason' in result) page.quarantined.push({...result, position})
      else page.observations.push(result)
    }
    return page
  }
}

/** Which of two values is meant nobody knows. What is sealed would show one of them alone. */
function rejectRepeated(
  record: unknown,
  [twice = [], ...more]: readonly (string | number)[][],
  stream: Stream,
  observedAt: bigint,
): Omit<Quarantined, 'position'> {
  const isOfId = [twice, ...more].some((path) => path.length === 1 && path[0] === stream.idField)
  return {
    id: isOfId ? null : readId(record, stream),
    path: twice.map((name) => (typeof name === 'string' ? tellForeign(name, FIELD_NAME) : name)).join('.'),
    reason: 'expected each name once in an object',
    record: stream.privacy ? null : record,
    observedAt,
  }
}

/** The list a child stands in says whose it is; a record that names another parent is left to contradict it. */
function placeUnder(record: unknown, {parent}: Stream, parentId: string | undefined): unknown {
  if (!parent || parentId === undefined || !isObject(record)) return record
  const named = record[parent.column]
  const isAgreed = named === undefined || named === null || named === parentId
  return {...record, [parent.column]: isAgreed ? parentId : {listed_under: parentId}}
}

function createRecordNormaliser(
  stream: Stream,
): (record: unknown, observedAt: bigint) => Observation | Omit<Quarantined, 'position'> {
  const columns = stream.columns.map((column) => column.name)
  const optional = optionalColumnsOf(stream).map((column) => column.name)
  const known = new Set(stream.wireFields)
  const schema = z.compile(stream.schema)
  const readMapped = stream.mapped?.length ? createMappedReader(stream.mapped) : undefined
  return (record, observedAt) => {
    const parsed = schema.safeParse(record)
    if (!parsed.success) {
      const issue = parsed.error.issues[0]
      return {
        id: readId(record, stream),
        path: issue?.path.join('.') || '(record)',
        reason: issue?.message ?? 'unreadable',
        record,
        observedAt,
      }
    }
    const values = columns.map((name) => parsed.data[name] ?? null)
    const present = optional.map((name) => parsed.data[name] !== undefined)
    return {
      id: String(parsed.data[stream.idColumn]),
      values,
      present,
      unknownFields: listUnknownFields(record, known),
      observedAt,
      mapped: readMapped?.(record),
    }
  }
}

function isId(value: unknown): value is string {
  return idField.safeParse(value).success
}

function readId(record: unknown, {idField, parent}: Stream): string | null {
  if (!isObject(record)) return null
  const id = record[idField]
  if (!isId(id)) return null
  if (!parent) return id
  const parentId = record[parent.column]
  return isId(parentId) ? childIdOf(parentId, id) : null
}

/** The paths of the fields the contract does not know, one level deep, never what they hold; null where there are none. */
function listUnknownFields(record: unknown, known: ReadonlySet<string>): string | null {
  if (!isObject(record)) return null
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
