import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import {createApiKey, listApiKeys, revokeApiKey, type Scope} from '../../src/service/access.ts'
import type {RunningService} from '../../src/service/server.ts'
import {aDeal, NOW, readProblem, startTestService} from './client.ts'

describe('API keys of the database', () => {
  let service: RunningService

  beforeEach(async () => {
    service = await startTestService()
    service.store.insert([aDeal(1)])
  })
  afterEach(() => service.close())

  const make = (scopes: Scope[] = ['read', 'write'], kind: 'live' | 'test' = 'live') =>
    createApiKey(service.database, {kind, name: 'CRM', scopes, now: NOW})
  const ask = (key: string, method = 'GET', path = '/deals/deal_000001'): Promise<Response> =>
    fetch(service.url + path, {
      method,
      headers: {
        authorization: `Bearer ${key}`,
        ...(method === 'GET' ? {} : {'content-type': 'application/json'}),
      },
      ...(method === 'PATCH' && {body: '{"loan_amount": 1}'}),
    })

  test.each(['live', 'test'] as const)('a %s key opens the service until it is revoked', async (kind) => {
    const {id, key} = make(['read', 'write'], kind)
    expect(key.startsWith(`sk_${kind}_`)).toBe(true)
    expect((await ask(key)).status).toBe(200)
    expect(revokeApiKey(service.database, id, NOW)).toBe(true)
    const refused = await ask(key)
    expect([refused.status, (await readProblem(refused)).code]).toEqual([401, 'invalid_token'])
    expect(revokeApiKey(service.database, id, NOW)).toBe(false)
  })

  test('is stored only as a digest, and refused with another secret or kind', async () => {
    const {key} = make()
    const rows = service.database.prepare('select * from api_key').all()
    const texts = rows.flatMap((row) => Object.values(row)).map(String)
    expect(texts.filter((text) => text.includes(key.slice(-48)))).toEqual([])
    expect(listApiKeys(service.database)).toMatchObject([
      {name: 'CRM', scopes: ['read', 'write'], revoked_at: null},
    ])
    const last = key.endsWith('0') ? '1' : '0'
    for (const wrong of [
      key.slice(0, -1) + last,
      key.slice(0, -48) + '0'.repeat(48),
      key.replace('live', 'test'),
    ])
      expect((await ask(wrong)).status).toBe(401)
  })

  test.each([
    ['read' as const, 'GET', 'PATCH'],
    ['write' as const, 'PATCH', 'GET'],
  ])('with only the scope %s, a key may %s but not %s', async (scope, allowed, refused) => {
    const {key} = make([scope])
    expect((await ask(key, allowed)).status).toBe(200)
    const response = await ask(key, refused)
    const other = scope === 'read' ? 'write' : 'read'
    expect([response.status, (await readProblem(response)).code]).toEqual([403, 'insufficient_scope'])
    expect(response.headers.get('www-authenticate')).toBe(
      `Bearer realm="deals", error="insufficient_scope", scope="${other}"`,
    )
  })
})
