import {type LoantapeError, newError, RetryableError} from '../errors.ts'
import {tellForeign} from '../foreign.ts'
import {parseJson} from '../json.ts'
import type {Received} from '../types.ts'
import type {ResponseHeaders} from './limit-headers.ts'
import type {LimitedAnswer} from './rate-limit.ts'
import {createTooLarge, type Target} from './retry.ts'

/** The text of a 2xx answer, or of a 4xx one that its caller must judge. */
export interface TextAnswer {
  status: number
  text: string
  /** Business instant at which the request that succeeded began, microseconds since the epoch. */
  observedAt: bigint
  /** Real instant at which the whole answer was there, ms since the epoch. */
  receivedAt: number
  received: Received
}

/** The same, parsed. */
export interface JsonAnswer extends Omit<TextAnswer, 'text'> {
  /** Null for a 4xx answer that is not JSON. */
  body: unknown
  /** Length of the body's text. */
  length: number
}

/** One request and its whole answer. */
export interface Exchange extends LimitedAnswer, TextAnswer {
  /** Whether the body is UTF-8; what is not stands in the text as U+FFFD. */
  isUtf8: boolean
}

/** Far more than any page has: a thousand records of a thousand values each. */
const MOST_VALUES = 1_000_000
const [QUOTE, COMMA, BRACKET, BRACE, BACKSLASH] = [0x22, 0x2c, 0x5b, 0x7b, 0x5c]

/** Request Timeout and Too Early (RFC 9110, RFC 8470): they are about the connection, not about what was asked. */
const NOT_NOW = new Set([408, 425])

/**
 * Judges a whole answer.
 *
 * @param base the base URL, against which a `Location` is read
 * @throws AuthError `SOURCE_UNAUTHORIZED`; ContractError `SOURCE_REDIRECTED`, `SOURCE_NOT_UTF8`, `SOURCE_TOO_LARGE`; RetryableError on 5xx,
 * 408, 425 and on what is not JSON
 */
export function parseAnswer(exchange: Exchange, target: Target, base: URL): JsonAnswer {
  const {status, headers, text, observedAt, receivedAt, received} = exchange
  requireServed(exchange, target, base)
  if (holdsMoreValues(text, MOST_VALUES)) throw createTooLarge(target, 'more than a million values')
  const body = parseJson(text)
  if (body === undefined && status < 300) throw createNotJson(headers)
  return {status, body: body ?? null, observedAt, receivedAt, length: text.length, received}
}

/**
 * Requires an answer that is no refusal, failure or redirect.
 *
 * @throws as {@link parseAnswer} does
 */
export function requireServed({status, headers, isUtf8}: Exchange, target: Target, base: URL): void {
  if (status === 401 || status === 403)
    throw newError(
      'SOURCE_UNAUTHORIZED',
      `API key refused with status ${status} by source '${target.host}' at GET ${target.path}: expected a key that may read it.`,
    )
  if (status >= 500 || NOT_NOW.has(status))
    throw new RetryableError({code: 'SOURCE_FAILING', problem: `status ${status}`})
  if (status >= 300 && status < 400) throw createRedirected(status, headers, {target, base})
  if (status < 300 && !isUtf8)
    // Read with marks in place of its bytes, two ids or amounts could become one.
    throw newError(
      'SOURCE_NOT_UTF8',
      `Answer of source '${target.host}' to GET ${target.path}: its bytes are not UTF-8, which JSON is written in.`,
    )
}

/** Whether a JSON text has more values than `most`. Parsed, a value takes up to a hundred bytes, written two. */
function holdsMoreValues(text: string, most: number): boolean {
  if (text.length < most * 2) return false
  let separators = 0
  for (let index = 0; index < text.length && separators <= most; index++) {
    const unit = text.charCodeAt(index)
    if (unit === QUOTE) index = findStringEnd(text, index)
    else if (unit === COMMA || unit === BRACKET || unit === BRACE) separators += 1
  }
  return separators > most
}

function findStringEnd(text: string, start: number): number {
  let end = start
  let backslashes: number
  do {
    end = text.indexOf('"', end + 1)
    if (end === -1) return text.length
    backslashes = 0
    while (text.charCodeAt(end - 1 - backslashes) === BACKSLASH) backslashes += 1
  } while (backslashes % 2 === 1)
  return end
}

const CONTENT_TYPES = /^(unknown|(text|application)\/(html|plain|csv|xml|json|problem\+json|octet-stream))$/

/** A successful answer that is not JSON, or only the beginning of it: worth trying again. */
function createNotJson(headers: ResponseHeaders): RetryableError {
  const given = String(headers['content-type'] ?? 'unknown')
  const contentType = tellForeign(given.split(';', 1)[0] ?? '', CONTENT_TYPES)
  return new RetryableError({code: 'SOURCE_NOT_JSON', problem: contentType})
}

/** A redirect could lead the key to another origin, so that none is followed. */
function createRedirected(
  status: number,
  headers: ResponseHeaders,
  {target, base}: {target: Target; base: URL},
): LoantapeError {
  const location = String(headers.location ?? '')
  const origin = location && URL.canParse(location, base.href) ? new URL(location, base).origin : 'nowhere'
  return newError(
    'SOURCE_REDIRECTED',
    `Redirect ${status} to '${origin}' from source '${target.host}' at GET ${target.path}: expected an answer; redirects are not followed, so that the key stays where it was meant for.`,
  )
}
