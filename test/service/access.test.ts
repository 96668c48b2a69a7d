import {describe, expect, onTestFinished, test} from 'vitest'
import type {Clock} from '../../src/core/clock.ts'
import {ConfigError} from '../../src/core/errors.ts'
import {createRateLimiter} from '../../src/service/access.ts'
import {Refusal} from '../../src/service/requests.ts'
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
  test.each([
    [undefined, false],
    ['Basic c2tfdGVzdDo=', false],
    ['Bearer', false],
    [API_KEY, false],
    [`Bearer ${API_KEY}x`, true],
    [`Bearer ${API_KEY.slice(0, -1)}`, true],
    ['Bearer sk_live_other', true],
    [`Bearer ${API_KEY} x`, true],
  ])('asks for a key when the header is %s', async (authorization, isToken) => {
    const service = await aService()
    const response = await fetch(`${service.url}/deals`, {headers: authorization ? {authorization} : {}})
    expect(response.status).toBe(401)
    const error = isToken ? ', error="invalid_token"' : ''
    expect(response.headers.get('www-authenticate')).toBe(`Bearer realm="deals"${error}`)
    expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/)
    expect((await readProblem(response)).code).toBe(isToken ? 'invalid_token' : 'unauthorized')
    expect((await fetch(`${service.url}/deals?api_key=${API_KEY}`)).status).toBe(401)
  })

  test('accepts each of its keys, whatever the case of the scheme, each with its own bucket', async () => {
    const service = await aService({
      apiKeys: [API_KEY, 'sk_live_second'],
      rateLimit: {perSecond: 0.1, burst: 1},
    })
    for (const authorization of [`bearer ${API_KEY}`, 'Bearer sk_live_second'])
      for (const status of [200, 429])
        expect((await fetch(`${service.url}/deals`, {headers: {authorization}})).status).toBe(status)
  })

  test('does not reveal without a key which endpoints exist', async () => {
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
  test('refuses a body that is not declared as JSON', async () => {
    const service = await aService()
    for (const type of ['', 'text/plain', 'application/jsonp', 'application/x-www-form-urlencoded']) {
      const headers = {'content-type': type}
      const response = await callWith(service, {method: 'POST', path: '/deals', headers, body: {}})
      expect([response.status, (await readProblem(response)).code]).toEqual([415, 'unsupported_media_type'])
    }
  })

  test('ignores the content type of an empty body', async () => {
    const service = await aService()
    service.store.insert([aDeal(1)])
    const task = await readData<{id: string}>(await call(service, 'POST', `${DEAL}/tasks`, {title: 'x'}))
    for (const type of [undefined, 'application/x-www-form-urlencoded', 'Application/JSON; charset=utf-8']) {
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

  test('gives every answer its own id, refusals and bad URLs included', async () => {
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
    expect(answers[0]?.headers.get('ratelimit')).toBeNull()
    for (const id of ids) expect(id).toMatch(/^req_[0-9a-f-]{36}$/)
    expect(new Set(ids).size).toBe(ids.length)
  })
})

describe('rate limit', () => {
  test('refuses requests above the burst and says when to come back', async () => {
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
