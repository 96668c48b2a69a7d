import {beforeEach, expect, test} from 'vitest'
import type {Deal} from '../../src/contract/deal.ts'
import {createApiKey} from '../../src/service/access.ts'
import {useShared} from '../support/set-up.ts'
import {aDeal, call, NOW, readData, readRefusal, startTestService, upload} from './client.ts'

const body = {property_address: '12 Main St', loan_amount: 350_000}

const service = await useShared(startTestService())
beforeEach(service.remember())

const create = (key: string, sent: object = body, headers: Record<string, string> = {}) =>
  call(service, 'POST', '/deals', sent, {'idempotency-key': key, ...headers})

test('refuses the key with another body or on another path, or a key that is none', async () => {
  await create('row-1')
  service.store.insert([aDeal(1)])
  const path = '/deals/deal_000001/tasks'
  expect(await readRefusal(create('row-1', {...body, loan_amount: 1}))).toBe('422 idempotency_key_reused')
  expect((await call(service, 'POST', path, body, {'idempotency-key': 'row-1'})).status).toBe(400)
  for (const key of ['', ' ', 'x'.repeat(256), 'käse'])
    expect(await readRefusal(create(key))).toMatch('400 invalid_idempotency_key')
  expect(service.store.count()).toBe(2)
})

test('creates once when 50 requests come at once, and answers each the same', async () => {
  const answers = await Promise.all(Array.from({length: 50}, () => create('storm')))
  const texts = answers.map(async (answer) =>
    [
      answer.status,
      ...['etag', 'location', 'content-type'].map((name) => answer.headers.get(name)),
      await answer.text(),
    ].join(),
  )
  expect(new Set(await Promise.all(texts)).size).toBe(1)
  expect(answers[0]?.status).toBe(201)
  expect(answers.filter(({headers}) => headers.get('idempotency-replayed') === null)).toHaveLength(1)
  expect(service.store.count()).toBe(1)
})

test('keeps no refusal, and belongs to its API key', async () => {
  expect((await create('row-1', {...body, loan_amount: -1})).status).toBe(400)
  expect((await create('row-1')).status).toBe(201)
  const {key} = createApiKey(service.database, {kind: 'test', name: 'other', scopes: ['write'], now: NOW})
  const other = await create('row-1', body, {authorization: `Bearer ${key}`})
  expect(other.headers.get('idempotency-replayed')).toBeNull()
  expect(service.store.count()).toBe(2)
})

test('identifies an upload by the name and bytes of its file', async () => {
  service.store.insert([aDeal(1)])
  const headers = {'idempotency-key': 'doc-1'}
  const first = await upload(service, 'deal_000001', {}, headers)
  const again = await upload(service, 'deal_000001', {}, headers)
  const other = await upload(service, 'deal_000001', {content: 'another'}, headers)
  const renamed = await upload(service, 'deal_000001', {fileName: 'other.pdf'}, headers)
  expect([first, again, other, renamed].map(({status}) => status)).toEqual([201, 201, 422, 422])
  expect(await again.text()).toBe(await first.text())
})

test('is forgotten after 24 hours', async () => {
  const createLater = async (ms: number) => {
    service.database.run('update idempotent_answer set created_at = created_at - ?', [ms])
    return (await create('row-1')).headers.get('idempotency-replayed')
  }
  expect([await createLater(0), await createLater(86_000_000), await createLater(400_001)]).toEqual([
    null,
    'true',
    null,
  ])
  expect(service.store.count()).toBe(2)
})

test('a deleted deal takes along what was answered of its borrowers, and is not created again', async () => {
  const {id} = await readData<Deal>(create('row-1'))
  const ada = {first_name: 'Ada', last_name: 'Lovelace', email: 'ada@example.com'}
  const link = () => call(service, 'POST', `/deals/${id}/borrowers`, ada, {'idempotency-key': 'ada'})
  expect((await link()).status).toBe(201)
  expect((await call(service, 'DELETE', `/deals/${id}`)).status).toBe(204)
  const kept = service.database.db.prepare('select * from idempotent_answer').all()
  expect(JSON.stringify(kept)).not.toContain('Ada')
  expect(await readRefusal(link())).toBe('404 deal_not_found')
  expect((await create('row-1')).headers.get('idempotency-replayed')).toBe('true')
  expect(service.store.count()).toBe(0)
})
