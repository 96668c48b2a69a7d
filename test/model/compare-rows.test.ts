import {expect, test} from 'vitest'
import {type Comparison, compareRows, isSameRows, type TextRow} from '../../src/model/compare-rows.ts'

const none = {missing: [], unexpected: [], different: [], misplaced: null}

function compare(expected: TextRow[], found: TextRow[], how: Partial<Comparison> = {}) {
  const columns = Object.keys(expected[0] ?? found[0] ?? {})
  const diff = compareRows(expected, found, {
    columns,
    grain: ['id'],
    numbers: new Set(['amount']),
    isOrdered: false,
    ...how,
  })
  expect(isSameRows(diff)).toBe(JSON.stringify(diff) === JSON.stringify(none))
  return diff
}

test('rows in another order are the same rows', () => {
  const rows = [
    {id: 'a', amount: '1.00'},
    {id: 'b', amount: '2.00'},
  ]
  expect(compare(rows, rows.toReversed())).toEqual(none)
})

test('where the order counts, the first row that stands elsewhere is named', () => {
  const rows = [{id: 'a'}, {id: 'b'}, {id: 'c'}]
  const found = [{id: 'a'}, {id: 'c'}, {id: 'b'}]
  expect(compare(rows, found, {isOrdered: true})).toEqual({
    ...none,
    misplaced: {place: 2, expected: {id: 'b'}, found: {id: 'c'}},
  })
})

test('a row of the same grain is named with the columns that differ', () => {
  const expected = [{id: 'a', amount: '100.00', status: 'funded'}]
  const found = [{id: 'a', amount: '90.00', status: 'funded'}]
  expect(compare(expected, found).different).toEqual([
    {row: {id: 'a'}, columns: {amount: {expected: '100.00', found: '90.00'}}},
  ])
})

test('rows of another grain are missing and unexpected', () => {
  expect(compare([{id: 'a'}, {id: 'b'}], [{id: 'b'}, {id: 'c'}, {id: 'd'}])).toEqual({
    ...none,
    missing: [{id: 'a'}],
    unexpected: [{id: 'c'}, {id: 'd'}],
  })
})

test('where the grain is not looked at, the rows that are left over are compared in turn', () => {
  const expected = [{amount: '1'}, {amount: '3'}]
  const found = [
    {id: 'a', amount: '2.00'},
    {id: 'b', amount: '1.00'},
  ]
  expect(compare(expected, found)).toEqual({
    ...none,
    different: [{row: {id: 'a'}, columns: {amount: {expected: '3', found: '2.00'}}}],
  })
  expect(compare(expected, [...found, {id: 'c', amount: '2.00'}])).toEqual({
    ...none,
    missing: [{amount: '3'}],
    unexpected: [
      {id: 'a', amount: '2.00'},
      {id: 'c', amount: '2.00'},
    ],
  })
})

test('a row that stands twice is looked for twice', () => {
  const row = {id: 'a', amount: '1'}
  expect(compare([row, row], [row])).toEqual({...none, missing: [row]})
  expect(compare([row], [row, row])).toEqual({...none, unexpected: [row]})
})

test('keys that end and begin alike are told apart', () => {
  const how = {columns: ['id', 'day'], grain: ['id', 'day']}
  const diff = compare([{id: 'a","b', day: 'c'}], [{id: 'a', day: 'b","c'}], how)
  expect(diff).toMatchObject({missing: [{id: 'a","b'}], unexpected: [{id: 'a'}]})
})

test.each([
  ['100', '100.00', true],
  ['0100.10', '100.1', true],
  ['-0', '0.00', true],
  ['+5', '5', true],
  ['100.01', '100.00', false],
  ['1e2', '100', false],
  ['nan', 'nan', true],
  ['NaN', 'nan', false],
  ['', null, false],
  [null, null, true],
  [null, '0', false],
  ['99999999999999999999.01', '99999999999999999999.02', false],
])('a number of %j is one of %j: %j', (expected, found, isSame) => {
  expect(isSameRows(compare([{id: 'a', amount: expected}], [{id: 'a', amount: found}]))).toBe(isSame)
})

test('text is compared as it is', () => {
  expect(compare([{id: 'a', zip: '06902'}], [{id: 'a', zip: '6902'}]).different).toHaveLength(1)
  expect(compare([{id: 'a', zip: 'null '}], [{id: 'a', zip: null}]).different).toHaveLength(1)
})
