import {afterEach, beforeEach, expect, onTestFinished, test, vi} from 'vitest'
import {
  type CreatedWebhookEndpoint,
  EVENT_TYPES,
  type WebhookDelivery,
  type WebhookEndpoint,
} from '../../src/contract/webhook.ts'
import {createLog} from '../../src/core/log.ts'
import type {RunningService} from '../../src/service/server.ts'
import {type AddressLookup, createAddressGuard, pruneDeliveries} from '../../src/service/webhooks.ts'
import {until} from '../support/until.ts'
import {aDeal, call, get, NOW, readData, readRefusal, startTestService, upload} from './client.ts'
import {type Receiver, startReceiver, verifyNotification} from './receiver.ts'

const SECRET_WORDS = /Main St|\bAda\b|Lovelace|ada@|\b6789\b|Order title|Appraisal|350000/

let service: RunningService
let receiver: Receiver

beforeEach(async () => {
  receiver = await startReceiver()
  service = await startTestService({webhooks: {allowPrivate: true, retryDelaysMs: [1, 1, 1]}})
  service.store.insert([aDeal(1), aDeal(2)])
})
afterEach(async () => {
  await service.close()
  await receiver[Symbol.asyncDispose]()
})

const register = async (fields: object = {}): Promise<CreatedWebhookEndpoint> =>
  await readData(call(service, 'POST', '/webhook-endpoints', {url: receiver.url, ...fields}))
const deliveriesOf = ({id}: WebhookEndpoint) =>
  get<WebhookDelivery[]>(service, `/webhook-endpoints/${id}/deliveries`)
const settled = (endpoint: WebhookEndpoint, count: number): Promise<WebhookDelivery[]> =>
  until(async () => {
    const deliveries = await deliveriesOf(endpoint)
    return deliveries.filter(({status}) => status !== 'pending').length === count && deliveries
  })

test('every change is told once, signed, with ids and statuses and nothing personal', async () => {
  const {secret} = await register({url: receiver.url.replace('127.0.0.1', 'localhost')})
  const deal = {property_address: '1 Main St', loan_amount: 350_000}
  const {id} = await readData<{id: string}>(call(service, 'POST', '/deals', deal))
  await call(service, 'PATCH', '/deals/deal_000001', {status: 'underwriting'})
  await call(service, 'PATCH', '/deals/deal_000001', {status: 'underwriting'})
  const ada = {first_name: 'Ada', last_name: 'Lovelace', email: 'ada@example.com', ssn_last_four: '6789'}
  await call(service, 'POST', '/deals/deal_000001/borrowers', ada)
  const document = await readData<{id: string}>(upload(service, 'deal_000001'))
  const added = await call(service, 'POST', '/deals/deal_000001/tasks', {title: 'Order title'})
  const task = await readData<{id: string}>(added)
  for (let turn = 0; turn < 2; turn++) await call(service, 'POST', `/tasks/${task.id}/complete`, {})
  await call(service, 'DELETE', '/deals/deal_000002')
  await receiver.waitFor(5)

  const events = receiver.received.map((notification) => verifyNotification(notification, secret))
  expect(events.map(({type, data}) => ({type, ...data})).sort((a, b) => (a.type < b.type ? -1 : 1))).toEqual([
    {type: 'deal.created', id, deal_id: id, status: 'draft'},
    {type: 'deal.deleted', id: 'deal_000002', deal_id: 'deal_000002', status: 'draft'},
    {type: 'deal.updated', id: 'deal_000001', deal_id: 'deal_000001', status: 'underwriting'},
    {type: 'document.uploaded', id: document.id, deal_id: 'deal_000001', category: 'appraisal'},
    {type: 'task.completed', id: task.id, deal_id: 'deal_000001', status: 'completed'},
  ])
  for (const {text} of receiver.received) expect(text).not.toMatch(SECRET_WORDS)
  expect(new Set(receiver.received.map((notification) => notification.id)).size).toBe(5)
  expect(receiver.received[0]?.headers['content-type']).toBe('application/json')
})

