import {z} from 'zod'
import {isCalendarDate} from '../clock.ts'
import {parseCents} from '../money.ts'

/** An id of the source. Half of a surrogate pair is stored as U+FFFD: ids that differ in it alone would be one. */
export const idField: z.ZodType<string> = z
  .string()
  .min(1)
  .refine((id) => id.isWellFormed(), 'expected well-formed Unicode')

/** One line or several of text for people, trimmed: no control characters, no half of a surrogate pair. */
export function textField(max: number): z.ZodType<string> {
  return z
    .string()
    .trim()
    .min(1)
    .max(max)
    .regex(/^(?:[^\p{Cc}\p{Cs}]|[\t\n\r])*$/u, 'expected text without control characters')
}

/** A word of a vocabulary the service does not close: `appraisal`, `rate_provider_1`. */
export const wordField: z.ZodType<string> = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,63}$/, 'expected lower-case letters, digits and underscores')

/** Dollars as a JSON number with exact cents. */
export const moneyField: z.ZodType<number> = z
  .number()
  .superRefine((value, context) => {
    const parsed = parseCents(value)
    if (typeof parsed === 'string') context.addIssue({code: 'custom', message: parsed})
  })
  .meta({description: 'Dollars with at most 2 decimals.', minimum: 0, maximum: 7e13})

/** An instant as the service writes it: ISO 8601, UTC, milliseconds. */
export const instantField: z.ZodType<string> = z
  .string()
  .regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
  .meta({format: 'date-time'})

/** A calendar date, `YYYY-MM-DD`. */
export const dateField: z.ZodType<string> = z
  .string()
  .refine(isCalendarDate, 'expected a calendar date, YYYY-MM-DD')
  .meta({format: 'date'})
