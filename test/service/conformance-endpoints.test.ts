import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import type {DealDocument, DocumentGeneration} from '../../src/contract/document.ts'
import type {Endpoint} from '../../src/contract/endpoints.ts'
import {ENDPOINTS} from '../../src/contract/endpoints.ts'
import type {CreatedWebhookEndpoint} from '../../src/contract/webhook.ts'
import {createApiKey} from '../../src/service/access.ts'
import type {RunningService} from '../../src/service/server.ts'
import {until} from '../support/until.ts'
import {
  API_KEY,
  aDeal,
  call,
  insertDeals,
  NOW,
  readData,
  readDeal,
  readPage,
  readProblem,
  startTestService,
  upload,
} from './client.ts'
import {startReceiver, verifyNotification} from './receiver.ts'

// Each title quotes the sentence of the specification that the test covers.
let service: RunningService

beforeEach(async () => {
  service = await startTestService({webhooks: {allowPrivate: true}})
  insertDeals(service, 3)
})
afterEach(() => service.close())

const newDeal = {
  property_address: '12 Main St, Austin, TX 78701',
  loan_amount: 350_000,
  property_value: 500_000,
  loan_program: 'bridge_30yr',
}
const DEAL = '/deals/deal_000001'
const pathsOf = (): [string, Endpoint][] =>
  Object.values(ENDPOINTS).map((endpoint: Endpoint) => [endpoint.path.replace(/\{\w+\}/g, 'none'), endpoint])

describe('What the service does', () => {
  test('"create and list deals;"', async () => {
    const {id} = await readDeal(await call(service, 'POST', '/deals', newDeal))
    expect((await readPage(service)).data.map((deal) => deal.id)).toContain(id)
  })

  test('"link borrowers to a deal;"', async () => {
    const borrower = {
      first_name: 'Ada',
      last_name: 'Lovelace',
      email: 'ada@example.com',
      ssn_last_four: '6789',
    }
    expect((await call(service, 'POST', `${DEAL}/borrowers`, borrower)).status).toBe(201)
    expect(await readData(await call(service, 'GET', `${DEAL}/borrowers`))).toHaveLength(1)
  })

  test('"upload documents to a deal (for example an appraisal);"', async () => {
    expect((await upload(service, 'deal_000001', {category: 'appraisal'})).status).toBe(201)
  })

  test('"synchronise deal data with external systems (customer-relationship systems, loan-origination systems, accounting platforms);"', async () => {
    const etag = (await call(service, 'GET', DEAL)).headers.get('etag')!
    const headers = {authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json', 'if-match': etag}
    const change = (loan_amount: number): Promise<Response> =>
      fetch(service.url + DEAL, {method: 'PATCH', headers, body: JSON.stringify({loan_amount})})
    expect((await change(1)).status).toBe(200)
    expect((await change(2)).status).toBe(412)
  })

  test('"trigger document generation from external workflows;"', async () => {
    const asked = await call(service, 'POST', `${DEAL}/document-generations`, {template: 'term_sheet'})
    const {id} = await readData<DocumentGeneration>(asked)
    const done = await until(async () => {
      const path = `${DEAL}/document-generations/${id}`
      const generation = await readData<DocumentGeneration>(await call(service, 'GET', path))
      return generation.status === 'completed' && generation
    })
    expect(typeof done.document_id).toBe('string')
    expect(await readData<DealDocument[]>(await call(service, 'GET', `${DEAL}/documents`))).toHaveLength(1)
  })

  test('"ingest pricing updates from third-party rate providers;"', async () => {
    for (const rate_pct of [7.125, 7.25])
      await call(service, 'POST', '/rates', {provider: 'acme', loan_program: 'bridge_30yr', rate_pct})
    expect(await readData(await call(service, 'GET', '/rates'))).toHaveLength(2)
  })

  test('"pull deal and portfolio data into reporting tools."', async () => {
    expect(await readData(await call(service, 'GET', '/reports/portfolio'))).toEqual({
      deals: 3,
      amount: '1050000.00',
      by_status: [{status: 'draft', deals: 3, amount: '1050000.00'}],
    })
  })

  test('"The service is reachable at {base_url}. All endpoints require Bearer authentication. Responses are JSON."', async () => {
    for (const [path, {method}] of pathsOf()) {
      const headers = {'content-type': 'application/json'}
      const response = await fetch(service.url + path, {method, headers})
      expect([method, path, response.status]).toEqual([method, path, 401])
      expect(response.headers.get('www-authenticate')).toMatch(/^Bearer /)
      expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/)
    }
    expect((await call(service, 'GET', DEAL)).headers.get('content-type')).toMatch(/^application\/json/)
  })
})

