import {isIP} from 'node:net'
import {z} from 'zod'

const within = (form: RegExp, what: string, low: number, high: number) =>
  z
    .string()
    .regex(form, `expected ${what} from ${low} to ${high}`)
    .transform(Number)
    .pipe(z.number().min(low, `expected at least ${low}`).max(high, `expected at most ${high}`))

/** A decimal number within bounds, as text. */
export const number = (low: number, high: number, fallback: number) =>
  within(/^\d+(\.\d+)?$/, 'a number', low, high).prefault(String(fallback))

/** A whole number within bounds, as text. */
export const integerWithin = (low: number, high: number) => within(/^\d+$/, 'a whole number', low, high)

/** The same where there is a default. */
export const integer = (low: number, high: number, fallback: number) =>
  integerWithin(low, high).prefault(String(fallback))

/** An address on the web that may be left out. */
export const webUrl = () => z.url({protocol: /^https?$/, error: 'expected an http or https URL'}).optional()

function isAddressRange(text: string): boolean {
  const [address = '', bits = '0', ...more] = text.split('/')
  const most = {4: 32, 6: 128}[isIP(address)] ?? -1
  return more.length === 0 && /^\d{1,3}$/.test(bits) && Number(bits) <= most
}

/** Addresses or ranges of them, with commas. */
export const addressRanges = () =>
  z
    .string()
    .refine(
      (text) => text.split(/\s*,\s*/).every(isAddressRange),
      'expected addresses or ranges such as 10.0.0.0/8, with commas',
    )
    .optional()

/** A text without spaces that nobody should see. */
export const secret = (least: number) =>
  z
    .string()
    .regex(/^[\x21-\x7e]+$/, 'expected printable characters without spaces')
    .min(least, `expected ${least} characters at least`)
    .optional()

const WEBHOOK_SECRET = /^whsec_(?:[A-Za-z0-9+/]{4}){8,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

/** Secrets of signed webhooks, with commas. */
export const webhookSecrets = () =>
  z
    .string()
    .refine(
      (text) => text.split(/\s*,\s*/).every((secret) => WEBHOOK_SECRET.test(secret)),
      'expected whsec_ and at least 24 bytes in base64; two with a comma',
    )
    .optional()
