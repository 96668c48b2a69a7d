import {once} from 'node:events'
import {connect} from 'node:net'
import {Agent, request} from 'undici'
import {expect, onTestFinished, test} from 'vitest'
import {API_KEY, startTestService} from './client.ts'

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
