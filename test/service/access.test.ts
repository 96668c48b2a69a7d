import {describe, expect, onTestFinished, test} from 'vitest'
import type {Clock} from '../../src/core/clock.ts'
import {ConfigError} from '../../src/core/errors.ts'
import {createRateLimiter} from '../../src/service/access.ts'
import {Refusal} from '../../src/service/refusal.ts'
import type {ServiceOptions} from '../../src/service/server.ts'
import type {SpoiltService} from '../support/spoilt-service.ts'
import {API_KEY, aDeal, call, callWith, readData, readProblem, startTestService} from './client.ts'

const DEAL = `/deals/${aDeal(1).id}`

async function aService(options: Partial<ServiceOptions> = {}): Promise<SpoiltService> {
  const service = await startTestService(options)
  onTestFinished(() => service.close())
  return service
}

describe('API keys', () => {
  test.each([undefined, 'Basic c2tfdGVzdDo=', 'Bearer', API_KEY])(
    'asks for a key when the header is %s',
    async (authorization) => {
      const service = await aService()
      const response = await fetch(`${service.url}/deals`, {headers: authorization ? {authorization} : {}})
      expect(response.status).toBe(401)
      expect(response.headers.get('www-authenticate')).toBe('Bearer realm="deals"')
      expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/)
      expect((await readProblem(response)).code).toBe('unauthorized')
    },
  )

  test.each([`${API_KEY}x`, API_KEY.slice(0, -1), 'sk_live_other', `${API_KEY} x`])(
    'refuses the token %j as invalid',
    async (token) => {
      const service = await aService()
      const response = await fetch(`${service.url}/deals`, {headers: {authorization: `Bearer ${token}`}})
      expect(response.status).toBe(401)
      expect(response.headers.get('www-authenticate')).toBe('Bearer realm="deals", error="invalid_token"')
    },
  )

  test('accepts each of its keys, whatever the case of the scheme', async () => {
    const service = await aService({apiKeys: [API_KEY, 'sk_live_second']})
    for (const authorization of [`bearer ${API_KEY}`, 'Bearer sk_live_second']) {
      const response = await fetch(`${service.url}/deals`, {headers: {authorization}})
      expect(response.status).toBe(200)
    }
  })

  test('does not tell without a key which endpoints exist', async () => {
    const service = await aService()
    expect((await fetch(`${service.url}/nothing`)).status).toBe(401)
    const response = await call(service, 'GET', '/nothing')
    expect([response.status, (await readProblem(response)).code]).toEqual([404, 'not_found'])
  })

  test.each([[[]], [['secret']], [['sk_test_']], [['sk_test_a b']]])(
    'does not start with the keys %j',
    async (apiKeys) => {
      await expect(startTestService({apiKeys})).rejects.toThrow(ConfigError)
    },
  )
})

