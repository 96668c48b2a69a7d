import {beforeEach, expect, test} from 'vitest'
import {DEAL_STATUSES, type Deal} from '../../src/contract/deal.ts'
import {useShared} from '../support/set-up.ts'
import {aDeal, call, get, NOW, readData, readPage, readRefusal, startTestService} from './client.ts'

const PATH = '/deals/deal_000001'

const service = await useShared(startTestService())
beforeEach(service.remember())

test('a new deal is a draft with what was sent, whatever its address holds and to the cent', async () => {
  const sent = {
    property_address: '12 Main St, Austin, TX 78701',
    loan_amount: 350_000.1,
    property_value: 500_000,
    loan_program: 'bridge_30yr',
  }
  const create = (fields: object = {}) => call(service, 'POST', '/deals', {...sent, ...fields})
  const response = await create()
  const {id, ...deal} = await readData<Deal>(response)
  expect(id).toMatch(/^deal_[a-z0-9]{20}$/)
  expect([response.status, response.headers.get('location')]).toEqual([201, `/v1/deals/${id}`])
  expect(response.headers.get('content-type')).toMatch(/^application\/json/)
  expect(deal).toEqual({...sent, status: 'draft', created_at: new Date(NOW).toISOString()})
  expect((await readPage(service)).data).toMatchObject([{id, created_at: deal.created_at}])
  const amounts = [0, 0.01, 350_000.1, 1e6, 69_999_999_999_999.98]
  const addresses = [
    '12 "The Foundry"\nUnit 4',
    'Calle José Martí 1 🏠',
    `1 Main St'); drop table deal; -- $(reboot) <script> \\x00\\u0000`,
  ]
  for (const fields of [
    ...addresses.map((property_address) => ({property_address})),
    ...amounts.flatMap((amount) => [{loan_amount: amount}, {property_value: amount}]),
  ])
    expect(await readData<Deal>(create(fields))).toMatchObject(fields)
  // A list shows what the own page does.
  for (const listed of (await readPage(service)).data)
    expect(await get(service, `/deals/${listed.id}`)).toMatchObject(listed)
})

test('refuses a new deal with bad fields, naming each, and a body that is no object', async () => {
  const create = (body: unknown) => readRefusal(call(service, 'POST', '/deals', body))
  expect(await create({loan_amount: 1.234, property_value: -1, ssn: '1', status: 'funded'})).toBe(
    '400 invalid_body loan_amount property_address property_value ssn status',
  )
  const typed = {property_address: 12, loan_amount: '350000', property_value: '1', loan_program: 30}
  expect(await create({...typed, id: 'deal_mine'})).toBe(
    '400 invalid_body id loan_amount loan_program property_address property_value',
  )
  for (const text of ['null', '[]', '"deal"']) expect(await create(text)).toMatch('400 invalid_body')
  expect(service.store.count()).toBe(0)
})

test('refuses a change of nothing, of a fixed field, or to a wrong value', async () => {
  service.store.insert([aDeal(1)])
  for (const change of [{}, {status: 'closed'}, {id: 'deal_2'}, {loan_amount: null}])
    expect(await readRefusal(call(service, 'PATCH', PATH, change))).toMatch('400 invalid_body')
  expect(service.store.get('deal_000001')).toEqual(aDeal(1))
})

test('deletes a deal without a body, but none that is or was funded', async () => {
  service.store.insert([aDeal(1), aDeal(2, {status: 'funded'}), aDeal(3, {status: 'paid_off'})])
  const response = await call(service, 'DELETE', PATH)
  expect([response.status, await response.text()]).toEqual([204, ''])
  for (const id of ['deal_000002', 'deal_000003'])
    expect(await readRefusal(call(service, 'DELETE', `/deals/${id}`))).toBe('409 deal_funded')
  expect((await readPage(service)).data.map(({id}) => id)).toEqual(['deal_000002', 'deal_000003'])
})

test('the report adds up to the deals after every change, exactly where a sum fits into no integer', async () => {
  const {store} = service
  const huge = {status: 'funded', loan_amount_cents: 6_999_999_999_999_999n}
  store.insert([aDeal(1), aDeal(2), aDeal(3), aDeal(4, {status: 'on_hold', loan_amount_cents: 1n}), aDeal(5)])
  store.insert(Array.from({length: 2_000}, (_, index) => aDeal(10 + index, huge)))
  store.update(aDeal(1).id, {loan_amount_cents: 10n})
  store.update(aDeal(2).id, {status: 'approved'})
  store.update(aDeal(3).id, {status: 'funded', loan_amount_cents: 2_003n})
  store.update(aDeal(3).id, {property_address: '1 Oak Ave'})
  store.remove(aDeal(1).id)
  expect(await get(service, '/reports/portfolio')).toEqual({
    deals: 2_004,
    amount: '140000000000700000.04',
    by_status: [
      {status: 'draft', deals: 1, amount: '350000.00'},
      {status: 'approved', deals: 1, amount: '350000.00'},
      {status: 'funded', deals: 2_001, amount: '140000000000000000.03'},
      {status: 'on_hold', deals: 1, amount: '0.01'},
    ],
  })
})

