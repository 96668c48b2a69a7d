import fc from 'fast-check'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {useShared} from '../support/set-up.ts'
import {API_KEY, aDeal, call, get, readData, startTestService, upload} from './client.ts'

const DEAL = aDeal(50).id

type Json = Record<string, unknown>
interface Parameter {
  name: string
  in: 'path' | 'query' | 'header'
  schema: Json
}
interface Described {
  operationId: string
  method: string
  path: string
  parameters?: Parameter[]
  requestBody?: {content: Record<string, {schema: Json}>}
  responses: Record<string, {headers: Json; content?: Record<string, {schema: Json}>}>
}

const anything = fc.oneof(
  fc.jsonValue(),
  fc.constantFrom<unknown>('', ' ', null, -1, 1e300, 0.001, '\u0000', "' or 1=1 --"),
  fc.constantFrom<unknown>('../..', [], {}, 'draft', 9e15),
)

/** Values for a JSON Schema: mostly valid, sometimes not. */
function valuesOf(schema: Json, schemas: Record<string, Json>): fc.Arbitrary<unknown> {
  return fc.oneof({weight: 9, arbitrary: goodValuesOf(schema, schemas)}, {weight: 1, arbitrary: anything})
}

function goodValuesOf(schema: Json, schemas: Record<string, Json>): fc.Arbitrary<unknown> {
  const {$ref, anyOf, type, minimum = 0, maximum = 1000} = schema
  if (typeof $ref === 'string') return goodValuesOf(schemas[$ref.split('/').at(-1)!]!, schemas)
  if (Array.isArray(anyOf)) return fc.oneof(...anyOf.map((one) => goodValuesOf(one, schemas)))
  if (Array.isArray(schema.enum)) return fc.constantFrom(...schema.enum)
  if (type === 'null') return fc.constant(null)
  if (type === 'boolean') return fc.boolean()
  if (type === 'integer') return fc.integer({min: Number(minimum), max: Number(maximum)})
  if (type === 'number') return fc.integer({min: 0, max: 9_999}).map((cents) => cents / 100)
  if (type === 'array') return fc.array(valuesOf(schema.items as Json, schemas), {minLength: 1, maxLength: 4})
  if (type === 'object') {
    const properties = Object.entries((schema.properties ?? {}) as Record<string, Json>)
    const fields = Object.fromEntries(properties.map(([name, field]) => [name, valuesOf(field, schemas)]))
    const known = fc.record(fields, {requiredKeys: []})
    return fc
      .tuple(known, fc.oneof({weight: 8, arbitrary: fc.constant({})}, {weight: 1, arbitrary: fc.object()}))
      .map(([record, more]) => ({...more, ...record}))
  }
  if (schema.format === 'date') return fc.constantFrom('2026-04-01', '2026-02-30')
  if (schema.format === 'email') return fc.emailAddress()
  if (schema.format === 'date-time') return fc.constantFrom('2026-04-01T12:00:00Z', '2026-04-01')
  if (schema.format === 'uri')
    return fc.constantFrom('https://127.0.0.1/x', 'https://[::1]/', 'https://93.184.215.14')
  if (typeof schema.pattern === 'string') return fc.stringMatching(new RegExp(schema.pattern))
  return fc.string({unit: 'binary', maxLength: 40})
}

/** Ids that exist, by the first word of a path or by the name of the second id. */
let known: Record<string, string[]>

const service = await useShared(startTestService({webhooks: {allowPrivate: true}}))
service.store.insert(Array.from({length: 100}, (_, index) => aDeal(index)))
const {paths, components} = (await (await fetch(service.url.replace('/v1', '/openapi.json'))).json()) as {
  paths: Record<string, Record<string, Described>>
  components: {schemas: Record<string, Json>}
}
const schemas = components.schemas
const operations = Object.entries(paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, one]) => ({...one, path, method: method.toUpperCase()})),
)
const post = async (path: string, body: object): Promise<string> =>
  (await readData<{id: string}>(await call(service, 'POST', path, body))).id
const endpoint = await post('/webhook-endpoints', {url: 'http://127.0.0.1:9/x'})
const document = await readData<{id: string}>(await upload(service, DEAL))
known = {
  deals: [DEAL, ...service.store.ids().slice(0, 30)],
  tasks: [await post(`/deals/${DEAL}/tasks`, {title: 'x'})],
  'webhook-endpoints': [endpoint],
  document_id: [document.id],
  generation_id: [await post(`/deals/${DEAL}/document-generations`, {template: 'term_sheet'})],
  delivery_id: (await get<{id: string}[]>(service, `/webhook-endpoints/${endpoint}/deliveries`)).map(
    ({id}) => id,
  ),
}
const STRANGE_IDS = ['nothing', '..', '%00', "';--", 'x'.repeat(101)]

