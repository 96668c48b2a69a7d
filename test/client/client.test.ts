import {gzipSync} from 'node:zlib'
import {beforeEach, expect, test} from 'vitest'
import {ApiError, createDealClient, type DealClient} from '../../src/client/index.ts'
import {API_KEY, insertDeals, PDF, startTestService} from '../service/client.ts'
import {startReceiver} from '../service/receiver.ts'
import {startTestServer} from '../source/test-server.ts'
import {useShared} from '../support/set-up.ts'
import {signEvent} from '../support/webhooks.ts'

const newDeal = {
  property_address: '12 Main St',
  loan_amount: 350_000,
  property_value: 500_000,
  loan_program: 'bridge_30yr',
}

/** So long that a slow machine does not look like a failing service. */
const PATIENT_MS = 1_800_000

const service = await useShared(startTestService({webhooks: {allowPrivate: true}}))
let waits: number[] = []

const createClient = (options: {apiKey?: string; retries?: number} = {}): DealClient =>
  createDealClient({
    baseUrl: `${service.url}/`,
    apiKey: API_KEY,
    timeoutMs: PATIENT_MS,
    clock: {now: () => Date.now(), sleep: async (ms) => void waits.push(ms)},
    random: () => 0.5,
    ...options,
  })
const failureOf = async (work: Promise<unknown>): Promise<ApiError> => {
  const error = await work.catch((thrown: unknown) => thrown)
  expect(error).toBeInstanceOf(ApiError)
  return error as ApiError
}

const client = createClient()
beforeEach(service.remember())
beforeEach(() => {
  waits = []
})

test('lists every deal over all pages, filtered by stage, and requests no page it does not need', async () => {
  insertDeals(service, 7)
  service.store.update('deal_000003', {status: 'underwriting'})
  const ids = async (list: AsyncIterable<{id: string}>) => (await Array.fromAsync(list)).map(({id}) => id)
  expect(await ids(client.deals.list({stage: 'underwriting'}))).toEqual(['deal_000003'])
  const [first] = await Array.fromAsync(client.deals.list({limit: 3}).pages())
  // Goes on from a page of another run.
  const rest = await ids(client.deals.list({limit: 3, cursor: first?.nextCursor ?? ''}))
  expect([...(first?.records.map(({id}) => id) ?? []), ...rest]).toEqual(service.store.ids())
  service.requests.clear()
  for await (const deal of client.deals.list({limit: 2})) if (deal.id === 'deal_000003') break
  expect(service.requests.count).toBe(2)
})

test('a call ends with its signal, and an attempt with its own time', async () => {
  const abort = new AbortController()
  const call = client.deals.get('deal_000001', {signal: abort.signal})
  abort.abort(new Error('no longer wanted'))
  await expect(call).rejects.toThrow('no longer wanted')
  service.faults.add({fault: {kind: 'status', status: 503, headers: {'retry-after': '50'}}})
  const waiting = createDealClient({baseUrl: service.url, apiKey: API_KEY, random: () => 1})
  const soon = AbortSignal.timeout(100)
  const late503 = waiting.deals.list({signal: soon}).pages().next()
  expect(await late503.catch((error: unknown) => error)).toBe(soon.reason)
  service.faults.clear()
  service.faults.add({fault: {kind: 'wrong_json'}})
  expect(await failureOf(client.deals.get('deal_000001'))).toMatchObject({status: 200, code: 'unknown'})
  service.faults.clear()
  service.faults.add({fault: {kind: 'delay', ms: 3_600_000}})
  const late = createClient({retries: 0}).deals.get('deal_000001', {timeoutMs: 50})
  expect(await failureOf(late)).toMatchObject({status: 0, code: 'no_answer'})
})

test('reads a list wherever its paging fields are, and throws if it does not go on', async () => {
  insertDeals(service, 5)
  const readAll = () => Array.fromAsync(client.deals.list({limit: 2}))
  service.faults.add({match: {path: '/deals?'}, fault: {kind: 'envelope', shape: 'data_object'}})
  expect(await readAll()).toHaveLength(5)
  const broken = [{kind: 'envelope', shape: 'no_cursor'}, {kind: 'repeat_cursor'}, {kind: 'html'}] as const
  for (const fault of broken) {
    service.faults.clear()
    service.faults.add({match: {path: '/deals?'}, fault})
    expect(await failureOf(readAll())).toMatchObject({status: 200, code: 'broken_list'})
  }
})