test('an endpoint hears only what it asked for, of no refused change, and none is made unless it is stored', async () => {
  const endpoint = await register({events: ['deal.deleted', 'deal.created']})
  await call(service, 'POST', '/deals', {loan_amount: 1})
  await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: 5})
  await call(service, 'DELETE', '/deals/deal_000002')
  await receiver.waitFor(1)
  expect((await deliveriesOf(endpoint)).map(({event_type}) => event_type)).toEqual(['deal.deleted'])

  await register()
  const before = service.store.get('deal_000001')
  service.database.db.prepare('alter table webhook_delivery rename to elsewhere').run()
  expect((await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: 6})).status).toBe(500)
  expect(service.store.get('deal_000001')).toEqual(before)
})

test('a delivery is sent again under the same id until its schedule ends, then failed, and can be resent by hand', async () => {
  receiver.answer = (turn) => (turn === 1 ? 302 : 503)
  const endpoint = await register()
  await call(service, 'DELETE', '/deals/deal_000002')
  const [failed] = await settled(endpoint, 1)
  expect(failed).toMatchObject({status: 'failed', attempts: 4, last_status: 503})

  receiver.answer = () => 204
  const path = `/webhook-endpoints/${endpoint.id}/deliveries/${failed!.id}/redeliver`
  const response = await call(service, 'POST', path, {})
  expect(response.status).toBe(202)
  await receiver.waitFor(5)
  const taken = {status: 'delivered', attempts: 1, last_status: 204, next_attempt_at: null}
  expect(await settled(endpoint, 1)).toMatchObject([taken])
  expect(receiver.received.map(({id}) => id)).toEqual(Array(5).fill(failed!.event_id))
  for (const notification of receiver.received) verifyNotification(notification, endpoint.secret)

  const unknown = await call(service, 'POST', path.replace(failed!.id, 'dlv_none'), {})
  expect(await readRefusal(unknown)).toBe('404 webhook_delivery_not_found')
  await call(service, 'PATCH', `/webhook-endpoints/${endpoint.id}`, {status: 'disabled'})
  const unheard = await call(service, 'POST', path, {})
  expect(await readRefusal(unheard)).toBe('409 webhook_endpoint_disabled')
  expect(await settled(endpoint, 1)).toMatchObject([{status: 'delivered'}])
})

test('an endpoint that never answers holds up no other', async () => {
  await using silent = await startReceiver()
  silent.answer = () => 0
  const hanging = await register({url: silent.url})
  const endpoint = await register()
  for (let amount = 1; amount <= 30; amount++)
    await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: amount})
  await receiver.waitFor(30)
  expect(await deliveriesOf(endpoint)).toHaveLength(25)
  await silent.waitFor(4)
  expect(silent.received).toHaveLength(4)
  expect((await deliveriesOf(hanging)).every(({status}) => status === 'pending')).toBe(true)
})

test('410 disables the endpoint until it is enabled again', async () => {
  receiver.answer = () => 410
  const endpoint = await register()
  await call(service, 'DELETE', '/deals/deal_000002')
  expect(await settled(endpoint, 1)).toMatchObject([{status: 'failed', attempts: 1, last_status: 410}])
  const path = `/webhook-endpoints/${endpoint.id}`
  expect(await get(service, path)).toMatchObject({
    status: 'disabled',
    disabled_reason: 'answered 410 Gone',
  })
  await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: 5})
  expect(await deliveriesOf(endpoint)).toHaveLength(1)

  receiver.answer = () => 200
  expect(endpoint.events).toEqual(EVENT_TYPES)
  const change = {status: 'enabled', events: ['deal.updated', 'deal.updated']}
  const enabled = await readData(call(service, 'PATCH', path, change))
  expect(enabled).toMatchObject({status: 'enabled', disabled_reason: null, events: ['deal.updated']})
  await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: 6})
  expect((await settled(endpoint, 2)).map(({status}) => status).sort()).toEqual(['delivered', 'failed'])
})

