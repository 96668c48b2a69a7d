import {z} from 'zod'
import {type LoantapeError, newError} from '../core/errors.ts'
import {describeIssues} from '../core/json.ts'

/** A field of a deal that the contract does not know, and the column it becomes. */
export interface MappedField {
  /** The column. */
  name: string
  /** The names that lead to it in the record. */
  path: readonly string[]
  /** Of the column, as SQL: `varchar`, `bigint`, `decimal(9,6)`, `boolean`, `date` or `timestamp`. */
  type: string
  meaning: string
}

/** A mapped field as the warehouse has it. */
export interface KnownField extends MappedField {
  /** Null where it is known of everything stored, else the `recorded_at` from which on it is. */
  since: string | null
}

/** Whether two mappings keep the same values. */
export function isSameMapping(a: readonly MappedField[], b: readonly MappedField[]): boolean {
  const told = (fields: readonly MappedField[]) =>
    JSON.stringify(fields.map(({name, path, type, meaning}) => [name, path, type, meaning]))
  return told(a) === told(b)
}

/** Columns that the tables of mapped fields and what they are made of have anyway, and what else begins a line of a model's header. */
const TAKEN = new Set([
  ...['deal_id', 'version', 'valid_from', 'valid_to', 'business_date', 'unreadable'],
  ...['observed_at', 'recorded_at', 'seq', 'name', 'value', 'is_readable'],
  ...['grain', 'check', 'depends_on'],
])

const TYPES: Readonly<Record<string, string>> = {
  text: 'varchar',
  integer: 'bigint',
  boolean: 'boolean',
  date: 'date',
  timestamp: 'timestamp',
}
const decimalType = /^decimal\((\d{1,2}),\s*(\d{1,2})\)$/

const name = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,62}$/, 'expected a column name: lower-case letters, digits and underscores')
  .refine((text) => !TAKEN.has(text), 'expected a name that the tables do not use themselves')

const type = z.string().transform((text, context): string => {
  const known = Object.hasOwn(TYPES, text) ? TYPES[text] : undefined
  if (known !== undefined) return known
  const [, digits, decimals] = decimalType.exec(text) ?? []
  if (Number(digits) > 0 && Number(digits) <= 18 && Number(decimals) <= Number(digits))
    return `decimal(${digits},${decimals})`
  context.addIssue(`expected ${Object.keys(TYPES).join(', ')} or decimal(digits,decimals) of up to 18 digits`)
  return z.NEVER
})

const meaning = z
  .string()
  .max(500, 'expected at most 500 characters')
  .regex(/^\P{Cc}*\S\P{Cc}*$/u, 'expected one line of text')

const part = z.string().regex(/^\P{Cc}+$/u, 'expected a name without control characters')
const DEEPEST_PATH = 20
const path = z
  .union([part.transform((text) => text.split('.')), z.array(part).min(1)])
  .refine(({length}) => length <= DEEPEST_PATH, `expected at most ${DEEPEST_PATH} names`)

/** Each field is a column of the release. */
const MOST_FIELDS = 200

const fieldsShape = z
  .record(name, z.strictObject({type, path: path.optional(), meaning: meaning.optional()}))
  .refine((fields) => Object.keys(fields).length <= MOST_FIELDS, `expected at most ${MOST_FIELDS} fields`)

/**
 * Reads `fields.json`: the column of each field, with its `type`, where it stands in a record (`path`, by default a field of
 * that name) and what it means.
 *
 * @param known the wire fields that the contract knows
 * @throws ConfigError `FIELDS_FILE` naming the file and every field that is wrong
 */
export function parseMappedFields(json: string, file: string, known: readonly string[]): MappedField[] {
  let content: unknown
  try {
    content = JSON.parse(json.replace(/^\uFEFF/, ''))
  } catch (cause) {
    throw createFieldsError(file, 'expected JSON', cause)
  }
  const parsed = fieldsShape.safeParse(content)
  if (!parsed.success) {
    throw createFieldsError(file, describeIssues(parsed.error).join('; '))
  }
  const fields = Object.entries(parsed.data).map(([name, field]) => ({
    name,
    type: field.type,
    path: field.path ?? [name],
    meaning: field.meaning ?? '',
  }))
  const twice = fields.filter(({path: [first = ''], path}) => path.length === 1 && known.includes(first))
  if (twice.length === 0) return fields.toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const named = twice.map(({name, path}) => `${name}: '${path.join('.')}' is a column of core.deal already`)
  throw createFieldsError(file, named.join('; '))
}

/** The error of a `fields.json` that cannot be used. */
export function createFieldsError(file: string, problem: string, cause?: unknown): LoantapeError {
  return newError('FIELDS_FILE', `Fields in '${file}': ${problem}.`, {cause})
}
