import {describe, expect, test} from 'vitest'
import {addDays} from '../../src/core/clock.ts'
import {ConfigError} from '../../src/core/errors.ts'
import {advanceDay} from '../../src/service/advance-day.ts'
import {createDealStore, type DealStore, type StoredDeal} from '../../src/service/deals.ts'
import {seedPortfolio} from '../../src/service/portfolio.ts'
import {openServiceDatabase} from '../../src/service/service-database.ts'

const TODAY = '2026-03-02'

function aPortfolio(deals = 2_500, seed = 7): DealStore {
  const store = createDealStore(openServiceDatabase(':memory:'))
  seedPortfolio(store, {deals, seed, today: TODAY})
  return store
}

function readAll(store: DealStore): StoredDeal[] {
  return store.list({limit: 1_000_000})
}

function dayOf(deal: StoredDeal): string {
  return new Date(deal.createdAt).toISOString().slice(0, 10)
}

describe('synthetic portfolio', () => {
  const deals = readAll(aPortfolio())

  test('is the same for the same seed and date, and different for others', () => {
    expect(readAll(aPortfolio())).toEqual(deals)
    expect(readAll(aPortfolio(2_500, 8))).not.toEqual(deals)
  })

  test('holds deals of the 18 months before today, older ones mostly funded', () => {
    expect(deals).toHaveLength(2_500)
    expect(dayOf(deals[0]!) >= addDays(TODAY, -550)).toBe(true)
    expect(dayOf(deals.at(-1)!) < TODAY).toBe(true)
    const old = deals.slice(0, 1_250)
    expect(old.filter(({status}) => status === 'funded').length).toBeGreaterThan(1_200)
    const statuses = Map.groupBy(deals, ({status}) => status)
    expect([...statuses.keys()].sort()).toEqual(['approved', 'draft', 'funded', 'underwriting'])
    for (const group of statuses.values()) expect(group.length).toBeGreaterThan(50)
  })

  test("has programs, amounts and values like a lender's, including missing ones and exact limits", () => {
    const programs = new Set(deals.map(({loanProgram}) => loanProgram))
    expect([programs.size, programs.has('bridge_30yr'), programs.has(null)]).toEqual([8, true, true])
    const valued = deals.filter(({propertyValueCents}) => propertyValueCents !== null)
    expect(deals.length - valued.length).toBeGreaterThan(25)
    expect(deals.length - valued.length).toBeLessThan(150)
    const amounts = deals.map(({loanAmountCents}) => loanAmountCents)
    expect(amounts.every((amount) => amount >= 59_000_00n && amount <= 25_100_000_00n)).toBe(true)
    expect(amounts.filter((amount) => amount % 100n !== 0n).length).toBeGreaterThan(300)
    const ltvs = valued.map(({loanAmountCents, propertyValueCents}) =>
      Number((loanAmountCents * 1_000_000n) / propertyValueCents!),
    )
    for (const limit of [650_000, 700_000, 750_000])
      expect(ltvs.filter((ltv) => ltv === limit).length).toBeGreaterThan(50)
    const usual = ltvs.filter((ltv) => ltv >= 550_000 && ltv <= 800_000)
    expect(usual.length / ltvs.length).toBeGreaterThan(0.85)
  })

  test('has addresses in every spelling that people use', () => {
    const spellings = [
      ...[/, TX 7\d{4}$/, /, FL$/, /\d{5}-\d{4}$/, /, North Carolina/, /^[^A-Z]+, ga 3\d{4}$/, /, USA$/],
      ...[
        /, (Apt|Unit|Suite) \d+, /,
        /^Lot \d+ Block/,
        /, PR 009/,
        /, DC 200/,
        /^(Parcel|TBD)/,
        /"/,
        /[éñí]/,
      ],
      /^=HYPERLINK\(/,
    ]
    const isUsed = (spelling: RegExp) => deals.some(({propertyAddress}) => spelling.test(propertyAddress))
    expect(spellings.filter((spelling) => !isUsed(spelling))).toEqual([])
  })
})

describe('a day in the portfolio', () => {
  test('brings every kind of event every day, with little churn', () => {
    const store = aPortfolio()
    for (let ahead = 1; ahead <= 20; ahead++) {
      const before = store.count()
      const events = advanceDay(store, {seed: 7, day: addDays(TODAY, ahead)})
      for (const [kind, count] of Object.entries(events))
        expect(count, `${kind}, day ${ahead}`).toBeGreaterThan(0)
      expect(events.repriced).toBeLessThanOrEqual(before * 0.03)
      expect(events.withdrawn + events.removed).toBeLessThanOrEqual(before * 0.005)
      expect(store.count()).toBe(before + events.created - events.withdrawn - events.removed)
    }
  })

  test('is the same for the same seed, day and deals', () => {
    const days = [1, 2, 3].map((ahead) => addDays(TODAY, ahead))
    const [one, other] = [aPortfolio(), aPortfolio()].map((store) => {
      const events = days.map((day) => advanceDay(store, {seed: 7, day}))
      return {events, deals: readAll(store)}
    })
    expect(one).toEqual(other)
  })

  test('changes what it counts and nothing else', () => {
    const store = aPortfolio()
    const day = addDays(TODAY, 1)
    const before = new Map(readAll(store).map((deal) => [deal.id, deal]))
    const events = advanceDay(store, {seed: 7, day})
    const after = readAll(store)
    const born = after.filter(({id}) => !before.has(id))
    const kept = after.flatMap((deal) => (before.has(deal.id) ? [{old: before.get(deal.id)!, deal}] : []))

    expect(born.every((deal) => dayOf(deal) === day && deal.status === 'draft')).toBe(true)
    const changed = (field: keyof StoredDeal): number =>
      kept.filter(({old, deal}) => old[field] !== deal[field]).length
    expect(changed('loanAmountCents')).toBe(events.repriced)
    expect(changed('propertyValueCents')).toBe(events.reappraised)
    expect(changed('status')).toBe(events.submitted + events.approved + events.funded + events.paid_off)
    expect(changed('propertyAddress') + changed('loanProgram') + changed('createdAt')).toBe(0)
    const moves = kept.filter(({old, deal}) => old.status !== deal.status)
    expect(new Set(moves.map(({old, deal}) => `${old.status}>${deal.status}`))).toEqual(
      new Set(['draft>underwriting', 'underwriting>approved', 'approved>funded', 'funded>paid_off']),
    )
    const isBare = ({deal}: {deal: StoredDeal}) =>
      deal.propertyValueCents === null || deal.loanProgram === null
    expect(moves.filter(isBare)).toEqual([])
    const gone = [...before.values()].filter(({id}) => !after.some((deal) => deal.id === id))
    expect(gone.filter(({status}) => status === 'funded' || status === 'paid_off')).toEqual([])
  })

  test('leaves an empty portfolio empty', () => {
    const events = advanceDay(createDealStore(openServiceDatabase(':memory:')), {seed: 7, day: TODAY})
    expect(new Set(Object.values(events))).toEqual(new Set([0]))
  })

  test('refuses to pass the same day again and changes nothing', () => {
    const store = aPortfolio()
    const day = addDays(TODAY, 1)
    advanceDay(store, {seed: 7, day})
    const before = readAll(store)
    expect(() => advanceDay(store, {seed: 7, day})).toThrow(ConfigError)
    expect(readAll(store)).toEqual(before)
  })
})