test('an answer to an earlier address neither disables the endpoint nor ends the delivery', async () => {
  await using old = await startReceiver()
  const {promise, resolve} = Promise.withResolvers<number>()
  old.answer = () => promise
  const endpoint = await register({url: old.url})
  await call(service, 'DELETE', '/deals/deal_000002')
  await old.waitFor(1)
  const path = `/webhook-endpoints/${endpoint.id}`
  expect((await call(service, 'PATCH', path, {url: receiver.url})).status).toBe(200)
  resolve(410)
  expect(await settled(endpoint, 1)).toMatchObject([{status: 'delivered', attempts: 2}])
  expect(await get(service, path)).toMatchObject({status: 'enabled', disabled_reason: null})
})

test('a delivery resent by hand during its last attempt is sent again, whatever that brings', async () => {
  const {promise, resolve} = Promise.withResolvers<number>()
  receiver.answer = (turn) => [503, 503, 503, promise][turn] ?? 204
  const endpoint = await register()
  await call(service, 'DELETE', '/deals/deal_000002')
  await receiver.waitFor(4)
  const path = `/webhook-endpoints/${endpoint.id}/deliveries`
  const [delivery] = await deliveriesOf(endpoint)
  expect((await call(service, 'POST', `${path}/${delivery!.id}/redeliver`, {})).status).toBe(202)
  resolve(503)
  expect(await settled(endpoint, 1)).toMatchObject([{status: 'delivered', attempts: 1, last_status: 204}])
})

test('after the clock was set back by a day, nothing waits for a day', async () => {
  await service.close()
  service = await startTestService({webhooks: {allowPrivate: true, retryDelaysMs: [60_000]}})
  service.store.insert([aDeal(1), aDeal(2)])
  vi.useFakeTimers({toFake: ['Date'], now: Date.now() + 86_400_000})
  onTestFinished(() => void vi.useRealTimers())
  const endpoint = await register({url: 'http://127.0.0.1:9/'})
  await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: 5})
  await until(async () => (await deliveriesOf(endpoint))[0]?.attempts === 1)
  vi.useRealTimers()
  await call(service, 'PATCH', `/webhook-endpoints/${endpoint.id}`, {url: receiver.url})
  await call(service, 'DELETE', '/deals/deal_000002')
  const delivered = {status: 'delivered'}
  expect(await settled(endpoint, 2)).toMatchObject([delivered, delivered])
})

test('what was sent while its outcome could not be stored is sent again, and holds up nothing behind it', async () => {
  await service.close()
  let failures = 0
  const log = createLog({level: 'error'}, {write: () => void failures++})
  service = await startTestService({webhooks: {allowPrivate: true, retryDelaysMs: [1]}, log})
  service.store.insert([aDeal(1)])
  const endpoint = await register()
  const full = `create trigger full before update on webhook_delivery
    begin select raise(abort, 'disk is full'); end`
  service.database.run(full)
  for (let amount = 1; amount <= 5; amount++)
    await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: amount})
  await until(() => failures >= 4)
  service.database.run('drop trigger full')
  const delivered = {status: 'delivered', attempts: 1}
  expect(await settled(endpoint, 5)).toMatchObject(Array(5).fill(delivered))
})

test('the secret is shown on creation and never again', async () => {
  const endpoint = await register({description: 'CRM'})
  expect(endpoint.secret).toMatch(/^whsec_[A-Za-z0-9+/=]{44}$/)
  const {secret, ...shown} = endpoint
  const path = `/webhook-endpoints/${endpoint.id}`
  expect(await get(service, path)).toEqual(shown)
  expect(await get(service, '/webhook-endpoints')).toEqual([shown])
  expect((await call(service, 'DELETE', path)).status).toBe(204)
  expect((await call(service, 'GET', path)).status).toBe(404)
})

