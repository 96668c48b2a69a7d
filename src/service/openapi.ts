import {z} from 'zod'
import {type Endpoint, IDEMPOTENCY_KEY, noBodySchema, problemsOf} from '../contract/endpoint.ts'
import {ENDPOINTS} from '../contract/endpoints.ts'
import {PROBLEMS, problemSchema} from '../contract/problem.ts'
import {EVENT_TYPES, webhookEventSchema} from '../contract/webhook.ts'

type Json = Record<string, unknown>

const REF = '#/components/schemas/'

/** The JSON Schemas of every named schema of the contract. */
function buildSchemas(): Json {
  const {schemas} = z.toJSONSchema(z.globalRegistry, {
    io: 'input',
    unrepresentable: 'any',
    uri: (id) => `${REF}${id}`,
  })
  return Object.fromEntries(Object.entries(schemas).map(([id, {$schema, $id, ...schema}]) => [id, schema]))
}

function refOf(schema: z.ZodType): Json {
  const id = z.globalRegistry.get(schema)?.id
  if (id === undefined) throw new TypeError('a record of the contract has no id')
  return {$ref: REF + id}
}

function buildParameters(endpoint: Endpoint): Json[] {
  const inPath = [...endpoint.path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    schema: {type: 'string', maxLength: 100},
  }))
  const query = z.toJSONSchema(endpoint.query, {io: 'output'}).properties ?? {}
  const inQuery = Object.entries(query).map(([name, schema]) => ({name, in: 'query', schema}))
  const header = (name: string, description: string, more: Json = {}): Json => ({
    name,
    in: 'header',
    description,
    schema: {type: 'string', ...more},
  })
  const headers = [
    ...(endpoint.method === 'POST'
      ? [
          header('Idempotency-Key', 'Has the request take effect once; kept for 24 hours.', {
            pattern: IDEMPOTENCY_KEY.source,
          }),
        ]
      : []),
    ...(endpoint.problems.includes('precondition_failed')
      ? [header('If-Match', 'The ETag of the deal as you know it, or *.')]
      : []),
  ]
  return [...inPath, ...inQuery, ...headers]
}

function buildAnswerContent({record, isList, status}: Endpoint): Json | undefined {
  if (status === 204) return undefined
  // A file comes as what it is.
  if (record === null)
    return {'*/*': {schema: {type: 'string', contentMediaType: 'application/octet-stream'}}}
  const data = refOf(record)
  const paging = {has_more: {type: 'boolean'}, next_cursor: {type: ['string', 'null']}}
  const schema = isList
    ? {
        type: 'object',
        properties: {data: {type: 'array', items: data}, ...paging},
        required: ['data', 'has_more', 'next_cursor'],
      }
    : {type: 'object', properties: {data}, required: ['data']}
  return {'application/json': {schema}}
}

function buildResponses(endpoint: Endpoint): Json {
  const content = buildAnswerContent(endpoint)
  const etag = endpoint.hasEtag && {headers: {ETag: {schema: {type: 'string'}}}}
  const good = {description: endpoint.summary, ...etag, ...(content && {content})}
  const byStatus = Map.groupBy(problemsOf(endpoint), (code) => PROBLEMS[code].status)
  const bad = [...byStatus]
    .toSorted(([one], [other]) => one - other)
    .map(([status, codes]) => [
      status,
      {
        description: codes.map((code) => `\`${code}\`: ${PROBLEMS[code].meaning}`).join('\n'),
        content: {'application/problem+json': {schema: refOf(problemSchema)}},
      },
    ])
  return Object.fromEntries([[endpoint.status, good], ...bad])
}

function buildRequestBody({body, isMultipart, method}: Endpoint): Json | undefined {
  if (body === noBodySchema) {
    if (method !== 'POST') return undefined
    return {content: {'application/json': {schema: {type: 'object', additionalProperties: false}}}}
  }
  const type = isMultipart ? 'multipart/form-data' : 'application/json'
  return {required: true, content: {[type]: {schema: refOf(body)}}}
}

/** Describes the API as OpenAPI 3.1, from the contract that the service parses with. */
export function buildOpenApi({version, serverUrl}: {version: string; serverUrl: string}): Json {
  const paths: Record<string, Json> = {}
  for (const [operationId, endpoint] of Object.entries(ENDPOINTS)) {
    const {path, method, tag, summary} = endpoint
    const requestBody = buildRequestBody(endpoint)
    paths[path] = {
      ...paths[path],
      [method.toLowerCase()]: {
        operationId,
        tags: [tag],
        summary,
        parameters: buildParameters(endpoint),
        ...(requestBody && {requestBody}),
        responses: buildResponses(endpoint),
      },
    }
  }
  const webhook = {
    summary: 'A notification, signed by Standard Webhooks',
    requestBody: {content: {'application/json': {schema: refOf(webhookEventSchema)}}},
    responses: {'2XX': {description: 'Taken.'}, 410: {description: 'The endpoint is disabled.'}},
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Deal Financing Service',
      version,
      description:
        'Manages real-estate loan deals. Errors are problem details (RFC 9457) with a stable `code`.',
      license: {name: 'MIT', identifier: 'MIT'},
    },
    servers: [{url: serverUrl}],
    tags: [...new Set(Object.values(ENDPOINTS).map(({tag}) => tag))].map((name) => ({name})),
    security: [{apiKey: []}],
    paths,
    webhooks: Object.fromEntries(
      EVENT_TYPES.map((type) => [type, {post: {operationId: `on_${type.replace('.', '_')}`, ...webhook}}]),
    ),
    components: {
      securitySchemes: {
        apiKey: {type: 'http', scheme: 'bearer', description: 'A key, `sk_live_…` or `sk_test_…`.'},
      },
      schemas: buildSchemas(),
    },
  }
}
