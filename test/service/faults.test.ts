import {Agent, request} from 'undici'
import {afterEach, beforeEach, describe, expect, test} from 'vitest'
import type {Fault, FaultRule} from '../support/faults.ts'
import type {SpoiltService} from '../support/spoilt-service.ts'
import {API_KEY, call, insertDeals, readDeal, readPage, readProblem, startTestService} from './client.ts'

describe('injected faults', () => {
  let service: SpoiltService
  let agent: Agent

  beforeEach(async () => {
    service = await startTestService()
    insertDeals(service, 9)
    agent = new Agent()
  })
  afterEach(async () => {
    await agent.close()
    await service.close()
  })

  const get = (path: string): ReturnType<typeof request> =>
    request(service.url + path, {dispatcher: agent, headers: {authorization: `Bearer ${API_KEY}`}})

  const addListFault = (fault: Fault): void => service.faults.add({match: {path: '/deals'}, fault})

  async function readList(query = '?limit=3'): Promise<Record<string, unknown>> {
    return (await (await call(service, 'GET', `/deals${query}`)).json()) as Record<string, unknown>
  }

  test('answers with a status, headers and problem details', async () => {
    addListFault({kind: 'status', status: 503, headers: {'retry-after': '7'}})
    const response = await call(service, 'GET', '/deals')
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '7'])
    expect(response.headers.get('x-request-id')).toMatch(/^req_/)
    expect(await readProblem(response)).toMatchObject({status: 503, code: 'injected_fault'})
  })

  test.each(['gone', {gone: true}])('answers with a status and the body %j', async (body) => {
    addListFault({kind: 'status', status: 410, body})
    const text = await (await call(service, 'GET', '/deals')).text()
    expect(text).toBe(typeof body === 'string' ? body : JSON.stringify(body))
  })

  test('delays the answer', async () => {
    addListFault({kind: 'delay', ms: 40})
    const startedAt = performance.now()
    expect((await readPage(service)).data).toHaveLength(9)
    expect(performance.now() - startedAt).toBeGreaterThan(35)
  })

  test('resets the connection before the headers', async () => {
    addListFault({kind: 'reset', when: 'before_headers'})
    await expect(get('/deals')).rejects.toMatchObject({code: 'ECONNRESET'})
  })

  test('resets the connection in the middle of the body', async () => {
    addListFault({kind: 'reset', when: 'mid_body'})
    const response = await get('/deals')
    expect(response.statusCode).toBe(200)
    await expect(response.body.text()).rejects.toMatchObject({code: 'ECONNRESET'})
  })

  test.each(['content-length', 'chunked'] as const)('cuts a %s body short', async (framing) => {
    addListFault({kind: 'truncate', framing})
    const response = await get('/deals')
    expect(response.statusCode).toBe(200)
    expect(Boolean(response.headers['content-length'])).toBe(framing === 'content-length')
    await expect(response.body.text()).rejects.toThrow()
  })

  test('answers 200 with a body that is not JSON', async () => {
    addListFault({kind: 'wrong_json'})
    const response = await call(service, 'GET', '/deals')
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toMatch(/^application\/json/)
    await expect(response.json()).rejects.toThrow(SyntaxError)
  })

  test('answers 200 with a web page', async () => {
    addListFault({kind: 'html'})
    const response = await call(service, 'GET', '/deals')
    expect(response.status).toBe(200)
    expect(response.headers.get('content-type')).toMatch(/^text\/html/)
    expect(await response.text()).toMatch(/^<!doctype html>/)
  })

  test('repeats the cursor it was asked with, and says that there is more', async () => {
    const {next_cursor} = await readPage(service, '?limit=5')
    addListFault({kind: 'repeat_cursor'})
    expect(await readList(`?limit=5&cursor=${next_cursor}`)).toMatchObject({has_more: true, next_cursor})
  })

  test('leads back to the first cursor of the walk', async () => {
    service.faults.add({match: {path: '/deals', nth: 3}, fault: {kind: 'repeat_cursor', which: 'first'}})
    const first = await readPage(service, '?limit=3')
    const second = await readPage(service, `?limit=3&cursor=${first.next_cursor}`)
    const third = await readPage(service, `?limit=3&cursor=${second.next_cursor}`)
    expect(third).toMatchObject({has_more: true, next_cursor: first.next_cursor})
  })

  test('shifts a page by the last record of the page before', async () => {
    addListFault({kind: 'shift'})
    const first = await readPage(service, '?limit=3')
    const second = await readPage(service, `?limit=3&cursor=${first.next_cursor}`)
    expect(second.data.map(({id}) => id)).toEqual(['deal_000003', 'deal_000004', 'deal_000005'])
    service.faults.clear()
    const third = await readPage(service, `?limit=3&cursor=${second.next_cursor}`)
    expect(third.data[0]?.id).toBe('deal_000006')
  })

  test('shifts the page behind the very first record', async () => {
    const first = await readPage(service, '?limit=1')
    addListFault({kind: 'shift'})
    expect((await readPage(service, `?limit=2&cursor=${first.next_cursor}`)).data[0]?.id).toBe('deal_000001')
  })

  test.each(['pagination', 'meta'] as const)('moves the paging fields into %s', async (shape) => {
    const {data, ...paging} = await readPage(service, '?limit=3')
    addListFault({kind: 'envelope', shape})
    expect(await readList()).toEqual({data, [shape]: paging})
  })

  test('moves the list and its paging fields into one data object', async () => {
    const {data, ...paging} = await readPage(service, '?limit=3')
    addListFault({kind: 'envelope', shape: 'data_object'})
    expect(await readList()).toEqual({data: {deals: data, ...paging}})
  })

  test('leaves out has_more', async () => {
    addListFault({kind: 'envelope', shape: 'missing_has_more'})
    expect(Object.keys(await readList())).toEqual(['data', 'next_cursor'])
  })

  test('sends has_more as text', async () => {
    addListFault({kind: 'envelope', shape: 'string_has_more'})
    expect((await readList()).has_more).toBe('true')
  })

  test('leaves out the cursor while there is more', async () => {
    addListFault({kind: 'envelope', shape: 'no_cursor'})
    const body = await readList()
    expect(Object.keys(body)).toEqual(['data', 'has_more'])
    expect(body.has_more).toBe(true)
  })

  test('leaves one deal alone when lists change their envelope', async () => {
    addListFault({kind: 'envelope', shape: 'meta'})
    expect((await readDeal(await call(service, 'GET', '/deals/deal_000001'))).id).toBe('deal_000001')
  })

  test('changes a body at will', async () => {
    addListFault({kind: 'mutate', change: (body) => ({...body, data: [{id: 7}]})})
    expect(await readList()).toMatchObject({data: [{id: 7}], has_more: true})
  })

  test('spreads a whole body over time', async () => {
    addListFault({kind: 'slow_body', ms: 60})
    const startedAt = performance.now()
    const response = await call(service, 'GET', '/deals')
    const body = (await response.json()) as {data: unknown[]}
    expect(body.data).toHaveLength(9)
    expect(performance.now() - startedAt).toBeGreaterThan(50)
  })

  test('applies every rule that matches', async () => {
    addListFault({kind: 'mutate', change: (body) => ({...body, extra: 1})})
    addListFault({kind: 'envelope', shape: 'meta'})
    addListFault({kind: 'mutate', change: (body) => ({...body, last: 2})})
    expect(Object.keys(await readList())).toEqual(['data', 'meta', 'last'])
  })

  test('matches by method, path, number and times', async () => {
    const fault: Fault = {kind: 'status', status: 500}
    const rules: FaultRule[] = [
      {match: {method: 'delete'}, fault},
      {match: {method: 'GET', path: /^\/deals\/[^/]+$/, nth: [2, 3]}, fault},
      {match: {path: '/reports', times: 1}, fault},
    ]
    for (const rule of rules) service.faults.add(rule)
    const statuses: number[] = []
    for (const path of ['/deals/deal_000001', '/reports/portfolio', '/deals']) {
      for (let turn = 0; turn < 4; turn++) statuses.push((await call(service, 'GET', path)).status)
    }
    expect(statuses).toEqual([200, 500, 500, 200, 500, 200, 200, 200, 200, 200, 200, 200])
    expect((await call(service, 'DELETE', '/deals/deal_000001')).status).toBe(500)
  })

  test('serves on as before when the rules are cleared', async () => {
    addListFault({kind: 'html'})
    service.faults.clear()
    expect((await readPage(service)).data).toHaveLength(9)
  })
})
