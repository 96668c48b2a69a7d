import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import {createApiKey} from '../../src/service/access.ts'
import type {RunningService} from '../../src/service/server.ts'
import {answerOnce} from '../../src/service/server.ts'
import {aDeal, callWith, NOW, readDeal, readProblem, startTestService, upload} from './client.ts'

const body = {property_address: '12 Main St', loan_amount: 350_000}

describe('Idempotency-Key', () => {
  let service: RunningService

  beforeEach(async () => {
    service = await startTestService()
  })
  afterEach(() => service.close())

  const create = (key: string, sent: object = body): Promise<Response> =>
    callWith(service, {method: 'POST', path: '/deals', body: sent, headers: {'idempotency-key': key}})

  test('repeats the same answer and creates once', async () => {
    const first = await create('row-1')
    const second = await create('row-1')
    expect([first.status, second.status]).toEqual([201, 201])
    expect(await second.text()).toBe(await first.text())
    for (const name of ['etag', 'location', 'content-type'])
      expect(second.headers.get(name)).toBe(first.headers.get(name))
    expect([first, second].map(({headers}) => headers.get('idempotency-replayed'))).toEqual([null, 'true'])
    expect(service.store.count()).toBe(1)
  })

  test('refuses the key with another body or on another path', async () => {
    await create('row-1')
    const otherBody = await create('row-1', {...body, loan_amount: 1})
    service.store.insert([aDeal(1)])
    const otherPath = await callWith(service, {
      method: 'POST',
      path: '/deals/deal_000001/tasks',
      body,
      headers: {'idempotency-key': 'row-1'},
    })
    expect([otherBody.status, (await readProblem(otherBody)).code]).toEqual([422, 'idempotency_key_reused'])
    expect(otherPath.status).toBe(400)
    expect(service.store.count()).toBe(2)
  })

  test('creates once when 50 requests come at once', async () => {
    const answers = await Promise.all(Array.from({length: 50}, () => create('storm')))
    const ids = await Promise.all(answers.map(async (answer) => (await readDeal(answer)).id))
    expect(new Set(ids).size).toBe(1)
    expect(service.store.count()).toBe(1)
  })

  test('keeps no refusal: a corrected request goes through', async () => {
    expect((await create('row-1', {...body, loan_amount: -1})).status).toBe(400)
    expect((await create('row-1')).status).toBe(201)
  })

  test('belongs to its API key', async () => {
    await create('row-1')
    const {key} = createApiKey(service.database, {kind: 'test', name: 'other', scopes: ['write'], now: NOW})
    const authorization = `Bearer ${key}`
    const headers = {'idempotency-key': 'row-1', authorization}
    const other = await callWith(service, {method: 'POST', path: '/deals', body, headers})
    expect(other.headers.get('idempotency-replayed')).toBeNull()
    expect(service.store.count()).toBe(2)
  })

  test('identifies an upload by the bytes of its file', async () => {
    service.store.insert([aDeal(1)])
    const headers = {'idempotency-key': 'doc-1'}
    const first = await upload(service, 'deal_000001', {}, headers)
    const again = await upload(service, 'deal_000001', {}, headers)
    const other = await upload(service, 'deal_000001', {content: 'another'}, headers)
    expect([first.status, again.status, other.status]).toEqual([201, 201, 422])
    expect(await again.text()).toBe(await first.text())
  })

  test.each(['', ' ', 'x'.repeat(256), 'käse'])('refuses the key %j', async (key) => {
    const response = await create(key)
    expect([response.status, (await readProblem(response)).code]).toEqual([400, 'invalid_idempotency_key'])
    expect(service.store.count()).toBe(0)
  })

  test('is forgotten after 24 hours', () => {
    const request = {owner: 'me', key: 'row-1', fingerprint: 'print'}
    let runs = 0
    const work = () => ({status: 201, headers: {}, body: String(++runs)})
    const at = (now: number) => answerOnce(request, work, {database: service.database, now}).body
    expect([at(0), at(86_400_000), at(86_400_001)]).toEqual(['1', '1', '2'])
  })
})
