import fc from 'fast-check'
import {expect, test} from 'vitest'
import {readMovements, type TotalMovement} from '../../src/build/movement.ts'
import {formatCents} from '../../src/core/money.ts'
import {openDatabase} from '../../src/store/database.ts'
import {readQuery} from '../../src/store/sql.ts'

interface Deal {
  id: number
  status: string
  status_class: string
  cents: bigint
}

async function diff(before: readonly Deal[], after: readonly Deal[]): Promise<TotalMovement[]> {
  await using db = await openDatabase({attach: []})
  await db.run('create temp table corrected (deal_id varchar)')
  for (const [side, deals] of Object.entries({before, after})) {
    await db.run(
      `create temp table deals_${side} (deal_id varchar, status varchar, status_class varchar, loan_amount decimal(18, 2))`,
    )
    const rows = deals.map(
      ({id, status, status_class, cents}) =>
        `('${id}', '${status}', '${status_class}', ${formatCents(cents)})`,
    )
    if (rows.length > 0) await db.run(`insert into temp.deals_${side} values ${rows.join(', ')}`)
  }
  await db.run(`create temp table moved_between as ${readQuery('moved_between')}`)
  return await readMovements(db)
}

const aDeal = (fields: Partial<Deal> = {}): Deal => ({
  id: 1,
  status: 'draft',
  status_class: 'pipeline',
  cents: 100_00n,
  ...fields,
})
const funded = {status: 'funded', status_class: 'funded'}

test('a total names the deals that moved it, each with what changed; nothing moves between a release and itself', async () => {
  const changesOf = (movements: readonly TotalMovement[]) =>
    movements.map(({total, status, parts}) => [
      total,
      status,
      ...parts.map((part) => `${part.deal_id} ${part.change}`),
    ])
  expect(await diff([aDeal()], [aDeal()])).toEqual([])
  expect(changesOf(await diff([aDeal()], [aDeal({id: 2, cents: 30_01n, ...funded})]))).toEqual([
    ['amount', null, '1 left', '2 appeared'],
    ['deals', null, '1 left', '2 appeared'],
    ['funded_amount', null, '2 appeared'],
    ['funded_deals', null, '2 appeared'],
    ['amount', 'draft', '1 left'],
    ['deals', 'draft', '1 left'],
    ['amount', 'funded', '2 appeared'],
    ['deals', 'funded', '2 appeared'],
  ])
  const reclassified = await diff([aDeal({status: 'serviced'})], [aDeal({...funded, status: 'serviced'})])
  expect(changesOf(reclassified)).toEqual([
    ['funded_amount', null, '1 status_class'],
    ['funded_deals', null, '1 status_class'],
  ])
  const [movement] = await diff([aDeal()], [aDeal({cents: 100_01n})])
  const now = {status: 'draft', status_class: 'pipeline'}
  expect(movement?.parts).toEqual([
    {
      ...{deal_id: '1', change: 'loan_amount', movement: '0.01', is_corrected: false},
      before: {...now, loan_amount: '100.00'},
      after: {...now, loan_amount: '100.01'},
    },
  ])
})

const deals = fc.uniqueArray(
  fc.record({
    id: fc.integer({min: 1, max: 12}),
    status: fc.constantFrom('draft', 'approved', 'funded', 'odd'),
    status_class: fc.constantFrom('pipeline', 'funded'),
    cents: fc.oneof(fc.bigInt(0n, 3n), fc.bigInt(0n, 9_999_999_999_999_999n)),
  }),
  {selector: ({id}) => id, maxLength: 12},
)

test('the parts of every total add up to its movement, and every total that moved is listed', async () => {
  const cents = (text: string) => BigInt(text.replace('.', ''))
  const sum = (values: readonly bigint[]) => values.reduce((total, value) => total + value, 0n)
  await fc.assert(
    fc.asyncProperty(deals, deals, async (before, after) => {
      const movements = await diff(before, after)
      const expected = new Map<string, bigint>()
      const count = (side: readonly Deal[], sign: bigint) => {
        for (const {status, status_class, cents: amount} of side) {
          const add = (key: string, value: bigint) =>
            expected.set(key, (expected.get(key) ?? 0n) + sign * value)
          add('deals null', 1n)
          add('amount null', amount)
          add(`deals ${status}`, 1n)
          add(`amount ${status}`, amount)
          if (status_class !== 'funded') continue
          add('funded_deals null', 1n)
          add('funded_amount null', amount)
        }
      }
      count(before, -1n)
      count(after, 1n)
      for (const {movement, before: from, after: to, parts} of movements) {
        expect(sum(parts.map((part) => cents(part.movement)))).toBe(cents(movement))
        expect(cents(to) - cents(from)).toBe(cents(movement))
      }
      const moved = new Map(
        movements.map(({total, status, movement}) => [`${total} ${status}`, cents(movement)]),
      )
      for (const [key, movement] of expected) expect(moved.get(key) ?? 0n, key).toBe(movement)
      expect([...moved.keys()].filter((key) => !expected.has(key))).toEqual([])
    }),
    {numRuns: 12, seed: 7},
  )
})
