import {once} from 'node:events'
import {connect} from 'node:net'
import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import type {RunningService} from '../../src/service/server.ts'
import {
  API_KEY,
  aDeal,
  call,
  callWith,
  insertDeals,
  readDeal,
  readProblem,
  startTestService,
  walkIds,
} from './client.ts'

describe('hostile requests', () => {
  let service: RunningService

  beforeEach(async () => {
    service = await startTestService()
    insertDeals(service, 3)
  })
  afterEach(() => service.close())

  const body = {property_address: '1 Main St', loan_amount: 1}

  test.each([
    "1 Main St'); drop table deal; --",
    "' or 1=1 --",
    '"; delete from deal where "1"="1',
    '\\x00\\u0000',
    '$(reboot) {{7*7}} <script>',
  ])('SQL and other code in %j is text', async (property_address) => {
    const deal = await readDeal(await call(service, 'POST', '/deals', {...body, property_address}))
    expect(deal.property_address).toBe(property_address)
    expect(service.store.count()).toBe(4)
    const path = `/deals/${encodeURIComponent(property_address)}`
    expect((await call(service, 'GET', path)).status).toBe(404)
    expect((await call(service, 'DELETE', path)).status).toBe(404)
    expect(service.store.count()).toBe(4)
  })

  test('a text with NUL or half a surrogate pair is refused', async () => {
    for (const property_address of ['a\u0000b', '\u001b[31m', '\ud800', '\u009f']) {
      const problem = await readProblem(await call(service, 'POST', '/deals', {...body, property_address}))
      expect(problem.errors?.map(({path}) => path)).toEqual(['property_address'])
    }
  })

  test('a body over 1 MiB is refused before it is read', async () => {
    const response = await call(service, 'POST', '/deals', {...body, property_address: 'x'.repeat(1_100_000)})
    expect([response.status, (await readProblem(response)).code]).toEqual([413, 'body_too_large'])
  })

  test.each([
    ['PUT', '/deals/deal_000001', 'DELETE, GET, HEAD, PATCH'],
    ['DELETE', '/deals', 'GET, HEAD, POST'],
    ['PATCH', '/reports/portfolio', 'GET, HEAD'],
    ['GET', '/tasks/task_1/complete', 'POST'],
    ['OPTIONS', '/rates', 'GET, HEAD, POST'],
    ['POST', '/reports/portfolio', 'GET, HEAD'],
  ])('%s %s is 405 and says what is allowed, whatever comes with it', async (method, path, allow) => {
    const types = method === 'GET' ? [undefined] : [undefined, 'text/plain', 'application/json']
    for (const type of types) {
      const sent = type && {headers: {'content-type': type}, body: {}}
      const response = await callWith(service, {method, path, ...sent})
      expect([response.status, response.headers.get('allow')]).toEqual([405, allow])
      expect((await readProblem(response)).code).toBe('method_not_allowed')
    }
  })

  test('an invalid path is 404', async () => {
    for (const path of ['..%2f..%2fetc%2fpasswd', '%00', '/', '../DEALS', 'deal_000001/nothing'])
      expect([path, (await call(service, 'GET', `/deals/${path}`)).status]).toEqual([path, 404])
  })

  test('unknown parameters are refused', async () => {
    const paths = [
      '/deals/deal_000001?expand=all',
      '/reports/portfolio?status=draft',
      '/rates?limit=5&limit=6',
    ]
    for (const path of paths) {
      const response = await call(service, 'GET', path)
      expect([response.status, (await readProblem(response)).code]).toEqual([400, 'invalid_parameter'])
    }
  })

  test('deeply nested JSON and huge numbers are refused without a crash', async () => {
    for (const amount of [`${'['.repeat(50_000)}${']'.repeat(50_000)}`, '1e999'])
      expect((await call(service, 'POST', '/deals', `{"loan_amount":${amount}}`)).status).toBe(400)
  })

  test('raw bytes that are not HTTP get 400, and the service stays up', async () => {
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
    socket.end('GARBAGE\r\n\r\n')
    const [answer] = await once(socket, 'data')
    expect(String(answer)).toMatch(/^HTTP\/1\.1 400/)
    expect((await call(service, 'GET', '/deals')).status).toBe(200)
  })

  test('two hundred simultaneous creates lose and repeat nothing', async () => {
    const created = await Promise.all(
      Array.from({length: 200}, async (_, index) => {
        const deal = {property_address: `${index} Main St`, loan_amount: index}
        const response = await call(service, 'POST', '/deals', deal)
        expect(response.status).toBe(201)
        return (await readDeal(response)).id
      }),
    )
    expect(new Set(created).size).toBe(200)
    expect((await walkIds(service, 100)).sort()).toEqual(
      [...created, ...[1, 2, 3].map((n) => aDeal(n).id)].sort(),
    )
  })

  test('an internal failure answers 500 without revealing what failed', async () => {
    service.database.prepare('drop table borrower').run()
    const response = await call(service, 'POST', '/deals/deal_000001/borrowers', {
      first_name: 'Ada',
      last_name: 'Lovelace',
      email: 'ada@example.com',
    })
    expect(response.status).toBe(500)
    const text = await response.text()
    expect(JSON.parse(text)).toMatchObject({status: 500, code: 'internal'})
    expect(text).not.toMatch(/borrower|sqlite|Ada|at /i)
    expect((await fetch(service.url, {headers: {authorization: `Bearer ${API_KEY}`}})).status).toBe(404)
  })
})
