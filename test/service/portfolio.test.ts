import {expect, test} from 'vitest'
import {addDays} from '../../src/core/clock.ts'
import {createDealStore, type DealStore, type StoredDeal} from '../../src/service/deals.ts'
import {advanceDay, seedPortfolio} from '../../src/service/portfolio.ts'
import {openServiceDatabase} from '../../src/service/service-database.ts'

const TODAY = '2026-03-02'

function aPortfolio(deals = 2_500, seed = 7): DealStore {
  const store = createDealStore(openServiceDatabase(':memory:'))
  seedPortfolio(store, {deals, seed, today: TODAY})
  return store
}

const readAll = (store: DealStore): StoredDeal[] => store.list({limit: 1_000_000})
const dayOf = (deal: StoredDeal): string => new Date(deal.created_at).toISOString().slice(0, 10)

test('a portfolio and its days are the same for the same seed, and different for others', () => {
  const [one, again, other] = [7, 7, 8].map((seed) => {
    const store = aPortfolio(500, seed)
    for (const ahead of [1, 2, 3]) advanceDay(store, {seed, day: addDays(TODAY, ahead)})
    return readAll(store)
  })
  expect(again).toEqual(one)
  expect(other).not.toEqual(one)
})

test('every day brings every kind of event, with little churn, and changes nothing else', () => {
  const store = aPortfolio()
  for (let ahead = 1; ahead <= 6; ahead++) {
    const day = addDays(TODAY, ahead)
    const before = new Map(readAll(store).map((deal) => [deal.id, deal]))
    advanceDay(store, {seed: 7, day})
    const after = new Map(readAll(store).map((deal) => [deal.id, deal]))
    const born = [...after.values()].filter(({id}) => !before.has(id))
    expect(born.length, day).toBeGreaterThan(0)
    expect(born.every((deal) => dayOf(deal) === day && deal.status === 'draft')).toBe(true)
    const gone = [...before.values()].filter(({id}) => !after.has(id))
    expect(gone.length, day).toBeGreaterThan(0)
    expect(gone.length).toBeLessThanOrEqual(before.size * 0.005)
    for (const {status} of gone) expect(['draft', 'underwriting', 'approved']).toContain(status)

    const kept = [...before.values()].flatMap((old) => (after.has(old.id) ? [[old, after.get(old.id)!]] : []))
    const changed = (field: keyof StoredDeal) => kept.filter(([old, deal]) => old?.[field] !== deal?.[field])
    const churn = (['loan_amount_cents', 'property_value_cents'] as const).map(
      (field) => changed(field).length,
    )
    expect(Math.min(...churn), day).toBeGreaterThan(0)
    expect(Math.max(...churn)).toBeLessThanOrEqual(before.size * 0.03)
    for (const field of ['property_address', 'loan_program', 'created_at'] as const)
      expect(changed(field)).toEqual([])
    const moves = changed('status').map(([old, deal]) => `${old?.status}>${deal?.status}`)
    expect(new Set(moves)).toEqual(
      new Set(['draft>underwriting', 'underwriting>approved', 'approved>funded', 'funded>paid_off']),
    )
    const isBare = (deal?: StoredDeal) => deal?.property_value_cents === null || deal?.loan_program === null
    expect(changed('status').filter(([, deal]) => isBare(deal))).toEqual([])
  }
})

test('an empty portfolio stays empty, and the same day is refused a second time, changing nothing', () => {
  const empty = createDealStore(openServiceDatabase(':memory:'))
  advanceDay(empty, {seed: 7, day: TODAY})
  expect(readAll(empty)).toEqual([])
  const store = aPortfolio(500)
  const day = addDays(TODAY, 1)
  advanceDay(store, {seed: 7, day})
  const before = readAll(store)
  expect(() => advanceDay(store, {seed: 7, day})).toThrow(expect.objectContaining({exitCode: 2}))
  expect(readAll(store)).toEqual(before)
})
