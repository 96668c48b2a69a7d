import {expect, test} from 'vitest'
import {type AddressLookup, createAddressGuard} from '../../src/service/webhooks.ts'
import {until} from '../support/until.ts'
import {aDeal, call, get, readData, readRefusal, startTestService} from './client.ts'

/** Creates a lookup of names, each with its addresses for the first, second, … lookup. */
function createLookup(): AddressLookup {
  const names: Record<string, string[][]> = {
    localhost: [['127.0.0.1']],
    'public.example': [['93.184.215.14']],
    'inside.example': [['10.1.2.3']],
    'mixed.example': [['93.184.215.14', '127.0.0.1']],
    'leaving.example': [['93.184.215.14'], []],
    'rebinding.example': [['93.184.215.14'], ['93.184.215.14'], ['127.0.0.1']],
  }
  return (name, _options, callback) => {
    const answers = names[name] ?? []
    const addresses = answers.length > 1 ? answers.shift() : answers[0]
    const found = (addresses ?? []).map((address) => ({address, family: 4}))
    callback(addresses ? null : new Error('ENOTFOUND'), found)
  }
}

const PRIVATE = [
  ...['127.0.0.1', '127.255.0.9', '10.0.0.1', '172.31.255.255', '192.168.1.1', '169.254.169.254'],
  ...['100.64.0.1', '0.0.0.0', '224.0.0.1', '255.255.255.255', '[::1]', '[::]', '[::ffff:127.0.0.1]'],
  ...['[::ffff:a00:1]', '[fd00::1]', '[fe80::1]', '[64:ff9b::7f00:1]', '[2002:7f00:1::]', '[ff02::1]'],
  ...['localhost', '2130706433', '0x7f.1', 'inside.example', 'mixed.example', 'nowhere.example'],
]
const PUBLIC = ['public.example', '172.32.0.1', '[2606:4700::1111]', '[::ffff:93.184.215.14]']

test('notifications go only to public https hosts', async () => {
  const guard = createAddressGuard({allowPrivate: false, lookup: createLookup()})
  const refused = [...PRIVATE.map((host) => `https://${host}/x`), 'http://public.example/x']
  for (const url of [...refused, 'https://user:secret@public.example/x'])
    expect([url, await guard.findProblem(url)]).toEqual([url, expect.stringMatching(/^expected /)])
  for (const host of PUBLIC)
    expect([host, await guard.findProblem(`https://${host}/x`)]).toEqual([host, null])
})

test('a private address can be neither registered nor set later, nor be what a name turns out to be; what was registered is answered again', async () => {
  await using service = await startTestService({webhooks: {lookup: createLookup(), retryDelaysMs: []}})
  service.store.insert([aDeal(1)])
  const register = (url: string, headers = {}) => call(service, 'POST', '/webhook-endpoints', {url}, headers)
  expect(await readRefusal(register('https://inside.example'))).toBe('400 invalid_body url')
  const leave = async () => (await register('https://leaving.example', {'idempotency-key': 'once'})).text()
  expect(await leave()).toBe(await leave())
  const {id} = await readData<{id: string}>(register('https://rebinding.example'))
  const path = `/webhook-endpoints/${id}`
  expect((await call(service, 'PATCH', path, {url: 'https://10.0.0.1'})).status).toBe(400)

  await call(service, 'PATCH', '/deals/deal_000001', {loan_amount: 5})
  const [delivery] = await until(async () => {
    const deliveries = await get<{status: string}[]>(service, `${path}/deliveries`)
    return deliveries[0]?.status === 'failed' && deliveries
  })
  expect(delivery).toMatchObject({last_error: 'the host resolves to a private address'})
})
