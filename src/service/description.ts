import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type {FastifyInstance, FastifySchema} from 'fastify'
import {z} from 'zod'
import {
  ANSWER_HEADERS,
  type AnswerHeader,
  type Endpoint,
  IDEMPOTENCY_KEY,
  noBodySchema,
  problemsOf,
} from '../contract/endpoint.ts'
import {ENDPOINTS} from '../contract/endpoints.ts'
import {PROBLEMS, problemSchema} from '../contract/problem.ts'
import {EVENT_TYPES, webhookEventSchema} from '../contract/webhook.ts'
import {VERSION} from '../core/process.ts'
import {PREFIX} from './requests.ts'

/** OpenAPI 3.1, of the routes that are added later. `/openapi.json` and `/docs` hold no data, so they need no key. */
export function addDescription(app: FastifyInstance): void {
  app.register(swagger, {
    convertConstToEnum: false,
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Deal Financing Service',
        version: VERSION,
        description:
          'Manages real-estate loan deals. Errors are problem details (RFC 9457) with a stable `code`: those of each operation, `not_found`, `method_not_allowed` and `bad_request`.',
        license: {name: 'MIT', identifier: 'MIT'},
        contact: {name: 'loantape'},
      },
      servers: [{url: PREFIX}],
      tags: [...new Set(Object.values(ENDPOINTS).map(({tag}) => tag))].map((name) => ({
        name,
        description: `The operations of ${name.toLowerCase()}.`,
      })),
      security: [{apiKey: []}],
      components: {
        securitySchemes: {
          apiKey: {type: 'http', scheme: 'bearer', description: 'A key, `sk_live_…` or `sk_test_…`.'},
        },
        schemas: buildSchemas(),
      },
      webhooks: Object.fromEntries(EVENT_TYPES.map((type) => [type, {post: describeEvent(type)}])),
    },
    transform: ({url, schema, route: {config}}) => ({
      url,
      schema: config?.endpoint ? {...schema, ...describeOperation(config.endpoint)} : {hide: true},
    }),
  })
  app.register(swaggerUi, {routePrefix: '/docs', staticCSP: CSP, uiConfig: {layout: 'BaseLayout'}})
  app.get('/openapi.json', ({protocol, host}) => ({
    ...app.swagger(),
    servers: [{url: `${protocol}://${host}${PREFIX}`}],
  }))
}

/** The page loads nothing from elsewhere. */
const CSP =
  "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; frame-ancestors 'none'"

const REF = '#/components/schemas/'

function buildSchemas(): Record<string, object> {
  const {schemas} = z.toJSONSchema(z.globalRegistry, {
    io: 'input',
    unrepresentable: 'any',
    uri: (id) => `${REF}${id}`,
  })
  return Object.fromEntries(Object.entries(schemas).map(([id, {$schema, $id, ...schema}]) => [id, schema]))
}

function refOf(schema: z.ZodType): {$ref: string} {
  const id = z.globalRegistry.get(schema)?.id
  if (id === undefined) throw new TypeError('a record of the contract has no id')
  return {$ref: REF + id}
}

function describeOperation(endpoint: Endpoint): FastifySchema {
  const {tag, summary, query, body, isMultipart} = endpoint
  const {properties} = z.toJSONSchema(query, {io: 'output'})
  const type = isMultipart ? 'multipart/form-data' : 'application/json'
  return {
    tags: [tag],
    summary,
    description: `${summary}.`,
    querystring: {type: 'object', properties},
    headers: {type: 'object', properties: describeHeaders(endpoint)},
    body: body === noBodySchema ? undefined : {content: {[type]: {schema: refOf(body)}}},
    response: describeAnswers(endpoint),
  }
}

const textField = (description: string) => ({type: 'string', description})

function describeHeaders({method, problems}: Endpoint) {
  const key = {
    ...textField('Requests with the same key take effect once, within 24 hours.'),
    pattern: IDEMPOTENCY_KEY.source,
  }
  const tag = textField('The ETag of the deal as you know it, or *.')
  return {
    ...(method === 'POST' && {'Idempotency-Key': key}),
    ...(problems.includes('precondition_failed') && {'If-Match': tag}),
  }
}

function describeAnswers(endpoint: Endpoint) {
  const {method, status, summary, headers} = endpoint
  const replayed: AnswerHeader[] = method === 'POST' ? ['Idempotency-Replayed'] : []
  const good = describeAnswer(summary, [...headers, ...replayed, ...QUOTA], describeContent(endpoint))
  const byStatus = Map.groupBy(problemsOf(endpoint), (code) => PROBLEMS[code].status)
  const bad = [...byStatus].map(([status, codes]) => {
    const meanings = codes.map((code) => `\`${code}\`: ${PROBLEMS[code].meaning}`).join('\n')
    const content = {'application/problem+json': {schema: refOf(problemSchema)}}
    return [status, describeAnswer(meanings, PROBLEM_HEADERS[status] ?? [], content)]
  })
  return Object.fromEntries([[status, good], ...bad])
}

const QUOTA: AnswerHeader[] = ['RateLimit-Policy', 'RateLimit']
const PROBLEM_HEADERS: Record<number, AnswerHeader[]> = {
  401: ['WWW-Authenticate'],
  403: ['WWW-Authenticate'],
  429: ['Retry-After', ...QUOTA],
}

function describeAnswer(description: string, names: readonly AnswerHeader[], content: object | undefined) {
  const all = ['X-Request-Id' as const, ...names]
  const headers = all.map((name) => [name, textField(ANSWER_HEADERS[name])])
  return {description, headers: Object.fromEntries(headers), ...(content ? {content} : {type: 'null'})}
}

function describeContent({record, isList, status}: Endpoint): object | undefined {
  if (status === 204) return undefined
  if (record === null)
    return {'*/*': {schema: {type: 'string', contentMediaType: 'application/octet-stream'}}}
  const data = isList ? {type: 'array', items: refOf(record)} : refOf(record)
  const paging = isList && {has_more: {type: 'boolean'}, next_cursor: {type: ['string', 'null']}}
  const properties = {data, ...paging}
  return {'application/json': {schema: {type: 'object', properties, required: Object.keys(properties)}}}
}

function describeEvent(type: string) {
  return {
    operationId: `on_${type.replace('.', '_')}`,
    summary: 'A notification, signed by Standard Webhooks',
    requestBody: {content: {'application/json': {schema: refOf(webhookEventSchema)}}},
    responses: {'2XX': {description: 'Accepted.'}, 410: {description: 'The endpoint is disabled.'}},
  }
}
