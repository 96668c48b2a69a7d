import type {FastifyInstance, FastifyRequest} from 'fastify'
import {z} from 'zod'
import {type Endpoint, noBodySchema, problemsOf} from '../contract/endpoint.ts'
import {ENDPOINTS} from '../contract/endpoints.ts'
import {PROBLEMS} from '../contract/problem.ts'
import {groupThousands} from '../money.ts'
import {VERSION} from '../version.ts'
import {PREFIX} from './handlers.ts'
import {buildOpenApi} from './openapi.ts'

type Field = z.core.JSONSchema._JSONSchema

/** Where a schema is `true`, anything goes. */
function partsOf(field: Field): z.core.JSONSchema.BaseSchema {
  return typeof field === 'boolean' ? {} : field
}

/** Makes text safe to stand in a page. */
function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`)
}

const code = (value: unknown): string => `<code>${escapeHtml(String(value))}</code>`

const FORMATS: Record<string, string> = {
  'date-time': 'instant, ISO 8601',
  date: 'date, YYYY-MM-DD',
  email: 'e-mail address',
  uri: 'URL',
}

function nameType(field: Field): string {
  const {type, format = '', anyOf, items, properties, ...rest} = partsOf(field)
  if (anyOf) return anyOf.map(nameType).join(' or ')
  if (rest.enum) return rest.enum.map(code).join(', ')
  if (rest.contentMediaType) return 'file'
  if (items && !Array.isArray(items)) return `list of ${nameType(items)}`
  if (properties) return `{${Object.keys(properties).map(code).join(', ')}}`
  return FORMATS[format] ?? [type ?? 'any'].flat().join(' or ')
}

/** What is said of a field beside its type; limits that are only those of the number type are none. */
function describe(field: Field): string[] {
  const {description, format, minimum, maximum, maxLength, pattern, examples, anyOf, ...rest} = partsOf(field)
  const isLimited = minimum !== undefined && maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER
  const isReadable = pattern !== undefined && format === undefined && !pattern.includes('\\x')
  return [
    ...(description ? [escapeHtml(description)] : []),
    ...(anyOf?.flatMap(describe) ?? []),
    ...(isLimited ? [`${minimum} to ${groupThousands(String(maximum))}.`] : []),
    ...(maxLength ? [`At most ${groupThousands(String(maxLength))} characters.`] : []),
    ...(isReadable ? [`Matches ${code(pattern)}.`] : []),
    ...(rest.default === undefined ? [] : [`Default ${code(rest.default)}.`]),
    ...(Array.isArray(examples) ? [`Such as ${examples.map(code).join(', ')}.`] : []),
  ]
}

/**
 * The fields of an object as rows of an HTML table: name, type, and what is said of it.
 *
 * @param use a query comes as text: shown is what it is read as; of a body its required fields are named
 * @returns empty text where there are none
 */
function renderFieldTable(schema: z.ZodType, use: 'query' | 'body' | 'answer'): string {
  const io = use === 'query' ? 'output' : 'input'
  const {$defs, ...whole} = z.toJSONSchema(schema, {io, unrepresentable: 'any'})
  const {properties = {}, required = []} = partsOf(Object.values($defs ?? {})[0] ?? whole)
  const rows = Object.entries(properties).map(([name, field]) => {
    const isRequired = use === 'body' && required.includes(name)
    const words = [...(isRequired ? ['Required.'] : []), ...describe(field)]
    return `<tr><td>${code(name)}<td>${nameType(field)}<td>${words.join(' ')}`
  })
  return rows.length === 0 ? '' : `<table>${rows.join('')}</table>`
}

function titled(title: string, table: string): string {
  return table === '' ? '' : `<h3>${title}</h3>${table}`
}

function renderEndpoint(id: string, endpoint: Endpoint): string {
  const {method, path, summary, body, record, status, isList, isMultipart, query} = endpoint
  const codes = problemsOf(endpoint).map(
    (code) =>
      `<tr><td>${PROBLEMS[code].status}<td><code>${code}</code><td>${escapeHtml(PROBLEMS[code].meaning).replace(/`(\w+)`/g, '<code>$1</code>')}`,
  )
  return [
    `<details id="${id}"><summary><b class="${method}">${method}</b> <code>${path}</code> ${escapeHtml(summary)}</summary>`,
    titled('Query', renderFieldTable(query, 'query')),
    body === noBodySchema
      ? ''
      : titled(`Body, ${isMultipart ? 'multipart/form-data' : 'JSON'}`, renderFieldTable(body, 'body')),
    record
      ? titled(
          `Answer ${status}: ${isList ? 'each of ' : ''}<code>data</code>`,
          renderFieldTable(record, 'answer'),
        )
      : `<h3>Answer ${status}</h3>`,
    `<h3>Problems</h3><table>${codes.join('')}</table></details>`,
  ].join('')
}

const STYLE = `
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2330 }
h2 { margin-top: 2rem; border-bottom: 1px solid #d6dbe4 }
details { margin: .4rem 0; padding: .3rem .6rem; border: 1px solid #d6dbe4; border-radius: 4px }
summary { cursor: pointer }
summary code { overflow-wrap: anywhere }
summary b { display: inline-block; min-width: 4.5em }
.GET { color: #10658a } .POST { color: #1c7a3e } .PATCH { color: #8a5a10 } .DELETE { color: #a02b2b }
h3 { margin: .8rem 0 .2rem }
td { padding: .1rem .8rem .1rem 0; vertical-align: top }
td:last-child { overflow-wrap: anywhere }`

/** The API as one page for a browser: no script, nothing from elsewhere. */
function renderApiPage(serverUrl: string): string {
  const groups = Map.groupBy(Object.entries(ENDPOINTS), ([, {tag}]) => tag)
  const sections = [...groups].map(
    ([tag, endpoints]) =>
      `<h2>${tag}</h2>${endpoints.map(([id, endpoint]) => renderEndpoint(id, endpoint)).join('\n')}`,
  )
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Deal Financing Service</title><style>${STYLE}</style></head><body>
<h1>Deal Financing Service</h1>
<p>Base URL <code>${escapeHtml(serverUrl)}</code>, with <code>Authorization: Bearer &lt;API key&gt;</code>.
For machines: <a href="/openapi.json">openapi.json</a>.</p>
${sections.join('\n')}
</body></html>
`
}

/** Adds `/openapi.json` and `/docs`: beside the API, without data, so without a key. */
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