describe('Conventions', () => {
  test('"Request bodies are JSON. POST, PUT and PATCH requests carry the header `Content-Type: application/json`."', async () => {
    const writing = pathsOf().filter(([, {method, isMultipart}]) => /^P/.test(method) && !isMultipart)
    expect(writing.length).toBeGreaterThan(9)
    for (const [path, {method}] of writing) {
      const headers = {authorization: `Bearer ${API_KEY}`, 'content-type': 'text/plain'}
      const response = await fetch(service.url + path, {method, headers, body: '{}'})
      expect([path, response.status]).toEqual([path, 415])
    }
    expect((await call(service, 'PUT', '/deals', {})).status).toBe(405)
  })

  test('"Successful responses use an envelope: a top-level object with a `data` key holding the record."', async () => {
    for (const path of [
      DEAL,
      '/deals',
      '/rates',
      '/reports/portfolio',
      `${DEAL}/tasks`,
      '/webhook-endpoints',
    ])
      expect(await (await call(service, 'GET', path)).json()).toHaveProperty('data')
    const task = await call(service, 'POST', `${DEAL}/tasks`, {title: 'Order title'})
    expect(await task.json()).toEqual({data: expect.objectContaining({title: 'Order title'})})
  })

  test('"Paths below are relative to {base_url}, which already includes the API prefix."', async () => {
    expect(service.url).toMatch(/\/v1$/)
    const outside = await fetch(`${service.url.replace('/v1', '')}/deals`, {
      headers: {authorization: `Bearer ${API_KEY}`},
    })
    expect(outside.status).toBe(404)
  })
})

describe('List deals', () => {
  test('"Query parameters: `limit` (number, 1 to 100, default 25), `cursor` (string, optional)."', async () => {
    const {next_cursor} = await readPage(service, '?limit=1')
    const page = await readPage(service, `?limit=1&cursor=${next_cursor}`)
    expect(page.data.map(({id}) => id)).toEqual(['deal_000002'])
    expect((await call(service, 'GET', '/deals?limit=ten')).status).toBe(400)
  })

  test('"The client library\'s list operation also accepts a `stage` filter (string; the value `underwriting` is used, the same vocabulary as deal status)"', async () => {
    service.store.update('deal_000002', {status: 'underwriting'})
    expect((await readPage(service, '?status=underwriting')).data.map(({id}) => id)).toEqual(['deal_000002'])
  })

  test('"Response: JSON with `data` holding the deal records. Each record has id, property_address, loan_amount, status, created_at."', async () => {
    const {data} = await readPage(service)
    for (const deal of data)
      expect(Object.keys(deal)).toEqual(['id', 'property_address', 'loan_amount', 'status', 'created_at'])
  })

  test('"Pagination properties has_more and next_cursor are returned"', async () => {
    expect(await readPage(service)).toMatchObject({has_more: false, next_cursor: null})
    expect(await readPage(service, '?limit=1')).toMatchObject({
      has_more: true,
      next_cursor: expect.any(String),
    })
  })

  test('"Lists are cursor-paginated; a client fetches the next page by sending next_cursor as cursor."', async () => {
    for (let n = 0; n < 2; n++) await call(service, 'POST', `${DEAL}/tasks`, {title: String(n)})
    for (const path of ['/deals', `${DEAL}/tasks`]) {
      const read = async (query: string) =>
        (await (await call(service, 'GET', path + query)).json()) as {
          data: {id: string}[]
          next_cursor: string
        }
      const first = await read('?limit=1')
      const second = await read(`?limit=1&cursor=${first.next_cursor}`)
      expect(second.data).toHaveLength(1)
      expect(second.data).not.toEqual(first.data)
    }
  })
})

describe('Create a deal', () => {
  test('"Request body (JSON): property_address (string), loan_amount (number), property_value (number), loan_program (string)."', async () => {
    expect((await call(service, 'POST', '/deals', newDeal)).status).toBe(201)
  })

  test('"Response: `data` holds one deal record with id, property_address, loan_amount, property_value, status (`draft`), created_at (ISO 8601 UTC timestamp)."', async () => {
    const {id, ...deal} = await readDeal(await call(service, 'POST', '/deals', newDeal))
    expect(id).toMatch(/^deal_/)
    expect(deal).toEqual({...newDeal, status: 'draft', created_at: new Date(NOW).toISOString()})
  })
})

describe('Link a borrower to a deal, upload a document to a deal', () => {
  test('"Takes the deal id and a body with first_name, last_name, email, ssn_last_four (all strings)."', async () => {
    const borrower = {first_name: 'A', last_name: 'B', email: 'a@b.example', ssn_last_four: '0001'}
    expect((await call(service, 'POST', `${DEAL}/borrowers`, borrower)).status).toBe(201)
    expect((await call(service, 'POST', '/deals/deal_none/borrowers', borrower)).status).toBe(404)
  })

  test('"Takes the deal id and the fields file, category, name."', async () => {
    expect((await upload(service, 'deal_000001')).status).toBe(201)
    expect((await upload(service, 'deal_none')).status).toBe(404)
  })
})

