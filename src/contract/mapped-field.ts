import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {parseWritten, type Refuse} from '../core/json.ts'

/** A field of deals that the contract does not know, and the column it becomes. */
export interface MappedField {
  name: string
  path: readonly string[]
  /** The SQL type of the column, as {@link sqlTypeOf} gives it. */
  type: string
  meaning: string
}

export interface KnownField extends MappedField {
  /** The first `recorded_at` for which its values are stored; null if they are stored for all rows. */
  since: string | null
}

export function isSameMapping(a: readonly MappedField[], b: readonly MappedField[]): boolean {
  const textOf = (fields: readonly MappedField[]) =>
    JSON.stringify(fields.map(({name, path, type, meaning}) => [name, path, type, meaning]))
  return textOf(a) === textOf(b)
}

/** Columns that the tables of mapped fields already have, and keywords of a model's header. */
const TAKEN = new Set([
  ...['deal_id', 'version', 'valid_from', 'valid_to', 'business_date', 'unreadable'],
  ...['observed_at', 'recorded_at', 'seq', 'name', 'value', 'is_readable'],
  ...['grain', 'check'],
])

const TYPES: Readonly<Record<string, string>> = {
  text: 'varchar',
  integer: 'bigint',
  boolean: 'boolean',
  date: 'date',
  timestamp: 'timestamp',
  varchar: 'varchar',
  bigint: 'bigint',
}
const decimalType = /^decimal\((\d{1,2}),\s*(\d{1,2})\)$/

/** For messages; `others` are types that only the caller knows. */
export const expectType = (...others: string[]) =>
  `${[...Object.keys(TYPES), ...others].join(', ')} or decimal(digits,decimals) of up to 18 digits`

/** `bigint` for `integer`; undefined for an unknown type. */
export function sqlTypeOf(type: string): string | undefined {
  const [, digits, decimals] = decimalType.exec(type) ?? []
  const isDecimal = Number(digits) > 0 && Number(digits) <= 18 && Number(decimals) <= Number(digits)
  if (isDecimal) return `decimal(${digits},${decimals})`
  return Object.hasOwn(TYPES, type) ? TYPES[type] : undefined
}

const name = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,62}$/, 'expected a column name: lower-case letters, digits and underscores')
  .refine((text) => !TAKEN.has(text), 'expected a name that the tables do not use themselves')

const type = z.string().transform((text, context): string => {
  const known = sqlTypeOf(text)
  if (known === undefined) context.addIssue(`expected ${expectType()}`)
  return known ?? z.NEVER
})

const meaning = z
  .string()
  .max(500, 'expected at most 500 characters')
  .regex(/^[^\p{Cc}\p{Zl}\p{Zp}]+$/u, 'expected one line of text')
  .regex(/\S/, 'expected one line of text')

const part = z.string().regex(/^[^\p{Cc}\p{Zl}\p{Zp}]+$/u, 'expected a name in one line')
const DEEPEST_PATH = 20
const path = z
  .union([part.transform((text) => text.split('.')), z.array(part).min(1)])
  .refine(({length}) => length <= DEEPEST_PATH, `expected at most ${DEEPEST_PATH} names`)

/** Each field becomes a column of the release. */
const MOST_FIELDS = 200

const fieldsShape = z
  .record(name, z.strictObject({type, path: path.optional(), meaning: meaning.optional()}))
  .refine((fields) => Object.keys(fields).length <= MOST_FIELDS, `expected at most ${MOST_FIELDS} fields`)

/** `known` are the paths of what `core.deal` has. @throws ConfigError `FIELDS_FILE` naming every wrong field */
export function parseMappedFields(json: string, file: string, known: readonly string[]): MappedField[] {
  const refuse = refuseFields(file)
  const fields = Object.entries(parseWritten(json, refuse, fieldsShape)).map(([name, field]) => ({
    name,
    type: field.type,
    path: field.path ?? [name],
    meaning: field.meaning ?? '',
  }))
  const twice = fields.filter(({path}) => known.includes(path.join('.')))
  if (twice.length === 0) return fields.toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const named = twice.map(({name, path}) => `${name}: '${path.join('.')}' is a column of core.deal already`)
  throw refuse(named.join('; '))
}

export function refuseFields(file: string): Refuse {
  return (problem, cause) => newError('FIELDS_FILE', `Fields in '${file}': ${problem}.`, {cause})
}
