import fc from 'fast-check'
import {expect, test} from 'vitest'
import {formatCents, groupThousands, parseCents, quantity} from '../../src/core/money.ts'

const LARGEST_NUMBER_CENTS = 70_000_000_000_000_00n
const LARGEST_DECIMAL_CENTS = 10n ** 18n - 1n

test('cents up to 7e13 survive a JSON number', () => {
  const everyday = fc.bigInt({min: 0n, max: 10_000_000_00n})
  fc.assert(
    fc.property(fc.oneof(fc.bigInt({min: 0n, max: LARGEST_NUMBER_CENTS}), everyday), (cents) => {
      expect(parseCents(JSON.parse(formatCents(cents)))).toBe(cents)
    }),
    {numRuns: 2000},
  )
})

test.each([
  [0, 0n],
  [-0, 0n],
  [350_000, 35_000_000n],
  [1.1, 110n],
  [7e13, LARGEST_NUMBER_CENTS],
  ['350000.1', 35_000_010n],
  ['350000.100', 35_000_010n],
  ['007', 700n],
  [' 12.5 ', 1250n],
  ['9999999999999999.99', LARGEST_DECIMAL_CENTS],
])('%o is %i cents', (value, cents) => {
  expect(parseCents(value)).toBe(cents)
})

test.each([
  [Number.NaN, 'finite'],
  [Number.POSITIVE_INFINITY, 'finite'],
  [-1, 'not negative'],
  [1.234, '2 decimals'],
  [0.1 + 0.2, '2 decimals'],
  [7e13 + 1, 'decimal string'],
  ['', 'decimal number'],
  ['-5', 'not negative'],
  ['-0', 'not negative'],
  ['1.234', 'decimal number'],
  ['1e3', 'decimal number'],
  ['1,000', 'decimal number'],
  ['+5', 'decimal number'],
  ['.5', 'decimal number'],
  ['5.', 'decimal number'],
  ['10000000000000000', '16 digits'],
  [null, 'a number or a decimal string'],
  [true, 'a number or a decimal string'],
  [[350_000], 'a number or a decimal string'],
])('%o is refused: expected %s', (value, words) => {
  expect(parseCents(value)).toMatch(new RegExp(`^expected .*${words}`))
})

test('cents, figures and counts are written for people', () => {
  expect([0n, 5n, 123_456n, -5n].map(formatCents)).toEqual(['0.00', '0.05', '1234.56', '-0.05'])
  const figures = ['999.99', '1234.56', '-123.45', '-1234567.89', '1234567', '0.123456']
  const grouped = ['999.99', '1,234.56', '-123.45', '-1,234,567.89', '1,234,567', '0.123456']
  expect(figures.map(groupThousands)).toEqual(grouped)
  const counts = [quantity(1, 'entry'), quantity(2, 'entry'), quantity(0, 'batch'), quantity(1234, 'day')]
  expect(counts).toEqual(['1 entry', '2 entries', '0 batches', '1,234 days'])
})
