import {once} from 'node:events'
import {connect} from 'node:net'
import {text} from 'node:stream/consumers'
import {Agent, request} from 'undici'
import {expect, onTestFinished, test} from 'vitest'
import {useShared} from '../support/set-up.ts'
import {API_KEY, call, insertDeals, readData, readRefusal, startTestService} from './client.ts'

const service = await useShared(startTestService())
insertDeals(service, 3)
const body = {property_address: '1 Main St', loan_amount: 1}

test('bodies that would harm who reads them are refused', async () => {
  const create = async (sent: unknown) => readRefusal(call(service, 'POST', '/deals', sent))
  for (const property_address of ['a\u0000b', '\u001b[31m', '\ud800', '\u009f'])
    expect(await create({...body, property_address})).toBe('400 invalid_body property_address')
  expect(await create({...body, property_address: 'x'.repeat(1_100_000)})).toBe('413 body_too_large')
  for (const amount of [`${'['.repeat(50_000)}${']'.repeat(50_000)}`, '1e999'])
    expect(await create(`{"loan_amount":${amount}}`)).toMatch(/^400 /)
})

test('a body that says more than one thing, or whose bytes are no text, is refused', async () => {
  const address = '"property_address":"Straße 5"'
  const create = async (sent: string | Buffer) => readRefusal(call(service, 'POST', '/deals', sent))
  for (const sent of [
    Buffer.from(`{${address},"loan_amount":1}`, 'latin1'),
    `{${address},"loan_amount":100,"loan_amount":900000}`,
    `{${address},"loan_amount":1,"__proto__":{}}`,
    `{${address},"loan_amount":1`,
  ])
    expect(await create(sent)).toBe('400 malformed_json')
  const marked = await call(service, 'POST', '/deals', Buffer.from(`\ufeff{${address},"loan_amount":1}`))
  expect(marked.status).toBe(201)
})

test.each([
  ['PUT', '/deals/deal_000001', 'DELETE, GET, HEAD, PATCH'],
  ['GET', '/tasks/task_1/complete', 'POST'],
  ['OPTIONS', '/rates', 'GET, HEAD, POST'],
])('%s %s is 405 and says what is allowed, whatever comes with it', async (method, path, allow) => {
  const bodies = method === 'GET' ? [] : ['text/plain', 'application/json']
  for (const sent of [[], ...bodies.map((type) => [{}, {'content-type': type}] as const)]) {
    const response = await call(service, method, path, ...sent)
    expect(response.headers.get('allow')).toBe(allow)
    expect(await readRefusal(response)).toBe('405 method_not_allowed')
  }
})

test('an invalid path is 404, and an unknown or repeated parameter is refused', async () => {
  for (const path of ['..%2f..%2fetc%2fpasswd', '%00', '/', '../DEALS', 'deal_000001/nothing', "' or 1=1 --"])
    expect([path, (await call(service, 'GET', `/deals/${path}`)).status]).toEqual([path, 404])
  for (const path of ['/deals/deal_000001?expand=all', '/rates?limit=5&limit=6'])
    expect(await readRefusal(call(service, 'GET', path))).toMatch('400 invalid_parameter')
})

test.each([
  'GARBAGE\r\n\r\n',
  'BREW /v1/deals HTTP/1.1\r\nHost: x\r\n\r\n',
  `GET /v1/deals?cursor=${'x'.repeat(20_000)} HTTP/1.1\r\nHost: x\r\n\r\n`,
  'POST /v1/deals HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n',
])('raw bytes that are not HTTP get a problem as any other, and the service stays up', async (bytes) => {
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
  socket.write(bytes)
  const [head = '', body = ''] = (await text(socket)).split('\r\n\r\n')
  expect(head).toMatch(/^HTTP\/1\.1 400 .+problem\+json.+X-Request-Id: req_[0-9a-f-]{36}$/s)
  expect(JSON.parse(body)).toMatchObject({status: 400, code: 'bad_request'})
  expect((await call(service, 'GET', '/deals')).status).toBe(200)
})

test('an expectation that nobody knows is no obstacle', async () => {
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
  const head = ['GET /v1/deals?limit=1 HTTP/1.1', 'Host: x', 'Connection: close', 'Expect: more']
  socket.write([...head, `Authorization: Bearer ${API_KEY}`, '', ''].join('\r\n'))
  expect(await text(socket)).toMatch(/^HTTP\/1\.1 200 .+"has_more":true/s)
})

test.each([
  [[], ''],
  [['Content-Length: 0'], ''],
  [['Content-Length: 0', 'Content-Type: application/x-www-form-urlencoded'], ''],
  [['Transfer-Encoding: chunked'], '0\r\n\r\n'],
  [['Transfer-Encoding: chunked', 'Content-Type: application/json'], '0\r\n\r\n'],
  [['Content-Length: 2', 'Content-Type: Application/JSON; charset=utf-8'], '{}'],
])('an operation without a body takes none, however that is sent: %j', async (sent, body) => {
  const created = await call(service, 'POST', '/deals/deal_000001/tasks', {title: 'Order title'})
  const {id} = await readData<{id: string}>(created)
  const socket = connect(Number(new URL(service.url).port), '127.0.0.1')
  const head = [`POST /v1/tasks/${id}/complete HTTP/1.1`, 'Host: x', 'Connection: close']
  socket.write([...head, `Authorization: Bearer ${API_KEY}`, ...sent, '', body].join('\r\n'))
  const [answer] = await once(socket, 'data')
  expect(String(answer)).toMatch(/^HTTP\/1\.1 200/)
  for (const needy of ['/deals', '/deals/deal_000001/documents'])
    expect(await readRefusal(call(service, 'POST', needy))).toMatch(/^400 invalid_body/)
})

test('an internal failure answers 500 without revealing what failed', async () => {
  service.database.db.prepare('drop table borrower').run()
  const ada = {first_name: 'Ada', last_name: 'Lovelace', email: 'ada@example.com'}
  const response = await call(service, 'POST', '/deals/deal_000001/borrowers', ada)
  expect(response.status).toBe(500)
  const text = await response.text()
  expect(JSON.parse(text)).toMatchObject({status: 500, code: 'internal'})
  expect(text).not.toMatch(/borrower|sqlite|Ada|at /i)
  expect((await call(service, 'GET', '/deals')).status).toBe(200)
})

test('closes at once with keep-alive, half-open and busy connections, however often it is told to', async () => {
  const service = await startTestService()
  const agent = new Agent({keepAliveTimeout: 60_000})
  onTestFinished(() => agent.close())
  const headers = {authorization: `Bearer ${API_KEY}`}
  await (await request(`${service.url}/deals`, {dispatcher: agent, headers})).body.json()

  const {port} = new URL(service.url)
  const silent = connect(Number(port), '127.0.0.1')
  const halfSent = connect(Number(port), '127.0.0.1')
  await Promise.all([once(silent, 'connect'), once(halfSent, 'connect')])
  const ended = Promise.allSettled([once(silent, 'close'), once(halfSent, 'close')])
  halfSent.write('GET /v1/deals HTTP/1.1\r\nHost: x\r\n')

  service.faults.add({fault: {kind: 'delay', ms: 3_600_000}})
  const busy = request(`${service.url}/deals`, {dispatcher: agent, headers})
  const refused = expect(busy).rejects.toThrow()
  while (service.requests.count < 2) await new Promise(setImmediate)

  await Promise.all([service.close(), service.close()])
  await refused
  await ended
  await service[Symbol.asyncDispose]()
  await expect(fetch(service.url)).rejects.toThrow()
})