describe('headers', () => {
  test('refuses a body that is not said to be JSON', async () => {
    const service = await aService()
    for (const type of ['', 'text/plain', 'application/jsonp', 'application/x-www-form-urlencoded']) {
      const response = await callWith(service, {
        method: 'POST',
        path: '/deals',
        headers: {'content-type': type},
        body: {},
      })
      expect([response.status, (await readProblem(response)).code]).toEqual([415, 'unsupported_media_type'])
    }
  })

  test('asks nothing of the type of a body that is not there', async () => {
    const service = await aService()
    service.store.insert([aDeal(1)])
    const task = await readData<{id: string}>(await call(service, 'POST', `${DEAL}/tasks`, {title: 'x'}))
    for (const type of [undefined, 'application/x-www-form-urlencoded', 'application/json']) {
      const send = async (path: string): Promise<unknown[]> => {
        const authorization = `Bearer ${API_KEY}`
        const init = {method: 'POST', headers: {authorization, ...(type && {'content-type': type})}}
        const response = await fetch(service.url + path, init)
        return [response.status, (await readProblem(response)).code]
      }
      expect(await send(`/tasks/${task.id}/complete`)).toEqual([200, undefined])
      expect(await send('/deals')).toEqual([400, 'invalid_body'])
      expect(await send(`${DEAL}/documents`)).toEqual([400, 'invalid_body'])
    }
  })

  test('accepts a JSON content type with a charset', async () => {
    const service = await aService()
    const response = await fetch(`${service.url}/deals`, {
      method: 'POST',
      headers: {authorization: `Bearer ${API_KEY}`, 'content-type': 'Application/JSON; charset=utf-8'},
      body: JSON.stringify({property_address: '1 Main St', loan_amount: 1}),
    })
    expect(response.status).toBe(201)
  })

  test('names every answer with an id of its own, refusals and bad URLs too', async () => {
    const service = await aService()
    const answers = [
      await call(service, 'GET', '/deals'),
      await call(service, 'GET', '/deals/deal_none'),
      await call(service, 'GET', '/deals/%'),
      await call(service, 'GET', `/deals/${'x'.repeat(200)}`),
      await call(service, 'POST', '/deals', '{'),
      await fetch(`${service.url}/deals`),
    ]
    const ids = answers.map((response) => response.headers.get('x-request-id'))
    expect(answers.map(({status}) => status)).toEqual([200, 404, 400, 414, 400, 401])
    for (const id of ids) expect(id).toMatch(/^req_[0-9a-f-]{36}$/)
    expect(new Set(ids).size).toBe(ids.length)
  })

  test('counts the requests and shows their method and path', async () => {
    const service = await aService()
    await call(service, 'GET', '/deals?limit=2')
    await call(service, 'DELETE', '/deals/deal_none')
    expect(service.requests.count).toBe(2)
    expect(service.requests.entries.map(({method, path}) => `${method} ${path}`)).toEqual([
      'GET /deals?limit=2',
      'DELETE /deals/deal_none',
    ])
    service.requests.clear()
    expect(service.requests.count).toBe(0)
  })
})

describe('rate limit', () => {
  test('refuses what exceeds the burst and says when to come back', async () => {
    const service = await aService({rateLimit: {perSecond: 0.5, burst: 2}})
    const first = await call(service, 'GET', '/deals')
    await call(service, 'GET', '/deals')
    const refused = await call(service, 'GET', '/deals')
    expect(first.headers.get('ratelimit')).toBe('"default";r=1;t=2')
    expect(first.headers.get('ratelimit-policy')).toBe('"default";q=2;w=4')
    expect(refused.status).toBe(429)
    expect(refused.headers.get('retry-after')).toBe('2')
    expect(refused.headers.get('ratelimit')).toBe('"default";r=0;t=2')
    expect(refused.headers.get('ratelimit-policy')).toBe('"default";q=2;w=4')
    expect((await readProblem(refused)).code).toBe('rate_limited')
  })

  test('gives each key a bucket of its own', async () => {
    const other = 'sk_live_other'
    const service = await aService({apiKeys: [API_KEY, other], rateLimit: {perSecond: 0.1, burst: 1}})
    await call(service, 'GET', '/deals')
    expect((await call(service, 'GET', '/deals')).status).toBe(429)
    const response = await fetch(`${service.url}/deals`, {headers: {authorization: `Bearer ${other}`}})
    expect(response.status).toBe(200)
  })

  test('sends no rate-limit headers when it is off', async () => {
    const service = await aService()
    expect((await call(service, 'GET', '/deals')).headers.get('ratelimit')).toBeNull()
  })

  test('refills with time, never beyond the burst, and a refusal costs nothing', () => {
    let now = 0
    const clock: Clock = {now: () => now}
    const take = createRateLimiter({perSecond: 4, burst: 2}, clock)
    const served = (times: number): number => {
      let count = 0
      for (let request = 0; request < times; request++) {
        try {
          take('key')
          count++
        } catch (error) {
          expect(error).toBeInstanceOf(Refusal)
        }
      }
      return count
    }
    expect(served(10)).toBe(2)
    now += 250
    expect(served(10)).toBe(1)
    now += 60_000
    expect(served(10)).toBe(2)
    now -= 5_000
    expect(served(10)).toBe(0)
  })
})
