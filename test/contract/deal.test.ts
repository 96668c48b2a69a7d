import {expect, test} from 'vitest'
import {dealStream} from '../../src/contract/deal.ts'
import {optionalColumnsOf} from '../../src/contract/stream.ts'
import {aRecord} from '../support/record.ts'

const columnNames = dealStream.columns.map(({name}) => name)

test('a parsed record has a value for every column and the id, and nothing else', () => {
  const parsed = dealStream.schema.parse(aRecord({property_value: 1, loan_program: 'bridge', extra: 1}))
  expect(Object.keys(parsed).sort()).toEqual([dealStream.idColumn, ...columnNames].sort())
})

test('only the fields that list rows lack may be absent', () => {
  const missing = dealStream.wireFields.filter((field) => !(field in aRecord()))
  expect(optionalColumnsOf(dealStream).map(({name}) => name)).toEqual(missing)
})

test('the columns that the descriptor names exist', () => {
  const named = [
    dealStream.amountColumn,
    dealStream.settled?.column,
    ...dealStream.columns.flatMap(({precisionColumn}) => precisionColumn ?? []),
  ]
  expect(columnNames).toEqual(expect.arrayContaining(named))
})

test('the id field is a wire field', () => {
  expect(dealStream.wireFields).toContain(dealStream.idField)
})