test('does everything the API offers for a deal', async () => {
  const deal = await client.deals.create(newDeal)
  expect(await client.deals.get(deal.id)).toEqual(deal)
  const changed = await client.deals.update(deal.id, {status: 'underwriting'})
  expect(changed.status).toBe('underwriting')
  const stale = client.deals.update(deal.id, {loan_amount: 1}, {ifMatch: deal.etag})
  expect((await failureOf(stale)).code).toBe('precondition_failed')
  expect(JSON.stringify(changed)).not.toContain('etag')
  await client.deals.update(deal.id, {loan_amount: 350_000}, {ifMatch: changed.etag})
  const ada = {first_name: 'Ada', last_name: 'L', email: 'a@b.example'}
  const borrower = await client.borrowers.link(deal.id, ada)
  expect(await Array.fromAsync(client.borrowers.list(deal.id))).toEqual([borrower])

  const file = new TextEncoder().encode(PDF)
  const document = await client.documents.upload(deal.id, {file, category: 'appraisal', name: 'Appraisal'})
  expect(await (await client.documents.download(deal.id, document.id)).text()).toBe(PDF)
  expect(await Array.fromAsync(client.documents.list(deal.id))).toEqual([document])
  expect(await client.documents.get(deal.id, document.id)).toEqual(document)

  const task = await client.tasks.create(deal.id, {title: 'Order title'})
  const completed = await client.tasks.complete(task.id)
  expect(await Array.fromAsync(client.tasks.list(deal.id))).toEqual([completed])
  const asked = await client.documentGenerations.request(deal.id, {template: 'term_sheet'})
  expect((await client.documentGenerations.get(deal.id, asked.id)).id).toBe(asked.id)
  expect(await Array.fromAsync(client.documentGenerations.list(deal.id))).toMatchObject([{id: asked.id}])

  const rate = await client.rates.push({provider: 'acme', loan_program: 'bridge_30yr', rate_pct: 7})
  expect(await Array.fromAsync(client.rates.list({current: true}))).toEqual([rate])
  expect(await client.reports.portfolio()).toMatchObject({deals: 1, amount: '350000.00'})
  expect(await client.deals.delete(deal.id)).toBeUndefined()
  expect(await failureOf(client.deals.get(deal.id))).toMatchObject({status: 404, code: 'deal_not_found'})
})

test('a refusal names code, fields and request', async () => {
  const refusal = await failureOf(client.deals.create({...newDeal, loan_amount: -1}))
  const requestId = expect.stringMatching(/^req_/)
  expect(refusal).toMatchObject({status: 400, code: 'invalid_body', requestId})
  expect(refusal.errors.map(({path}) => path)).toEqual(['loan_amount'])
  expect((await failureOf(createClient({apiKey: 'sk_test_x'}).deals.get('x'))).code).toBe('invalid_token')
  expect(waits).toEqual([])
})

test('a refusal keeps the reason of a service that leaves out members of problem details', async () => {
  const told = [
    [
      {title: 'Unprocessable', status: '422', detail: 'The amount is too small.', errors: 'none'},
      'The amount is too small.',
    ],
    [{title: 'Conflict', errors: [{path: 'loan_amount', message: 'too small'}]}, 'Conflict'],
    [{error: 'private'}, 'The service answered 422 without saying why.'],
    [['private'], 'The service answered 422 without saying why.'],
  ] as const
  for (const [body, reason] of told) {
    service.faults.add({match: {times: 1}, fault: {kind: 'status', status: 422, body: JSON.stringify(body)}})
    const refusal = await failureOf(client.deals.create(newDeal))
    expect(refusal).toMatchObject({status: 422, code: 'unknown', message: `${reason} [unknown]`})
    expect(refusal.errors).toEqual('errors' in body && body.errors !== 'none' ? body.errors : [])
  }
})

test('neither a redirect nor a header that cannot be sent is asked again', async () => {
  service.faults.add({fault: {kind: 'status', status: 301, body: 'moved', headers: {location: '/v2'}}})
  expect(await failureOf(client.deals.get('x'))).toMatchObject({status: 301, code: 'unknown'})
  await expect(client.deals.create(newDeal, {idempotencyKey: 'Straße №5'})).rejects.toThrow(TypeError)
  expect([service.requests.count, ...waits]).toEqual([1])
})

test('a creation whose answer is lost is sent again under one key and takes effect once', async () => {
  service.faults.add({match: {method: 'POST', times: 2}, fault: {kind: 'reset', when: 'mid_body'}})
  service.faults.add({match: {method: 'POST', nth: 3}, fault: {kind: 'status', status: 502}})
  const deal = await client.deals.create(newDeal)
  expect([deal.id]).toEqual(service.store.ids())
  expect(waits).toEqual([125, 250, 500])
  expect(service.store.count()).toBe(1)
})

test('waits as long as the service asks, at most a minute, and gives up after the last retry', async () => {
  service.faults.add({match: {times: 1}, fault: {kind: 'status', status: 429, headers: {'retry-after': '7'}}})
  const headers = {'retry-after': '86400'}
  service.faults.add({match: {nth: 2}, fault: {kind: 'status', status: 429, headers}})
  insertDeals(service, 1)
  expect((await client.deals.update('deal_000001', {loan_amount: 2})).loan_amount).toBe(2)
  expect(waits).toEqual([7000, 60_000])

  service.faults.add({fault: {kind: 'status', status: 503, headers: {'retry-after': '0'}}})
  expect((await failureOf(createClient({retries: 2}).deals.get('x'))).status).toBe(503)
  expect(waits).toEqual([7000, 60_000, 125, 250])
})

