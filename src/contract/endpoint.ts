import {z} from 'zod'
import {noQuerySchema, type PageQuery} from './list.ts'
import type {ProblemCode} from './problem.ts'

/** The service's routes, parsing and API description, and the client, are made from these. */
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
  status: 200 | 201 | 202 | 204
  /** The schema of `data`, or of its elements in a list; null if the answer is not JSON. */
  record: z.ZodType | null
  isList?: true
  /** Headers of a successful answer, besides those that every answer has. */
  headers: readonly AnswerHeader[]
  /** Problems of this endpoint only; {@link problemsOf} adds the common ones. */
  problems: readonly ProblemCode[]
}

export const ANSWER_HEADERS = {
  'X-Request-Id': 'The id of the request, for support.',
  'RateLimit-Policy': 'The quota of the API key, if the service limits the rate.',
  RateLimit: 'What is left of the quota, if the service limits the rate.',
  ETag: 'The version of the record, for `If-Match`.',
  Location: 'The path of what was created.',
  'Idempotency-Replayed': '`true` if an earlier request under this Idempotency-Key got the same answer.',
  'Content-Disposition': '`attachment` with the name of the file.',
  'Repr-Digest': 'The SHA-256 of the file (RFC 9530).',
  'WWW-Authenticate': 'What is wrong with the API key (RFC 6750).',
  'Retry-After': 'Seconds until the next request is served.',
}

export type AnswerHeader = keyof typeof ANSWER_HEADERS

/** 1 to 255 printable characters, without a space at either end: HTTP would drop it. */
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

export interface Operation {
  query: object
  body: unknown
  /** A record, the records of a list, a {@link ServedFile}, or undefined. */
  answer: unknown
}

export interface ServedFile {
  headers: Record<string, string>
  content: Uint8Array
}

type More = Partial<Pick<Endpoint, 'status' | 'isMultipart' | 'headers' | 'problems'>>

type Bodiless<Answer, Query = object> = Endpoint<{query: Query & object; body: undefined; answer: Answer}>

export function endpointsOf(tag: string) {
  const plain = {tag, query: noQuerySchema, body: noBodySchema, headers: [], problems: []}
  const read = {...plain, method: 'GET', status: 200} as const
  const write =
    (method: 'POST' | 'PATCH', status: 200 | 201) =>
    <Body, T>(
      path: string,
      summary: string,
      body: z.ZodType<Body>,
      record: z.ZodType<T>,
      more: More = {},
    ): Endpoint<{query: object; body: Body; answer: T}> => {
      return {...plain, method, path, summary, body, status, record, ...more}
    }
  return {
    get<T>(path: string, summary: string, record: z.ZodType<T>, more: More = {}): Bodiless<T> {
      return {...read, path, summary, record, ...more}
    },
    file(path: string, summary: string): Bodiless<ServedFile> {
      return {...read, path, summary, record: null, headers: ['Content-Disposition', 'Repr-Digest']}
    },
    list<Query extends PageQuery, T>(
      path: string,
      summary: string,
      query: z.ZodType<Query>,
      record: z.ZodType<T>,
    ): Bodiless<T[], Query> {
      return {...read, path, summary, query, record, isList: true}
    },
    post: write('POST', 201),
    patch: write('PATCH', 200),
    remove(path: string, summary: string, more: More = {}): Bodiless<undefined> {
      return {...plain, method: 'DELETE', path, summary, status: 204, record: null, ...more}
    },
  }
}
