import {beforeEach, expect, test} from 'vitest'
import {useShared} from '../support/set-up.ts'
import {
  aDeal,
  call,
  insertDeals,
  readData,
  readPage,
  readRefusal,
  startTestService,
  walkIds,
} from './client.ts'

const service = await useShared(startTestService())
beforeEach(service.remember())

test('a page has 25 rows unless another number is asked for, each with its five fields', async () => {
  insertDeals(service, 101)
  const {data, has_more} = await readPage(service)
  expect([data.length, has_more]).toEqual([25, true])
  for (const deal of data)
    expect(Object.keys(deal)).toEqual(['id', 'property_address', 'loan_amount', 'status', 'created_at'])
  for (const limit of [1, 100]) expect((await readPage(service, `?limit=${limit}`)).data).toHaveLength(limit)
})

test('refuses a wrong parameter rather than listing everything', async () => {
  const limits = ['0', '101', '-1', '1.5', 'ten', '', '1e1', '10&limit=20'].map((limit) => `limit=${limit}`)
  for (const query of [...limits, 'stage=draft', 'status=closed'])
    expect(await readRefusal(call(service, 'GET', `/deals?${query}`))).toBe(
      `400 invalid_parameter ${query.split('=')[0]}`,
    )
})

test('walks every deal once at any page size, even with many created at the same instant', async () => {
  const deals = Array.from({length: 60}, (_, index) => aDeal(index, {created_at: 1_000 + (index % 3)}))
  service.store.insert(deals)
  const inOrder = deals.toSorted((one, other) => one.created_at - other.created_at).map(({id}) => id)
  for (const limit of [7, 20, 59, 60]) expect(await walkIds(service, limit)).toEqual(inOrder)
})

test('loses and repeats no deal while others come and go', async () => {
  insertDeals(service, 40)
  let next = 0
  const ids = await walkIds(service, 7, () => {
    next++
    // The last deal of the previous page.
    service.store.remove(aDeal(next * 7).id)
    service.store.insert([aDeal(1_000 + next, {created_at: 0})])
    service.store.insert([aDeal(2_000 + next)])
  })
  expect(new Set(ids).size).toBe(ids.length)
  for (let number = 1; number <= 40; number++) expect(ids).toContain(aDeal(number).id)
})

test('lists in the order of creation under a clock that stands still, too: a walk loses no deal made meanwhile', async () => {
  const made: string[] = []
  const create = async () => {
    const body = {property_address: '12 Main St', loan_amount: 1}
    made.push((await readData<{id: string}>(call(service, 'POST', '/deals', body))).id)
  }
  for (let count = 0; count < 8; count++) await create()
  const ids = await walkIds(service, 2, create)
  expect([...ids, made.at(-1)]).toEqual(made)
  for (const rate_pct of [7, 8, 7.5, 9, 7.25]) {
    const rate = {provider: 'p', loan_program: 'bridge_30yr', rate_pct, effective_at: '2026-01-01T00:00:00Z'}
    await call(service, 'POST', '/rates', rate)
    const [inForce] = await readData<{rate_pct: number}[]>(call(service, 'GET', '/rates?current=true'))
    expect(inForce).toMatchObject({rate_pct})
  }
})

test('refuses an invalid cursor, and one from another filter or another service', async () => {
  insertDeals(service, 4)
  await using other = await startTestService()
  insertDeals(other, 4)
  const all = await readPage(service, '?limit=2')
  const drafts = await readPage(service, '?limit=2&status=draft')
  const foreign = await readPage(other, '?limit=2')
  const [begin = '', end = ''] = [all.next_cursor?.slice(0, 30), all.next_cursor?.slice(31)]
  const forged = ['a', 'b', '-', '']
    .map((character) => begin + character + end)
    .filter((one) => one !== all.next_cursor)
  const none = ['', 'x', 'deal_000002', '%00', 'A'.repeat(32), ...forged, `${all.next_cursor}A`]
  for (const query of [
    `status=draft&cursor=${all.next_cursor}`,
    `cursor=${drafts.next_cursor}`,
    `status=funded&cursor=${drafts.next_cursor}`,
    ...[...none, foreign.next_cursor].map((cursor) => `cursor=${cursor}`),
  ])
    expect(await readRefusal(call(service, 'GET', `/deals?${query}`))).toMatch('400 invalid_cursor')
  service.store.update('deal_000003', {status: 'funded'})
  const rest = await readPage(service, `?limit=2&status=draft&cursor=${drafts.next_cursor}`)
  expect(rest.data.map(({id}) => id)).toEqual(['deal_000004'])
})
