import {expect, test} from 'vitest'
import type {WireRecord} from '../../src/core/types.ts'
import type {Database} from '../../src/store/database.ts'
import {anyRow} from '../support/data.ts'
import {aRecord} from '../support/record.ts'
import {useWarehouse} from '../support/set-up.ts'
import {type WalkSpec, walk} from '../support/walks.ts'

const DAY_1 = '2026-02-02T23:30:00Z'
const DAY_2 = '2026-02-03T23:30:00Z'
const DAY_3 = '2026-02-04T23:30:00Z'

let db: Database

useWarehouse((opened) => {
  db = opened
})

/** The report of a walk. */
async function walkAndReport(spec: WalkSpec): Promise<Record<string, unknown>[]> {
  const {walkId} = (await walk(db, spec)).walk
  const sql = 'select kind, path, value, records from warehouse.raw.drift where walk_id = $1 order by all'
  return db.all(anyRow, sql, [walkId])
}

/** A field that the contract does not know. */
const newField = (path: string, records = 1) => ({
  kind: 'new_field',
  path,
  value: null,
  records: String(records),
})

const record = (id: string, fields: WireRecord = {}) => aRecord({id, ...fields})
const detail = (id: string, fields: WireRecord) => ({id, at: DAY_1, record: record(id, fields)})

test('records that follow the contract show no drift, nor do list rows without value and program', async () => {
  const details = [detail('a', {property_value: 1, loan_program: null})]
  expect(await walkAndReport({at: DAY_1, pages: [[record('a'), record('b')]], details})).toEqual([])
})

test('unknown fields are reported by name, one level deep, once a record, and never with their content', async () => {
  const odd = {is_new: 1, property_value: 1, loan_program: null}
  const pages = [
    [record('a', {borrower: {name: 'Jane Doe', address: {zip: '1'}}, 'Roe, Jane': [1]})],
    [record('b', {borrower: {name: 'John Doe'}}), record('c', {borrower: null}), record('d')],
    // Cut in the middle of an emoji.
    [record('e', {note: 'cut \ud83d', '\ud83d': {'\ud83d': 1, '\udc00': 2}}), record('f', odd)],
    [record('f', odd)],
  ]
  expect(await walkAndReport({at: DAY_1, pages, details: [detail('f', odd)]})).toEqual([
    newField('borrower'),
    newField('borrower.address'),
    newField('borrower.name', 2),
    newField('is_new'),
    newField('note'),
    newField('sha256:83d544ccc223.sha256:83d544ccc223'),
    newField('sha256:9fea033a85e7'),
  ])
})

test('optional fields that own pages leave out are reported', async () => {
  const details = [detail('a', {}), detail('b', {property_value: null})]
  expect(await walkAndReport({at: DAY_1, pages: [[record('a'), record('b'), record('c')]], details})).toEqual(
    [
      {kind: 'missing_field', path: 'loan_program', value: null, records: '2'},
      {kind: 'missing_field', path: 'property_value', value: null, records: '1'},
    ],
  )
})

test('a status outside the contract is reported in every walk that shows it', async () => {
  const pages = [
    [record('a', {status: 'on_hold'}), record('b', {status: 'On_Hold '}), record('c', {status: 'Draft'})],
  ]
  const expected = [{kind: 'unknown_value', path: 'status', value: 'on_hold', records: '2'}]
  expect(await walkAndReport({at: DAY_1, pages})).toEqual(expected)
  expect(await walkAndReport({at: DAY_2, pages})).toEqual(expected)
})

test('a program new since the first walk is reported once, by the walk that shows it', async () => {
  const walkWith = (at: string, ...programs: (string | null)[]) =>
    walkAndReport({at, pages: [programs.map((loan_program, index) => record(`d${index}`, {loan_program}))]})
  expect(await walkWith(DAY_1, 'bridge', 'rental')).toEqual([])
  expect(await walkWith(DAY_2, 'rental', 'fix_and_flip', null)).toEqual([
    {kind: 'unknown_value', path: 'loan_program', value: 'fix_and_flip', records: '1'},
  ])
  expect(await walkWith(DAY_3, 'bridge', 'fix_and_flip')).toEqual([])
})

test('a source that uses ids as field names does not flood the report', async () => {
  const fields = Object.fromEntries(Array.from({length: 300}, (_, index) => [`field_${index}`, index]))
  const pages = [[record('a', {...fields, often: 1}), record('b', {often: 1})]]
  const report = await walkAndReport({at: DAY_1, pages})
  expect(report).toHaveLength(100)
  expect(report).toContainEqual(newField('often', 2))
})