function idsOf(kind: string | undefined): fc.Arbitrary<string> {
  const strange = fc.constantFrom(...STRANGE_IDS)
  const some = known[kind ?? ''] ?? []
  const ids =
    some.length === 0 ? strange : fc.oneof({weight: 4, arbitrary: fc.constantFrom(...some)}, strange)
  return ids.map(encodeURIComponent)
}

/** A request for an operation, made from its own description. */
function requestsOf({path, parameters = [], requestBody}: Described) {
  const type = Object.keys(requestBody?.content ?? {})[0]
  const schema = requestBody?.content[type ?? '']?.schema
  const query = parameters.filter((parameter) => parameter.in === 'query')
  return fc.record({
    path: fc
      .tuple(idsOf(path.split('/')[1]), idsOf(/_id(?=\})/.exec(path) ? /\w+_id/.exec(path)?.[0] : ''))
      .map(([one, other]) => path.replace('{id}', one).replace(/\{\w+\}/, other)),
    query: fc.record(Object.fromEntries(query.map(({name, schema}) => [name, valuesOf(schema, schemas)])), {
      requiredKeys: [],
    }),
    headers: fc.record(
      {'idempotency-key': fc.constantFrom('a', 'b'), 'if-match': fc.constantFrom('*', '"x"')},
      {requiredKeys: []},
    ),
    type: fc.constant(type),
    body: schema ? valuesOf(schema, schemas) : fc.constant(undefined),
  })
}

/** A made-up object may have a `toString` that is not a function. */
const textOf = (value: unknown): string => (typeof value === 'object' ? JSON.stringify(value) : String(value))

async function send(
  method: string,
  request: {path: string; query: Json; headers: object; type: string | undefined; body: unknown},
) {
  const {path, query, headers, type, body} = request
  const texts = Object.entries(query).map(([name, value]): [string, string] => [name, textOf(value)])
  const search = new URLSearchParams(texts)
  const isJson = type === 'application/json'
  let sent: string | FormData | undefined
  if (isJson) sent = JSON.stringify(body)
  else if (type !== undefined) {
    sent = new FormData()
    for (const [name, value] of Object.entries((body ?? {}) as object)) {
      if (name === 'file') sent.set(name, new Blob([textOf(value)]), textOf(value))
      else sent.set(name, textOf(value))
    }
  }
  return await fetch(`${service.url}${path}?${search}`, {
    method,
    headers: {authorization: `Bearer ${API_KEY}`, ...headers, ...(isJson && {'content-type': type})},
    ...(sent !== undefined && {body: sent}),
  })
}

/** Validates a body against the schema the description gives for its status. */
function checkBody(schema: Json, body: unknown): void {
  const {$ref} = schema
  const whole = {...schema, $defs: schemas}
  const text = JSON.stringify(whole).replaceAll('#/components/schemas/', '#/$defs/')
  const parsed = z.fromJSONSchema(JSON.parse(text)).safeParse(body)
  expect(parsed.error?.issues ?? [], String($ref)).toEqual([])
}

test('whatever is sent, every operation answers as its description says, and never fails', async () => {
  const seen = new Map<string, Set<string>>()
  // Deletions come last, so that the others find something.
  const inOrder = operations.toSorted(
    (one, other) => Number(one.method === 'DELETE') - Number(other.method === 'DELETE'),
  )
  for (const operation of inOrder) {
    const statuses = new Set<string>()
    seen.set(operation.operationId, statuses)
    await fc.assert(
      fc.asyncProperty(requestsOf(operation), async (request) => {
        const response = await send(operation.method, request)
        const status = String(response.status)
        statuses.add(status)
        const words = `${operation.operationId} answered ${status}`
        expect(Object.keys(operation.responses), words).toContain(status)
        expect(status, words).not.toBe('500')
        const described = Object.keys(operation.responses[status]?.headers ?? {})
        const sent = described.filter((name) => !/^(RateLimit|Idempotency-Replayed)/.test(name))
        expect([words, sent.filter((name) => !response.headers.has(name))]).toEqual([words, []])
        const text = await response.text()
        const content = Object.entries(operation.responses[status]?.content ?? {})[0]
        if (!content) expect(text).toBe('')
        else if (content[0].endsWith('json')) {
          expect(response.headers.get('content-type')).toContain(content[0])
          checkBody(content[1].schema, JSON.parse(text))
        }
      }),
      {numRuns: 20},
    )
  }
  const good = [...seen].filter(([, statuses]) => [...statuses].some((status) => status.startsWith('2')))
  expect(good.length, JSON.stringify(good.map(([id]) => id))).toBeGreaterThan(operations.length * 0.6)
})
