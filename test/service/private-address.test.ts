import type {LookupAddress} from 'node:dns'
import {describe, expect, test} from 'vitest'
import type {RunningService} from '../../src/service/server.ts'
import {type AddressLookup, createAddressGuard, isPrivateAddress} from '../../src/service/webhooks.ts'
import {aDeal, call, readData, readProblem, startTestService} from './client.ts'

/** Names for a test, each with its addresses for the first, second, … lookup. */
function createNames(names: Record<string, string[][]>): AddressLookup {
  return (name, _options, callback) => {
    const answers = names[name]
    const addresses = answers && (answers.length > 1 ? answers.shift() : answers[0])
    const found = (addresses ?? []).map((address): LookupAddress => ({address, family: 4}))
    callback(addresses ? null : new Error('ENOTFOUND'), found)
  }
}

const lookup = (): AddressLookup =>
  createNames({
    'public.example': [['93.184.215.14']],
    'inside.example': [['10.1.2.3']],
    'mixed.example': [['93.184.215.14', '127.0.0.1']],
    'rebinding.example': [['93.184.215.14'], ['93.184.215.14'], ['127.0.0.1']],
  })

describe('private addresses', () => {
  test.each([
    ...['127.0.0.1', '127.255.0.9', '10.0.0.1', '172.31.255.255', '192.168.1.1', '169.254.169.254'],
    ...['100.64.0.1', '0.0.0.0', '224.0.0.1', '255.255.255.255', '::1', '::', '::ffff:127.0.0.1'],
    ...['::ffff:a00:1', 'fd00::1', 'fe80::1', '64:ff9b::7f00:1', '2002:7f00:1::', 'ff02::1'],
  ])('%s is private', (address) => expect(isPrivateAddress(address)).toBe(true))

  test.each(['93.184.215.14', '172.32.0.1', '2606:4700::1111', '::ffff:93.184.215.14'])(
    '%s is public',
    (address) => expect(isPrivateAddress(address)).toBe(false),
  )

  test.each([
    'https://127.0.0.1/x',
    'https://localhost/x',
    'https://2130706433/x',
    'https://0x7f.1/x',
    'https://[::1]/x',
    'https://[::ffff:169.254.169.254]/latest/meta-data',
    'https://inside.example/x',
    'https://mixed.example/x',
    'https://nowhere.example/x',
    'http://public.example/x',
    'https://user:secret@public.example/x',
  ])('no notifications go to %s', async (url) => {
    const names = createNames({...{localhost: [['127.0.0.1']]}})
    const guard = createAddressGuard({
      allowPrivate: false,
      lookup: url.includes('localhost') ? names : lookup(),
    })
    expect(await guard.findProblem(url)).toMatch(/^expected /)
  })

  test('a public https host passes', async () => {
    const guard = createAddressGuard({allowPrivate: false, lookup: lookup()})
    expect(await guard.findProblem('https://public.example/x')).toBeNull()
    expect(await guard.findProblem('https://[2606:4700::1111]/x')).toBeNull()
  })

  async function withService(work: (service: RunningService) => Promise<void>): Promise<void> {
    await using service = await startTestService({webhooks: {lookup: lookup(), retryDelaysMs: []}})
    service.store.insert([aDeal(1)])
    await work(service)
  }

  test('a private address can be neither registered nor set later', () =>
    withService(async (service) => {
      const refused = await call(service, 'POST', '/webhook-endpoints', {url: 'https://inside.example'})
      const problem = await readProblem(refused)
      expect([refused.status, problem.errors?.[0]?.path]).toEqual([400, 'url'])
      const created = await call(service, 'POST', '/webhook-endpoints', {url: 'https://public.example'})
      const {id} = await readData<{id: string}>(created)
      const change = await call(service, 'PATCH', `/webhook-endpoints/${id}`, {url: 'https://10.0.0.1'})
      expect(change.status).toBe(400)
    }))

  test('a name that turns out private only on connection is refused then', () =>
    withService(async (service) => {
      const created = await call(service, 'POST', '/webhook-endpoints', {url: 'https://rebinding.example'})
      const {id} = await readData<{id: string}>(created)
      await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: 5})
      await expect
        .poll(async () => await readData(await call(service, 'GET', `/webhook-endpoints/${id}/deliveries`)))
        .toMatchObject([{status: 'failed', last_error: 'the host resolves to a private address'}])
    }))
})
