import {z} from 'zod'
import {isCalendarDate, parseInstant} from '../core/clock.ts'
import {LARGEST_EXACT_NUMBER, parseCents} from '../core/money.ts'
import type {ColumnValue} from '../core/types.ts'
import type {MappedField} from './mapped-field.ts'

const LONGEST_SOURCE_TEXT = 8192

/** Text of the source. PostgreSQL, workbooks and accounting programs accept neither NUL nor longer text. */
export const sourceText = z
  .string()
  .refine((text) => !text.includes('\0'), 'expected text without NUL')
  .refine(
    (text) => text.length <= LONGEST_SOURCE_TEXT,
    `expected at most ${LONGEST_SOURCE_TEXT} characters of text`,
  )

/** An id of the source. Lone surrogates are stored as U+FFFD, so ids that differ only in them would collide. */
export const idField = sourceText
  .refine((id) => id !== '', 'expected an id')
  .refine((id) => id.isWellFormed(), 'expected well-formed Unicode')

// Ranges, not classes such as \p{Cc}: the patterns are part of the OpenAPI description, and few languages know all classes.
const CONTROLS = String.raw`\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f`
const SPACES = String.raw`\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff`
const VISIBLE_TEXT = new RegExp(`^[${SPACES}]*[^${CONTROLS}${SPACES}][^${CONTROLS}]*$`)

/** Trimmed text for people: not blank, without control characters or lone surrogates. `max` counts code points. */
export function textField(max: number) {
  return z
    .string()
    .regex(VISIBLE_TEXT, 'expected text that is not blank, without control characters')
    .refine((text) => text.isWellFormed(), 'expected well-formed Unicode')
    .refine((text) => text.length <= max || [...text].length <= max, `expected at most ${max} characters`)
    .trim()
    .meta({minLength: 1, maxLength: max})
}

/** A word of an open vocabulary: `appraisal`, `rate_provider_1`. */
export const wordField = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,63}$/, 'expected lower-case letters, digits and underscores')

/** Dollars as a JSON number with exact cents. */
export const moneyField = z
  .number()
  .max(LARGEST_EXACT_NUMBER, {
    abort: true,
    message: `expected at most ${LARGEST_EXACT_NUMBER}: above it, a number carries no exact cents`,
  })
  .superRefine((value, context) => {
    const parsed = parseCents(value)
    if (typeof parsed === 'string') context.addIssue({code: 'custom', message: parsed})
  })
  .meta({description: 'Dollars with at most 2 decimals.', minimum: 0, maximum: LARGEST_EXACT_NUMBER})

/** An instant as the service writes it: ISO 8601, UTC, milliseconds. */
export const instantField = z
  .string()
  .regex(/^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$/)
  .meta({format: 'date-time'})

export const dateField = z
  .string()
  .refine(isCalendarDate, 'expected a calendar date, YYYY-MM-DD')
  .meta({format: 'date'})

const EXPECTED_TIME = 'expected an ISO 8601 timestamp or date of the years 0001 to 9999'

/** A text without an offset is UTC. Returns microseconds since the epoch, and which of both it was. */
export const instantOrDate = z.string(EXPECTED_TIME).transform((text, context) => {
  const precision: 'date' | 'instant' = isCalendarDate(text) ? 'date' : 'instant'
  const micros = parseInstant(precision === 'date' ? `${text}T00:00Z` : text) ?? parseInstant(`${text}Z`)
  if (micros !== null) return {micros, precision}
  context.addIssue({code: 'custom', message: EXPECTED_TIME})
  return z.NEVER
})

export interface Column {
  name: string
  type: 'VARCHAR' | 'DECIMAL(18,2)' | 'TIMESTAMP'
  /** Stored as sent, but compared trimmed and in lower case. */
  isCanonical?: true
  /** A blank text counts as absent. */
  mayBeBlank?: true
  /** The source may omit the field; tables then have a boolean `<name>_present` beside it. */
  mayBeAbsent?: true
  /** Says whether the source gave an `instant` or a `date`. A date never replaces an instant that is of it in some zone. */
  precisionColumn?: string
}

export interface Vocabulary {
  column: string
  /** The values of the contract; null if every value stored so far is expected. */
  known: readonly string[] | null
}

/** Source, sync and store are written for any stream. */
export interface Stream {
  /** Used in table names: `raw.<name>_version`, `raw.<name>_head`. */
  name: string
  /** Used in messages and in `LOANTAPE_STREAMS`. */
  plural: string
  /** Each of its records has a list of these. `column` holds the parent's id; a wire field of the same name may hold it too. */
  parent?: {stream: Stream; column: string}
  idColumn: string
  /** Relative to the base URL; `{id}` stands for the parent's id. */
  listPath: string
  /** Typed columns without the id, in table order. */
  columns: readonly Column[]
  /** The wire fields of the contract that are kept. All others but those dropped are drift: only their names are kept. */
  wireFields: readonly string[]
  /** Fields outside the contract whose values are kept in `raw.<name>_extra`. Streams of people have none. */
  mapped?: readonly MappedField[]
  /** For records of or about people: wire fields that become a keyed hash, and wire fields that are dropped. */
  privacy?: {hashed: readonly string[]; dropped: readonly string[]}
  /** The column whose sum is the stream's control total. */
  amountColumn?: string
  /** New values are reported as drift. */
  vocabularies: readonly Vocabulary[]
  /**
   * The column that tells whether a record is settled, and the word for that. A guard watches records that become settled or stop
   * being so; their details and child lists come first. The caller of a run says which values mean settled or ended.
   */
  settled?: {column: string; word: string}
  /** An optional column whose value on a record's own page is always kept: in `raw.<name>_confirmation` if it changes nothing. */
  confirmed?: string
  /** Includes the id. An absent field stays undefined. */
  schema: z.ZodType<Record<string, ColumnValue | undefined>>
}

/** For an id that is unique only within its parent. Both may hold a slash; the first is ours. */
export function childIdOf(parentId: string, id: string): string {
  return `${parentId.replaceAll(/[%/]/g, encodeURIComponent)}/${id}`
}

export function optionalColumnsOf(stream: Stream): Column[] {
  return stream.columns.filter((column) => column.mayBeAbsent)
}
