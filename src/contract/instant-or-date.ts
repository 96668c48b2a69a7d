import {z} from 'zod'
import {isCalendarDate, parseInstant} from '../clock.ts'

/** Microseconds since the epoch, and what they were given as. */
export interface Dated {
  micros: bigint
  precision: 'instant' | 'date'
}

/** An instant (UTC where it has no offset), or a date only, kept as that date. */
export const instantOrDate: z.ZodType<Dated> = z.string().transform((text, context): Dated => {
  if (isCalendarDate(text)) return {micros: BigInt(Date.parse(text)) * 1000n, precision: 'date'}
  const micros = parseInstant(text) ?? parseInstant(`${text}Z`)
  if (micros !== null) return {micros, precision: 'instant'}
  context.addIssue({code: 'custom', message: 'expected an ISO 8601 timestamp or date'})
  return z.NEVER
})