test('deliveries that ended 30 days ago are forgotten, pending ones are not', async () => {
  const endpoint = await register()
  await call(service, 'DELETE', '/deals/deal_000002')
  await settled(endpoint, 1)
  pruneDeliveries(service.database, NOW + 30 * 86_400_000)
  expect(await deliveriesOf(endpoint)).toHaveLength(1)
  service.database.run("update webhook_delivery set status = 'pending', next_attempt_at = 8000000000000")
  pruneDeliveries(service.database, NOW + 31 * 86_400_000)
  expect(await deliveriesOf(endpoint)).toHaveLength(1)
  service.database.run("update webhook_delivery set status = 'failed'")
  pruneDeliveries(service.database, NOW + 31 * 86_400_000)
  expect(await deliveriesOf(endpoint)).toEqual([])
  expect(service.database.db.prepare('select * from event').all()).toEqual([])
})

/** Creates a lookup of names, each with its addresses for the first, second, … lookup. */
function createLookup(): AddressLookup {
  const names: Record<string, string[][]> = {
    localhost: [['127.0.0.1']],
    'public.example': [['93.184.215.14']],
    'inside.example': [['10.1.2.3']],
    'mixed.example': [['93.184.215.14', '127.0.0.1']],
    'leaving.example': [['93.184.215.14'], []],
    'rebinding.example': [['93.184.215.14'], ['93.184.215.14'], ['127.0.0.1']],
  }
  return (name, _options, callback) => {
    const answers = names[name] ?? []
    const addresses = answers.length > 1 ? answers.shift() : answers[0]
    const found = (addresses ?? []).map((address) => ({address, family: 4}))
    callback(addresses ? null : new Error('ENOTFOUND'), found)
  }
}

const PRIVATE = [
  ...['127.0.0.1', '127.255.0.9', '10.0.0.1', '172.31.255.255', '192.168.1.1', '169.254.169.254'],
  ...['100.64.0.1', '0.0.0.0', '224.0.0.1', '255.255.255.255', '[::1]', '[::]', '[::ffff:127.0.0.1]'],
  ...['[::ffff:a00:1]', '[fd00::1]', '[fe80::1]', '[64:ff9b::7f00:1]', '[2002:7f00:1::]', '[ff02::1]'],
  ...['localhost', '2130706433', '0x7f.1', 'inside.example', 'mixed.example', 'nowhere.example'],
]
const PUBLIC = ['public.example', '172.32.0.1', '[2606:4700::1111]', '[::ffff:93.184.215.14]']

test('notifications go only to public https hosts', async () => {
  const guard = createAddressGuard({allowPrivate: false, lookup: createLookup()})
  const refused = [...PRIVATE.map((host) => `https://${host}/x`), 'http://public.example/x']
  for (const url of [...refused, 'https://user:secret@public.example/x'])
    expect([url, await guard.findProblem(url)]).toEqual([url, expect.stringMatching(/^expected /)])
  for (const host of PUBLIC)
    expect([host, await guard.findProblem(`https://${host}/x`)]).toEqual([host, null])
})

test('a private address can be neither registered nor set later, nor be what a name turns out to be; what was registered is answered again', async () => {
  await service.close()
  service = await startTestService({webhooks: {lookup: createLookup(), retryDelaysMs: []}})
  service.store.insert([aDeal(1)])
  const post = (url: string, headers = {}) => call(service, 'POST', '/webhook-endpoints', {url}, headers)
  expect(await readRefusal(post('https://inside.example'))).toBe('400 invalid_body url')
  const leave = async () => (await post('https://leaving.example', {'idempotency-key': 'once'})).text()
  expect(await leave()).toBe(await leave())
  const {id} = await readData<{id: string}>(post('https://rebinding.example'))
  const path = `/webhook-endpoints/${id}`
  expect((await call(service, 'PATCH', path, {url: 'https://10.0.0.1'})).status).toBe(400)

  await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: 5})
  const [delivery] = await until(async () => {
    const deliveries = await get<{status: string}[]>(service, `${path}/deliveries`)
    return deliveries[0]?.status === 'failed' && deliveries
  })
  expect(delivery).toMatchObject({last_error: 'the host resolves to a private address'})
})
