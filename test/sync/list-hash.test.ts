import {beforeAll, expect, test} from 'vitest'
import type {WireRecord} from '../../src/core/types.ts'
import type {Database} from '../../src/store/database.ts'
import {aRecord} from '../support/record.ts'
import {readHeads, walk} from '../support/walks.ts'
import {useWarehouse} from './warehouse.ts'

const both = aRecord({property_value: 1, loan_program: 'bridge'})

/** List rows, each under an id that names it; the digest ignores the id. */
const rows: Record<string, WireRecord> = {
  plain: aRecord(),
  'another amount notation': aRecord({loan_amount: '350000.00'}),
  'an unknown field': aRecord({extra: 1}),
  both,
  'both, fields in another order': Object.fromEntries(Object.entries(both).reverse()),
  'another property_address': aRecord({property_address: '2 Main St'}),
  'a null property_address': aRecord({property_address: null}),
  'an empty property_address': aRecord({property_address: ''}),
  'another loan_amount': aRecord({loan_amount: 350_000.01}),
  'a property_value': aRecord({property_value: 500_000}),
  'a null property_value': aRecord({property_value: null}),
  'a loan_program': aRecord({loan_program: 'bridge'}),
  'a null loan_program': aRecord({loan_program: null}),
  'another status': aRecord({status: 'funded'}),
  'another created_at': aRecord({created_at: '2026-01-05T15:00:00.000001Z'}),
  'another precision of created_at': aRecord({created_at: '2026-01-05'}),
  'ab, c': aRecord({property_address: 'ab', loan_program: 'c'}),
  'a, bc': aRecord({property_address: 'a', loan_program: 'bc'}),
}

let db: Database
let digests: Record<string, unknown>

useWarehouse((opened) => {
  db = opened
})

beforeAll(async () => {
  const page = Object.entries(rows).map(([id, row]) => ({...row, id}))
  await walk(db, {at: '2026-02-02T23:30:00Z', pages: [page]})
  digests = Object.fromEntries(Object.entries(await readHeads(db)).map(([id, head]) => [id, head.list_hash]))
})

test.each([
  ['another amount notation', 'plain'],
  ['an unknown field', 'plain'],
  ['both, fields in another order', 'both'],
])('the digest of a list row is the same with %s', (row, same) => {
  expect(digests[row]).toBe(digests[same])
})

test('the digest of a list row changes with every field, with null or absence, and with field boundaries', () => {
  const different = Object.keys(rows).filter(
    (row) => !['another amount notation', 'an unknown field', 'both, fields in another order'].includes(row),
  )
  expect(new Set(different.map((row) => digests[row])).size).toBe(different.length)
})