test('every status follows another only as the table says', async () => {
  const allowed = new Set([
    'draft>underwriting',
    'underwriting>draft',
    'underwriting>approved',
    'approved>underwriting',
    'approved>funded',
    'funded>paid_off',
    ...DEAL_STATUSES.map((status) => `${status}>${status}`),
  ])
  const pairs = DEAL_STATUSES.flatMap((from) => DEAL_STATUSES.map((to) => ({from, to})))
  for (const [index, {from, to}] of pairs.entries()) {
    const deal = aDeal(index + 2, {status: from})
    service.store.insert([deal])
    const response = await call(service, 'PATCH', `/deals/${deal.id}`, {status: to})
    const isAllowed = allowed.has(`${from}>${to}`)
    expect([from, to, response.status]).toEqual([from, to, isAllowed ? 200 : 409])
    if (!isAllowed) expect(await readRefusal(response)).toMatch('409 invalid_transition')
    expect(service.store.get(deal.id)).toEqual({...deal, ...(isAllowed && {status: to})})
  }
})

test('a deal enters underwriting only with an amount, a value and a program, which stay', async () => {
  const bare = {loan_amount_cents: 0n, property_value_cents: null, loan_program: null}
  service.store.insert([aDeal(1, bare), aDeal(2, {status: 'approved'})])
  expect(await readRefusal(call(service, 'PATCH', PATH, {status: 'underwriting'}))).toBe(
    '409 incomplete_deal loan_amount loan_program property_value',
  )
  expect(service.store.get('deal_000001')).toEqual(aDeal(1, bare))
  const whole = {status: 'underwriting', loan_amount: 1, property_value: 2, loan_program: 'bridge_30yr'}
  expect(await readData<Deal>(call(service, 'PATCH', PATH, whole))).toMatchObject(whole)
  for (const change of [{property_value: null}, {property_value: 0}, {loan_program: null}, {loan_amount: 0}])
    expect(await readRefusal(call(service, 'PATCH', '/deals/deal_000002', change))).toBe(
      `409 incomplete_deal ${Object.keys(change)}`,
    )
  service.store.insert([aDeal(3, {...bare, loan_program: 'bridge_30yr', status: 'funded'})])
  expect(await readRefusal(call(service, 'PATCH', '/deals/deal_000003', {loan_program: null}))).toBe(
    '409 incomplete_deal loan_program',
  )
  expect((await call(service, 'PATCH', '/deals/deal_000002', {loan_amount: 360_000})).status).toBe(200)
})

test('an amount that a number cannot carry is refused with the limit', async () => {
  const body = {property_address: '12 Ocean Ct', loan_amount: 70_000_000_000_000.02}
  const message = 'expected at most 70000000000000: above it, a number carries no exact cents'
  const answer = await call(service, 'POST', '/deals', body)
  expect(await answer.json()).toMatchObject({errors: [{path: 'loan_amount', message}]})
})

test('If-Match lets a change or a deletion through only on the deal the caller saw', async () => {
  service.store.insert([aDeal(1)])
  const readEtag = async () => (await call(service, 'GET', PATH)).headers.get('etag')
  const change = (ifMatch: string | null, loan_amount: number) =>
    call(service, 'PATCH', PATH, {loan_amount}, {'if-match': String(ifMatch)})

  const etag = await readEtag()
  const first = await change(etag, 1)
  expect(first.status).toBe(200)
  expect(await readRefusal(change(etag, 2))).toBe('412 precondition_failed')
  expect(service.store.get('deal_000001')?.loan_amount_cents).toBe(100n)
  expect((await change(`W/${first.headers.get('etag')}`, 3)).status).toBe(412)
  expect((await change(`"other", ${first.headers.get('etag')}`, 3)).status).toBe(200)
  expect((await change('*', 4)).status).toBe(200)

  const remove = (ifMatch: string | null) =>
    call(service, 'DELETE', PATH, undefined, {'if-match': String(ifMatch)})
  expect((await remove('"old"')).status).toBe(412)
  expect((await remove(await readEtag())).status).toBe(204)
})
