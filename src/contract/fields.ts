import {z} from 'zod'
import {isCalendarDate} from '../clock.ts'
import {parseCents} from '../money.ts'

const LONGEST_SOURCE_TEXT = 8192

/**
 * A text of the source: longer ones, and NUL, are what PostgreSQL, workbooks and the formats of accounting programs do not take.
 */
export const sourceText = z
  .string()
  .refine((text) => !text.includes('\0'), 'expected text without NUL')
  .refine(
    (text) => text.length <= LONGEST_SOURCE_TEXT,
    `expected at most ${LONGEST_SOURCE_TEXT} characters of text`,
  )

/** An id of the source. Half of a surrogate pair is stored as U+FFFD: ids that differ in it alone would be one. */
export const idField = sourceText
  .refine((id) => id !== '', 'expected an id')
  .refine((id) => id.isWellFormed(), 'expected well-formed Unicode')

// Ranges instead of classes such as \p{Cc}: the patterns stand in the API's description, and few languages know all classes.
const CONTROLS = String.raw`\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f`
const SPACES = String.raw`\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff`
const VISIBLE_TEXT = new RegExp(`^[${SPACES}]*[^${CONTROLS}${SPACES}][^${CONTROLS}]*$`)

/**
 * One line or several of text for people, not blank, trimmed: no control characters, no half of a surrogate pair.
 * `max` counts characters of Unicode, as JSON Schema does.
 */
export function textField(max: number) {
  return z
    .string()
    .regex(VISIBLE_TEXT, 'expected text that is not blank, without control characters')
    .refine((text) => text.isWellFormed(), 'expected well-formed Unicode')
    .refine((text) => text.length <= max || [...text].length <= max, `expected at most ${max} characters`)
    .trim()
    .meta({minLength: 1, maxLength: max})
}

/** A word of a vocabulary the service does not close: `appraisal`, `rate_provider_1`. */
export const wordField = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,63}$/, 'expected lower-case letters, digits and underscores')

/** Dollars as a JSON number with exact cents. */
export const moneyField = z
  .number()
  .superRefine((value, context) => {
    const parsed = parseCents(value)
    if (typeof parsed === 'string') context.addIssue({code: 'custom', message: parsed})
  })
  .meta({description: 'Dollars with at most 2 decimals.', minimum: 0, maximum: 7e13})

/** An instant as the service writes it: ISO 8601, UTC, milliseconds. */
export const instantField = z
  .string()
  .regex(/^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z$/)
  .meta({format: 'date-time'})

/** A calendar date, `YYYY-MM-DD`. */
export const dateField = z
  .string()
  .refine(isCalendarDate, 'expected a calendar date, YYYY-MM-DD')
  .meta({format: 'date'})