describe('Authentication', () => {
  test('"Every endpoint requires an API key sent as a Bearer token: header `Authorization: Bearer <API_KEY>`."', async () => {
    for (const authorization of [undefined, API_KEY, `Basic ${btoa(API_KEY)}`, 'Bearer sk_live_unknown']) {
      const response = await fetch(service.url + DEAL, {headers: authorization ? {authorization} : {}})
      expect(response.status).toBe(401)
    }
    expect((await fetch(`${service.url}${DEAL}?api_key=${API_KEY}`)).status).toBe(401)
    expect((await call(service, 'GET', DEAL)).status).toBe(200)
  })

  test('"Live keys carry the prefix `sk_live_`."', async () => {
    const {key} = createApiKey(service.database, {kind: 'live', name: 'x', scopes: ['read'], now: NOW})
    expect(key).toMatch(/^sk_live_/)
    const response = await fetch(service.url + DEAL, {headers: {authorization: `Bearer ${key}`}})
    expect(response.status).toBe(200)
  })
})

describe('Events', () => {
  test('"Notifications are sent for changes to deals, uploads of documents and completion of tasks."', async () => {
    await using receiver = await startReceiver()
    const registered = await call(service, 'POST', '/webhook-endpoints', {url: receiver.url})
    const {secret} = await readData<CreatedWebhookEndpoint>(registered)
    await call(service, 'PATCH', DEAL, {loan_amount: 1})
    await upload(service, 'deal_000001')
    const added = await call(service, 'POST', `${DEAL}/tasks`, {title: 'x'})
    const {id} = await readData<{id: string}>(added)
    await call(service, 'POST', `/tasks/${id}/complete`, {})
    await receiver.waitFor(3)
    const types = receiver.received.map((one) => verifyNotification(one, secret).type)
    expect(types.sort()).toEqual(['deal.updated', 'document.uploaded', 'task.completed'])
  })
})

describe('Limits', () => {
  test('"limit parameter | list endpoints | 1 to 100, default 25"', async () => {
    const lists = pathsOf().filter(([, {isList}]) => isList)
    service.store.insert([aDeal(99, {id: 'none'})])
    for (const [path] of lists.filter(([one]) => !one.includes('webhook-endpoints/'))) {
      const statuses = await Promise.all(
        [0, 1, 100, 101].map(async (limit) => (await call(service, 'GET', `${path}?limit=${limit}`)).status),
      )
      expect([path, statuses]).toEqual([path, [400, 200, 200, 400]])
    }
  })

  test('"Requests are rate-limited to prevent abuse."', async () => {
    await using limited = await startTestService({rateLimit: {perSecond: 0.01, burst: 1}})
    expect((await call(limited, 'GET', '/deals')).status).toBe(200)
    const refused = await call(limited, 'GET', '/deals')
    expect([refused.status, (await readProblem(refused)).code]).toEqual([429, 'rate_limited'])
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
  })
})

test('every sentence that ends in "not shown" is decided in docs/service-decisions.md', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/service-decisions.md'), 'utf8').replace(
    /\s+/g,
    ' ',
  )
  const open = [
    'Other fields of a deal',
    'Allowed values of loan_program',
    'Which creation fields are required',
    'Fields of the borrower record as returned',
    'Fields of the document record as returned, and the full set of categories',
    'Task resource fields',
    'Transitions between the other states',
    'Complete set of states',
    'the name of this filter as a REST query parameter',
    'their position in the body',
    'Status code of the response',
    'Link a borrower to a deal: Method and path',
    'Link a borrower to a deal: Response',
    'Method, path and encoding of the upload',
    'Upload a document to a deal: Response',
    'Per-deal retrieval, update and deletion, and operations for tasks, document generation, rates and reporting',
    'The semantics of the HTTP methods in general',
    'Key issuance, scopes, expiry and the response to a missing or invalid key',
    'Event names and kinds',
    'Payload of an event',
    'Registration of endpoints, delivery, retries and signing',
    'Shape of error responses',
    'Status codes and error codes, and which condition yields which',
    'Quotas and throttling behavior',
    'File size and count limits for uploads',
    'Versioning scheme',
  ]
  expect(open.filter((sentence) => !page.includes(`“${sentence}”`))).toEqual([])
  const numbers = [...page.matchAll(/## (\d+)\. /g)].map(([, number]) => Number(number))
  expect(numbers).toEqual(open.map((_, index) => index + 1))
})
