import {beforeEach, expect, test} from 'vitest'
import type {Borrower} from '../../src/contract/borrower.ts'
import type {Deal} from '../../src/contract/deal.ts'
import type {DealDocument} from '../../src/contract/document.ts'
import type {Endpoint} from '../../src/contract/endpoint.ts'
import {ENDPOINTS} from '../../src/contract/endpoints.ts'
import {useShared} from '../support/set-up.ts'
import {
  API_KEY,
  aDeal,
  call,
  insertDeals,
  NOW,
  PDF,
  readData,
  readPage,
  startTestService,
  upload,
  walkIds,
} from './client.ts'

// The comments quote the specification; the other files of this folder cover the rest, as access.test.ts authentication and Schemathesis the limits of every list.
const service = await useShared(startTestService())
insertDeals(service, 3)
beforeEach(service.remember())

const newDeal = {
  property_address: '12 Main St, Austin, TX 78701',
  loan_amount: 350_000.1,
  property_value: 500_000,
  loan_program: 'bridge_30yr',
}
const DEAL = '/deals/deal_000001'
const create = (body: object = newDeal): Promise<Response> => call(service, 'POST', '/deals', body)
const statusOf = async (path: string, body?: unknown): Promise<number> =>
  (await call(service, body === undefined ? 'GET' : 'POST', path, body)).status
const pathsOf = (): [string, Endpoint][] =>
  Object.values(ENDPOINTS).map((endpoint: Endpoint) => [endpoint.path.replace(/\{\w+\}/g, 'none'), endpoint])

test('Conventions', async () => {
  // "All endpoints require Bearer authentication. Responses are JSON."
  for (const [path, {method}] of pathsOf()) {
    const response = await fetch(service.url + path, {method})
    expect([method, path, response.status]).toEqual([method, path, 401])
    expect(response.headers.get('www-authenticate')).toMatch(/^Bearer /)
  }
  expect((await call(service, 'GET', DEAL)).headers.get('content-type')).toMatch(/^application\/json/)

  // "Request bodies are JSON. POST, PUT and PATCH requests carry the header `Content-Type: application/json`."
  const writing = pathsOf().filter(([, {method, isMultipart}]) => /^P/.test(method) && !isMultipart)
  expect(writing.length).toBeGreaterThan(9)
  for (const [path, {method}] of writing) {
    const headers = {authorization: `Bearer ${API_KEY}`, 'content-type': 'text/plain'}
    const response = await fetch(service.url + path, {method, headers, body: '{}'})
    expect([path, response.status]).toEqual([path, 415])
  }

  // "Successful responses use an envelope: a top-level object with a `data` key holding the record."
  for (const path of [DEAL, '/deals', '/rates', '/reports/portfolio', `${DEAL}/tasks`, '/webhook-endpoints'])
    expect(await (await call(service, 'GET', path)).json()).toHaveProperty('data')

  // "Paths below are relative to {base_url}, which already includes the API prefix."
  expect(service.url).toMatch(/\/v1$/)
  const headers = {authorization: `Bearer ${API_KEY}`}
  expect((await fetch(`${service.url.replace('/v1', '')}/deals`, {headers})).status).toBe(404)
})

test('List deals, and pagination', async () => {
  // "Response: JSON with `data` holding the deal records. Each record has id, property_address, loan_amount, status, created_at."
  const {data} = await readPage(service)
  for (const deal of data)
    expect(Object.keys(deal)).toEqual(['id', 'property_address', 'loan_amount', 'status', 'created_at'])

  // "The client library's list operation also accepts a `stage` filter (string; the value `underwriting` is used …)"
  service.store.update('deal_000002', {status: 'underwriting'})
  expect((await readPage(service, '?status=underwriting')).data.map(({id}) => id)).toEqual(['deal_000002'])

  // "limit: number. Maximum records to return; 1 to 100; default 25. Request parameter."
  service.store.insert(Array.from({length: 98}, (_, index) => aDeal(index + 4)))
  expect((await readPage(service)).data).toHaveLength(25)
  for (const limit of [1, 100]) expect((await readPage(service, `?limit=${limit}`)).data).toHaveLength(limit)

  // "cursor: string. Cursor taken from a previous response to get the next page." "has_more: boolean. True when more records exist
  // beyond this page." "next_cursor: string. Cursor value for fetching the next page."
  const first = await readPage(service, '?limit=100')
  expect(first).toMatchObject({has_more: true, next_cursor: expect.any(String)})
  const last = await readPage(service, `?limit=100&cursor=${first.next_cursor}`)
  expect(last).toMatchObject({data: [{id: 'deal_000101'}], has_more: false, next_cursor: null})
  expect(await walkIds(service, 25)).toHaveLength(101)
})

