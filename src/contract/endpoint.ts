import {z} from 'zod'
import {noQuerySchema, pageQuerySchema} from './list.ts'
import type {ProblemCode} from './problem.ts'

/** One endpoint: source of the service's routes, its parsing, its description and the client. */
export interface Endpoint<Op extends Operation = Operation> {
  method: 'GET' | 'POST' | 'PATCH' | 'DELETE'
  /** Relative to the base URL: `/deals/{id}`. */
  path: string
  tag: string
  summary: string
  query: z.ZodType<Op['query']>
  body: z.ZodType<Op['body']>
  /** The body is JSON by default. */
  isMultipart?: true
  /** Of a successful answer. */
  status: 200 | 201 | 202 | 204
  /** What `data` holds, one or a list; null if the answer is not JSON. */
  record: z.ZodType | null
  isList?: true
  /** Whether the answer carries an ETag. */
  hasEtag?: true
  /** The problems of this endpoint alone; {@link problemsOf} adds the common ones. */
  problems: readonly ProblemCode[]
}

/** 1 to 255 printable characters, no space at either end, where HTTP would drop it. */
export const IDEMPOTENCY_KEY = /^[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?$/

/** The body of an endpoint without one: nothing, or an empty object. */
export const noBodySchema = z
  .strictObject({})
  .optional()
  .transform(() => undefined)

const NOT_FOUND: readonly (readonly [path: string, code: ProblemCode])[] = [
  ['/deals/{id}', 'deal_not_found'],
  ['/deals/{id}/documents/{document_id}', 'document_not_found'],
  ['/deals/{id}/document-generations/{generation_id}', 'document_generation_not_found'],
  ['/tasks/{id}', 'task_not_found'],
  ['/webhook-endpoints/{id}', 'webhook_endpoint_not_found'],
  ['/webhook-endpoints/{id}/deliveries/{delivery_id}', 'webhook_delivery_not_found'],
]

/** All problems an endpoint may answer with. */
export function problemsOf(endpoint: Endpoint): ProblemCode[] {
  const {method, path, isMultipart, isList} = endpoint
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
  const missing = NOT_FOUND.filter(([start]) => path.startsWith(start)).map(([, code]) => code)
  return [...new Set([...codes, ...missing, ...endpoint.problems])]
}

/** What the endpoints of a tag have in common, by what they do. */
export function endpointsOf(tag: string) {
  const plain = {tag, query: noQuerySchema, body: noBodySchema, problems: []}
  const get = {...plain, method: 'GET', status: 200} as const
  return {
    get,
    list: {...get, query: pageQuerySchema, isList: true} as const,
    post: {...plain, method: 'POST', status: 201} as const,
    patch: {...plain, method: 'PATCH', status: 200} as const,
    remove: {...plain, method: 'DELETE', status: 204, record: null} as const,
  }
}

/** The parsed input and the answer of an operation. */
export interface Operation {
  query: object
  body: unknown
  answer: unknown
}