test('an answer that unpacks beyond the limit is abandoned, once', async () => {
  const packed = gzipSync(Buffer.alloc(70 * 1024 * 1024, ' '))
  const headers = {'content-type': 'application/json', 'content-encoding': 'gzip'}
  await using bomb = await startTestServer((_request, response) => {
    response.writeHead(200, headers).end(packed)
  })
  const lured = createDealClient({baseUrl: bomb.url, apiKey: API_KEY, timeoutMs: PATIENT_MS})
  expect(await failureOf(lured.deals.get('deal_1'))).toMatchObject({code: 'answer_too_large', status: 200})
  expect(await failureOf(lured.deals.create(newDeal))).toMatchObject({mayBeDone: true})
  expect(bomb.requests).toHaveLength(2)
})

test('sends no change twice if the first may have taken effect', async () => {
  insertDeals(service, 1)
  service.faults.add({fault: {kind: 'reset', when: 'before_headers'}})
  const lost = client.deals.update('deal_000001', {loan_amount: 2})
  expect(await failureOf(lost)).toMatchObject({status: 0, code: 'no_answer'})
  expect(service.requests.count).toBe(1)
})

test('an answer that cannot be read says that what was asked for may have been done', async () => {
  const bodies = ['<p>Done</p>', '{"data": {}}', '']
  await using mute = await startTestServer(
    (_request, response, turn) => void response.writeHead(201).end(bodies[turn] ?? ''),
  )
  const {deals} = createDealClient({baseUrl: mute.url, apiKey: API_KEY, timeoutMs: PATIENT_MS})
  const unread = {status: 201, code: 'unknown', mayBeDone: true}
  for (const _ of bodies) expect(await failureOf(deals.create(newDeal))).toMatchObject(unread)
  expect(await failureOf(deals.get('deal_1'))).toMatchObject({mayBeDone: false})
  await deals.delete('deal_1')
})

test('what can never be sent is refused at once', () => {
  for (const [baseUrl, apiKey] of [
    ['', API_KEY],
    ['deals.example.com/v1', API_KEY],
    ['localhost:4010/v1', API_KEY],
    ['http://a:b@localhost:4010/v1', API_KEY],
    [service.url, 'sk_test_a\nb'],
  ] as const)
    expect(() => createDealClient({baseUrl, apiKey})).toThrow(TypeError)
})

test('reads only what the service signed', async () => {
  await using receiver = await startReceiver()
  const {id, secret} = await client.webhookEndpoints.create({url: receiver.url, events: ['deal.created']})
  const deal = await client.deals.create(newDeal)
  await receiver.waitFor(1)
  const {text, headers} = receiver.received[0]!
  const event = {type: 'deal.created', data: {id: deal.id}}
  for (const given of [headers, new Headers(headers as Record<string, string>)])
    expect(client.webhooks.verify(text, given, secret)).toMatchObject(event)
  expect(() => client.webhooks.verify(`${text} `, headers, secret)).toThrow('signature')
  const newer = JSON.stringify({type: 'deal.priced', timestamp: '2026-02-03T10:00:00Z', data: {id: deal.id}})
  const signed = signEvent(secret, 'msg_1', newer)
  expect(client.webhooks.verify(newer, signed, secret)).toEqual(JSON.parse(newer))
  const another = `whsec_${btoa('x'.repeat(32))}`
  expect(() => client.webhooks.verify(text, headers, another)).toThrow('signature')
  const [delivery] = await Array.fromAsync(client.webhookEndpoints.deliveries(id))
  await client.webhookEndpoints.redeliver(id, delivery!.id)
  await receiver.waitFor(2)
  expect((await client.webhookEndpoints.update(id, {status: 'disabled'})).status).toBe('disabled')
  expect(await client.webhookEndpoints.get(id)).toMatchObject({url: receiver.url, status: 'disabled'})
  await client.webhookEndpoints.delete(id)
  expect(await Array.fromAsync(client.webhookEndpoints.list())).toEqual([])
})

test("a caller's own fetch gets headers that it can read and spread", async () => {
  let asked: RequestInit = {}
  const fetch = async (_url: unknown, init?: RequestInit) => {
    asked = init ?? {}
    return Response.json({data: {id: 'deal_1'}}, {status: 201})
  }
  const own = createDealClient({baseUrl: 'http://127.0.0.1/v1', apiKey: 'sk_test_own', fetch})
  await own.deals.create({property_address: '1 Main St', loan_amount: 1}, {idempotencyKey: 'crm-1'})
  expect({...asked.headers}).toMatchObject({authorization: 'Bearer sk_test_own', 'idempotency-key': 'crm-1'})
})
