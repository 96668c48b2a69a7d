import {z} from 'zod'
import {isCalendarDate, parseInstant} from '../clock.ts'

/** Years that are written with four digits in every table and file, in microseconds since the epoch: 0001 to 9999. */
const FIRST = BigInt(Date.parse('0001-01-01')) * 1000n
const BEYOND = BigInt(Date.parse('9999-12-31')) * 1000n + 86_400_000_000n

/**
 * An instant (UTC where it has no offset) of the years 0001 to 9999, or a date only, kept as that date: microseconds since
 * the epoch, and what they were given as.
 */
export const instantOrDate = z.string().transform((text, context) => {
  const precision: 'date' | 'instant' = isCalendarDate(text) ? 'date' : 'instant'
  const micros = parseInstant(precision === 'date' ? `${text}T00:00Z` : text) ?? parseInstant(`${text}Z`)
  if (micros !== null && micros >= FIRST && micros < BEYOND) return {micros, precision}
  context.addIssue({
    code: 'custom',
    message: 'expected an ISO 8601 timestamp or date of the years 0001 to 9999',
  })
  return z.NEVER
})
