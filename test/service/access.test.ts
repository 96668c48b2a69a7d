import {expect, test} from 'vitest'
import type {Endpoint} from '../../src/contract/endpoint.ts'
import {ENDPOINTS} from '../../src/contract/endpoints.ts'
import {createApiKey, createRateLimiter, listApiKeys, type Scope} from '../../src/service/access.ts'
import {Refusal} from '../../src/service/refusal.ts'
import {useShared} from '../support/set-up.ts'
import {API_KEY, aDeal, call, NOW, readRefusal, startTestService} from './client.ts'

const DEAL = `/deals/${aDeal(1).id}`

const service = await useShared(startTestService())
service.store.insert([aDeal(1)])
const ask = (authorization: string | undefined, path = DEAL) =>
  fetch(service.url + path, {headers: authorization ? {authorization} : {}})

test('asks for a key, in the header alone, even for an endpoint that is not there, and says if a token is wrong', async () => {
  for (const authorization of [undefined, 'Basic c2tfdGVzdDo=', 'Bearer', API_KEY]) {
    const response = await ask(authorization)
    expect(response.headers.get('www-authenticate')).toBe('Bearer realm="deals"')
    expect(await readRefusal(response)).toBe('401 unauthorized')
  }
  for (const token of [`${API_KEY}x`, API_KEY.slice(0, -1), 'sk_live_other', `${API_KEY} x`]) {
    const response = await ask(`Bearer ${token}`)
    expect(response.headers.get('www-authenticate')).toBe('Bearer realm="deals", error="invalid_token"')
    expect(await readRefusal(response)).toBe('401 invalid_token')
  }
  for (const path of [`/deals?api_key=${API_KEY}`, '/nothing'])
    expect((await ask(undefined, path)).status).toBe(401)
})

test('every endpoint asks for a key, and for JSON if it takes a body', async () => {
  const authorization = `Bearer ${API_KEY}`
  for (const {path, method, isMultipart} of Object.values<Endpoint>(ENDPOINTS)) {
    const url = service.url + path.replace(/\{\w+\}/g, 'none')
    const where = `${method} ${path}`
    expect((await fetch(url, {method})).status, where).toBe(401)
    if (!/^P/.test(method) || isMultipart) continue
    const headers = {authorization, 'content-type': 'text/plain'}
    expect((await fetch(url, {method, headers, body: '{}'})).status, where).toBe(415)
  }
  const outside = await fetch(`${service.url.replace('/v1', '')}/deals`, {headers: {authorization}})
  expect(outside.status).toBe(404)
})

test.each([[[]], [['secret']], [['sk_test_']], [['sk_test_a b']]])(
  'does not start with the keys %j',
  async (apiKeys) => {
    await expect(startTestService({apiKeys})).rejects.toMatchObject({exitCode: 2})
  },
)

const make = (scopes: Scope[]) =>
  createApiKey(service.database, {kind: 'test', name: 'CRM', scopes, now: NOW})

test('a made key is stored only as a digest, and refused with another secret or kind', async () => {
  const {key} = make(['read', 'write'])
  const rows = service.database.db.prepare('select * from api_key').all()
  expect(rows.flatMap(Object.values).filter((value) => String(value).includes(key.slice(-48)))).toEqual([])
  const listed = {name: 'CRM', scopes: ['read', 'write'], revoked_at: null}
  expect(listApiKeys(service.database)).toContainEqual(expect.objectContaining(listed))
  const last = key.endsWith('0') ? '1' : '0'
  const secrets = [key.slice(0, -1) + last, key.slice(0, -48) + '0'.repeat(48)]
  for (const wrong of [...secrets, key.replace('test', 'live')])
    expect((await ask(`Bearer ${wrong}`)).status).toBe(401)
})

test.each([
  ['read', 'GET', 'PATCH', 'write'],
  ['write', 'PATCH', 'GET', 'read'],
] as const)('with only the scope %s, a key may %s but not %s', async (scope, allowed, refused, other) => {
  const authorization = `Bearer ${make([scope]).key}`
  const send = (method: string) =>
    call(service, method, DEAL, method === 'GET' ? undefined : {loan_amount: 1}, {authorization})
  expect((await send(allowed)).status).toBe(200)
  const response = await send(refused)
  const challenge = `Bearer realm="deals", error="insufficient_scope", scope="${other}"`
  expect(response.headers.get('www-authenticate')).toBe(challenge)
  expect(await readRefusal(response)).toBe('403 insufficient_scope')
})

test.each([
  {'content-type': ''},
  {'content-type': 'application/jsonp'},
  {'content-type': 'application/json; charset=iso-8859-1'},
  {'content-encoding': 'gzip'},
])('refuses a body with the headers %j', async (headers) => {
  const answer = await call(service, 'POST', '/deals', {}, headers)
  expect(await readRefusal(answer)).toBe('415 unsupported_media_type')
})

test('gives every answer its own id, refusals and bad URLs included', async () => {
  const answers = [
    await call(service, 'GET', '/deals'),
    await call(service, 'GET', '/deals/deal_none'),
    await call(service, 'GET', '/deals/%'),
    await call(service, 'GET', `/deals/${'x'.repeat(200)}`),
    await call(service, 'POST', '/deals', '{'),
    await ask(undefined),
  ]
  expect(answers.map(({status}) => status)).toEqual([200, 404, 400, 414, 400, 401])
  expect(answers[0]?.headers.get('ratelimit')).toBeNull()
  const ids = answers.map((response) => response.headers.get('x-request-id'))
  for (const id of ids) expect(id).toMatch(/^req_[0-9a-f-]{36}$/)
  expect(new Set(ids).size).toBe(ids.length)
})

test('refuses requests above the burst of their key and says when to come back', async () => {
  const apiKeys = [API_KEY, 'sk_live_second']
  await using limited = await startTestService({apiKeys, rateLimit: {perSecond: 0.5, burst: 2}})
  for (const authorization of [`bearer ${API_KEY}`, 'Bearer sk_live_second']) {
    const ask = () => call(limited, 'GET', '/deals', undefined, {authorization})
    const [first, , refused] = [await ask(), await ask(), await ask()]
    const quotaOf = ({headers}: Response) =>
      ['ratelimit', 'ratelimit-policy', 'retry-after'].map((name) => headers.get(name))
    expect(quotaOf(first)).toEqual(['"default";r=1;t=2', '"default";q=2;w=4', null])
    expect(quotaOf(refused)).toEqual(['"default";r=0;t=2', '"default";q=2;w=4', '2'])
    expect(await readRefusal(refused)).toBe('429 rate_limited')
  }
})

test('a rate limit refills with time, never beyond the burst, and a refusal costs nothing', () => {
  let now = 0
  const take = createRateLimiter({perSecond: 4, burst: 2}, {now: () => now})
  const served = (): number => {
    for (let count = 0; ; count++)
      try {
        take('key')
      } catch (error) {
        expect(error).toBeInstanceOf(Refusal)
        return count
      }
  }
  expect(served()).toBe(2)
  now += 250
  expect(served()).toBe(1)
  now += 60_000
  expect(served()).toBe(2)
  now -= 5_000
  expect(served()).toBe(0)
})
