import {expect, test, vi} from 'vitest'
import {createLab} from '../support/lab.ts'
import {readFailure} from './outcome.ts'

test('the local service says where it listens, takes its key alone, and ends on SIGTERM', async () => {
  await using lab = await createLab()
  using service = lab.start(['service', '--deals', '5', '--json'])
  await vi.waitFor(() => expect(service.printed().stdout).toMatch(/\n$/), {timeout: 20_000, interval: 20})
  const {url, api_key, ...rest} = JSON.parse(service.printed().stdout)
  expect(rest).toEqual({})
  expect(api_key).toMatch(/^sk_test_/)

  const list = (key: string) => fetch(`${url}/deals?limit=3`, {headers: {authorization: `Bearer ${key}`}})
  expect((await list('sk_test_other')).status).toBe(401)
  expect(await (await list(api_key)).json()).toMatchObject({has_more: true, data: [{}, {}, {}]})

  const taken = await lab.run(['service', '--port', new URL(url).port, '--json'])
  expect(readFailure(taken)).toMatchObject({code: 'SERVICE_LISTEN', exitCode: 2})

  service.process.kill('SIGTERM')
  expect(await service.ended).toMatchObject({code: 0, signal: null})
})
