import {once} from 'node:events'
import {mkdtemp, rm} from 'node:fs/promises'
import {connect} from 'node:net'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {Agent, request} from 'undici'
import {expect, onTestFinished, test} from 'vitest'
import {API_KEY, aDeal, call, insertDeals, readPage, startTestService} from './client.ts'

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

test('keeps deals and cursors when a file is opened again', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'loantape-service-'))
  onTestFinished(() => rm(folder, {recursive: true}))
  const dbPath = join(folder, 'deals.db')
  const first = await startTestService({dbPath})
  insertDeals(first, 4)
  await call(first, 'PATCH', '/deals/deal_000003', {status: 'underwriting', loan_amount: 0.29})
  const {next_cursor} = await readPage(first, '?limit=2')
  await first.close()

  await using second = await startTestService({dbPath})
  const page = await readPage(second, `?limit=2&cursor=${next_cursor}`)
  expect(page.data.map(({id}) => id)).toEqual(['deal_000003', 'deal_000004'])
  expect(second.store.get('deal_000003')).toEqual(aDeal(3, {status: 'underwriting', loan_amount_cents: 29n}))
})
