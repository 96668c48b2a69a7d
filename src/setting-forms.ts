import {z} from 'zod'

/** A decimal number within bounds, as text. */
export const number = (low: number, high: number) =>
  z
    .string()
    .regex(/^\d+(\.\d+)?$/, `expected a number from ${low} to ${high}`)
    .transform(Number)
    .pipe(z.number().min(low, `expected at least ${low}`).max(high, `expected at most ${high}`))

/** A whole number within bounds, as text. */
export const integer = (low: number, high: number) =>
  z
    .string()
    .regex(/^\d+$/, `expected a whole number from ${low} to ${high}`)
    .transform(Number)
    .pipe(z.number().min(low, `expected at least ${low}`).max(high, `expected at most ${high}`))

/** A text without spaces that nobody should see. */
export const secret = (least: number) =>
  z
    .string()
    .regex(/^[\x21-\x7e]+$/, 'expected printable characters without spaces')
    .min(least, `expected ${least} characters at least`)
    .optional()

/** A secret of signed webhooks. */
export const webhookSecret = () =>
  z
    .string()
    .regex(
      /^whsec_(?:[A-Za-z0-9+/]{4}){8,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/,
      'expected whsec_ and at least 24 bytes in base64',
    )
    .optional()
