import {hash} from 'node:crypto'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {addDays} from '../../src/core/clock.ts'
import {createDealStore, type DealStore, type StoredDeal} from '../../src/service/deals.ts'
import {advanceDay, linkPortfolio, seedPortfolio} from '../../src/service/portfolio.ts'
import {openServiceDatabase, type ServiceDatabase} from '../../src/service/service-database.ts'
import {anyRow} from '../support/data.ts'

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

const DEALS = 60
const fileRow = z.object({bytes: z.number(), sha256: z.string(), content: z.instanceof(Uint8Array)})

function aLinkedPortfolio(seed = 7): ServiceDatabase {
  const database = openServiceDatabase(':memory:')
  const store = createDealStore(database)
  seedPortfolio(store, {deals: DEALS, seed, today: TODAY})
  linkPortfolio({database, store}, {seed, since: 0, until: Date.parse(TODAY)})
  return database
}

test('every deal has one or two borrowers and the whole documents of its status, the same for the same seed', () => {
  const [database, again, other] = [aLinkedPortfolio(), aLinkedPortfolio(), aLinkedPortfolio(8)]
  for (const table of ['borrower', 'document', 'document_file']) {
    const readTable = (of: ServiceDatabase) => of.all(anyRow, `select * from ${table} order by 1`)
    expect(readTable(again)).toEqual(readTable(database))
    expect(readTable(other)).not.toEqual(readTable(database))
  }
  const borrowers = database.all(anyRow, 'select count(*) as n from borrower group by deal_id')
  expect(borrowers).toHaveLength(DEALS)
  expect(new Set(borrowers.map(({n}) => n))).toEqual(new Set([1, 2]))
  const lacking = `select id from deal where status = 'funded' and id not in (
    select deal_id from document where category = 'closing'
  )`
  expect(database.all(anyRow, lacking)).toEqual([])
  const late = `select document.id from document join deal on deal.id = deal_id
    where document.created_at not between deal.created_at and ?`
  expect(database.all(anyRow, late, [Date.parse(TODAY)])).toEqual([])
  const stored = 'select bytes, sha256, content from document join document_file on document_id = id'
  const files = database.all(fileRow, stored)
  expect(files.length).toBeGreaterThan(DEALS * 2)
  for (const {bytes, sha256, content} of files)
    expect([content.length, hash('sha256', content)]).toEqual([bytes, sha256])
})
