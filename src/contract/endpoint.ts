import {z} from 'zod'
import type {Operation} from './operations.ts'
import type {ProblemCode} from './problem.ts'

/** One endpoint: the service routes by it, parses with it, and describes itself from it. */
export interface Endpoint<Op extends Operation = Operation> {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Relative to the base URL: `/deals/{id}`. */
  path: string
  tag: string
  summary: string
  query: z.ZodType<Op['query']>
  body: z.ZodType<Op['body']>
  /** How the body is encoded; JSON unless told. */
  isMultipart?: true
  /** Of the answer when all is well. */
  status: 200 | 201 | 202 | 204
  /** What `data` holds, one of or many; null where the answer is no JSON. */
  record: z.ZodType | null
  isList?: true
  /** Whether the answer carries an ETag. */
  hasEtag?: true
  /** What it refuses beyond what every endpoint does. */
  problems: readonly ProblemCode[]
}

/** What an Idempotency-Key may be: 1 to 255 printable characters, no space at either end, where HTTP would drop it. */
export const IDEMPOTENCY_KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/

/** The body of an endpoint that takes none: nothing, or an empty object. */
export const noBodySchema = z
  .strictObject({})
  .optional()
  .transform(() => undefined)

/** What every endpoint of this kind may refuse, and what this one does. */
export function problemsOf(endpoint: Endpoint): ProblemCode[] {
  const {method, isMultipart, isList} = endpoint
  const codes: ProblemCode[] = [
    'malformed_url',
    'invalid_parameter',
    'unauthorized',
    'invalid_token',
    'insufficient_scope',
    'url_too_long',
    'rate_limited',
    'internal',
  ]
  if (isList) codes.push('invalid_cursor')
  if (method !== 'GET') {
    codes.push('invalid_body', 'malformed_body', 'body_too_large', 'unsupported_media_type')
    if (!isMultipart) codes.push('malformed_json')
  }
  if (method === 'POST') codes.push('invalid_idempotency_key', 'idempotency_key_reused')
  return [...new Set([...codes, ...endpoint.problems])]
}