test('Deal', async () => {
  // "Request body (JSON): property_address (string), loan_amount (number), property_value (number), loan_program (string)."
  // "Response: `data` holds one deal record with id, property_address, loan_amount, property_value, status (`draft`), created_at
  // (ISO 8601 UTC timestamp)." "id: string. Deal identifier, prefixed `deal_` followed by an opaque suffix. Assigned by the service."
  const response = await create()
  expect(response.status).toBe(201)
  const {id, ...deal} = await readData<Deal>(response)
  expect(id).toMatch(/^deal_[a-z0-9]{20}$/)
  expect(response.headers.get('location')).toBe(`/v1/deals/${id}`)
  expect(deal).toEqual({...newDeal, status: 'draft', created_at: new Date(NOW).toISOString()})
  expect((await readPage(service)).data.find((listed) => listed.id === id)?.created_at).toBe(deal.created_at)

  // "property_address: string. Street address of the property, free text. Sent on creation."
  for (const property_address of [
    'Parcel 12-0, behind the mill',
    '12 "The Foundry"\nUnit 4',
    'Calle José Martí 1 🏠',
    `1 Main St'); drop table deal; -- $(reboot) <script> \\x00\\u0000`,
  ])
    expect(await readData<Deal>(create({...newDeal, property_address}))).toMatchObject({
      property_address,
    })
  // "loan_amount: number. Sent on creation." "property_value: number. Sent on creation."
  for (const field of ['loan_amount', 'property_value'])
    for (const amount of [0, 0.01, 350_000.1, 1e6, 69_999_999_999_999.98])
      expect(await readData<Deal>(create({...newDeal, [field]: amount}))).toMatchObject({
        [field]: amount,
      })
  const wrong = {
    id: 'deal_mine',
    property_address: 12,
    loan_amount: '350000',
    property_value: '1',
    loan_program: 30,
  }
  for (const [field, value] of Object.entries(wrong))
    expect([field, (await create({...newDeal, [field]: value})).status]).toEqual([field, 400])

  // "Deal `status` values that occur: `draft`, `underwriting`, `approved`, `funded`."
  for (const status of ['underwriting', 'approved', 'funded'])
    expect(await readData<Deal>(call(service, 'PATCH', DEAL, {status}))).toMatchObject({status})
})

test('Link a borrower to a deal, upload a document to a deal', async () => {
  // "Takes the deal id and a body with first_name, last_name, email, ssn_last_four (all strings)."
  const borrower = {first_name: 'Ada', last_name: 'Lovelace', email: 'ada@example.com', ssn_last_four: '6789'}
  const {ssn_last_four, ...shown} = borrower
  expect(await readData<Borrower>(call(service, 'POST', `${DEAL}/borrowers`, borrower))).toMatchObject(shown)
  for (const digits of ['67890', 'abcd', '678', 6789])
    expect(await statusOf(`${DEAL}/borrowers`, {...borrower, ssn_last_four: digits})).toBe(400)
  expect(await statusOf('/deals/deal_none/borrowers', borrower)).toBe(404)

  // "Takes the deal id and the fields file, category, name." "name: string. Human-readable document name."
  const name = 'Appraisal of 12 Main St – final (2)'
  const document = await readData<DealDocument>(upload(service, 'deal_000001', {name}))
  expect(document).toMatchObject({category: 'appraisal', name})
  expect(await (await call(service, 'GET', `${DEAL}/documents/${document.id}/content`)).text()).toBe(PDF)
  expect((await upload(service, 'deal_none')).status).toBe(404)
})
