import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import type {FastifyInstance, FastifyRequest} from 'fastify'
import {z} from 'zod'
import {type Endpoint, IDEMPOTENCY_KEY, noBodySchema, problemsOf} from '../contract/endpoint.ts'
import {ENDPOINTS} from '../contract/endpoints.ts'
import {PROBLEMS, problemSchema} from '../contract/problem.ts'
import {EVENT_TYPES, webhookEventSchema} from '../contract/webhook.ts'
import {groupThousands} from '../core/money.ts'
import {VERSION} from '../core/process.ts'
import {PREFIX} from './requests.ts'

/** Adds `/openapi.json` and `/docs`, which hold no data and so need no key. */
export function addDescription(app: FastifyInstance): void {
  const config = {isPublic: true} as const
  const serverUrlOf = ({protocol, host}: FastifyRequest): string => `${protocol}://${host}${PREFIX}`
  app.get('/openapi.json', {config}, (request) =>
    buildOpenApi({version: VERSION, serverUrl: serverUrlOf(request)}),
  )
  app.get('/docs', {config}, (request, reply) => {
    reply.type('text/html; charset=utf-8')
    reply.header('Content-Security-Policy', "default-src 'none'; style-src 'unsafe-inline'")
    return reply.send(renderApiPage(serverUrlOf(request)))
  })
}

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
  const headers = [
    endpoint.method === 'POST' && {
      name: 'Idempotency-Key',
      description: 'Requests with the same key take effect once, within 24 hours.',
      schema: {type: 'string', pattern: IDEMPOTENCY_KEY.source},
    },
    endpoint.problems.includes('precondition_failed') && {
      name: 'If-Match',
      description: 'The ETag of the deal as you know it, or *.',
      schema: {type: 'string'},
    },
  ].filter((header) => header !== false)
  return [...inPath, ...inQuery, ...headers.map((header) => ({...header, in: 'header'}))]
}

function buildAnswerContent({record, isList, status}: Endpoint): Json | undefined {
  if (status === 204) return undefined
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
function buildOpenApi({version, serverUrl}: {version: string; serverUrl: string}): Json {
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
    responses: {'2XX': {description: 'Accepted.'}, 410: {description: 'The endpoint is disabled.'}},
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

type Field = z.core.JSONSchema._JSONSchema

/** The schema `true` allows anything. */
const partsOf = (field: Field): z.core.JSONSchema.BaseSchema => (typeof field === 'boolean' ? {} : field)

const escapeHtml = (text: string): string => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`)

const code = (value: unknown): string => `<code>${escapeHtml(String(value))}</code>`

function nameType(field: Field): string {
  const {type = 'any', format, anyOf, items, properties, ...rest} = partsOf(field)
  if (anyOf) return anyOf.map(nameType).join(' or ')
  if (rest.enum) return rest.enum.map(code).join(', ')
  if (rest.contentMediaType) return 'file'
  if (items && !Array.isArray(items)) return `list of ${nameType(items)}`
  if (properties) return `{${Object.keys(properties).map(code).join(', ')}}`
  return format ?? [type].flat().join(' or ')
}

/** What to say about a field beside its type; the limits of the number type itself are left out. */
function describe(field: Field): string {
  const {description = '', minimum, maximum, maxLength, anyOf = [], ...rest} = partsOf(field)
  const isLimited = minimum !== undefined && maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER
  return [
    escapeHtml(description),
    ...anyOf.map(describe),
    isLimited ? `${minimum} to ${groupThousands(maximum)}.` : '',
    maxLength ? `At most ${groupThousands(maxLength)} characters.` : '',
    rest.default === undefined ? '' : `Default ${code(rest.default)}.`,
  ]
    .filter(Boolean)
    .join(' ')
}

/**
 * The fields of an object as an HTML table: name, type, description. Empty if there are no fields.
 *
 * @param use for a query the parsed type is shown, for a body the required fields are marked
 */
function renderFields(title: string, schema: z.ZodType, use: 'query' | 'body' | 'answer'): string {
  const io = use === 'query' ? 'output' : 'input'
  const {$defs, ...whole} = z.toJSONSchema(schema, {io, unrepresentable: 'any'})
  const {properties = {}, required = []} = partsOf(Object.values($defs ?? {})[0] ?? whole)
  const rows = Object.entries(properties).map(([name, field]) => {
    const mark = use === 'body' && required.includes(name) ? 'Required. ' : ''
    return `<tr><td>${code(name)}<td>${nameType(field)}<td>${mark}${describe(field)}`
  })
  return rows.length === 0 ? '' : `<h3>${title}</h3><table>${rows.join('')}</table>`
}

function renderEndpoint(id: string, endpoint: Endpoint): string {
  const {method, path, summary, body, record, status, isList, isMultipart, query} = endpoint
  const problems = problemsOf(endpoint).map((name) => {
    const meaning = escapeHtml(PROBLEMS[name].meaning).replace(/`(\w+)`/g, '<code>$1</code>')
    return `<tr><td>${PROBLEMS[name].status}<td>${code(name)}<td>${meaning}`
  })
  const answer = `Answer ${status}`
  return [
    `<details id="${id}"><summary><b class="${method}">${method}</b> ${code(path)} ${escapeHtml(summary)}</summary>`,
    renderFields('Query', query, 'query'),
    renderFields(`Body, ${isMultipart ? 'multipart/form-data' : 'JSON'}`, body, 'body'),
    record
      ? renderFields(`${answer}: ${isList ? 'each of ' : ''}<code>data</code>`, record, 'answer')
      : `<h3>${answer}</h3>`,
    `<h3>Problems</h3><table>${problems.join('')}</table></details>`,
  ].join('')
}

const STYLE = join(import.meta.dirname, 'api.css')

/** The API as one page for a browser: no script, nothing from elsewhere. */
function renderApiPage(serverUrl: string): string {
  const groups = Map.groupBy(Object.entries(ENDPOINTS), ([, {tag}]) => tag)
  const sections = [...groups].map(
    ([tag, endpoints]) =>
      `<h2>${tag}</h2>${endpoints.map(([id, endpoint]) => renderEndpoint(id, endpoint)).join('\n')}`,
  )
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Deal Financing Service</title><style>
${readFileSync(STYLE, 'utf8')}</style></head><body>
<h1>Deal Financing Service</h1>
<p>Base URL <code>${escapeHtml(serverUrl)}</code>, with <code>Authorization: Bearer &lt;API key&gt;</code>.
For machines: <a href="/openapi.json">openapi.json</a>.</p>
${sections.join('\n')}
</body></html>
`
}
