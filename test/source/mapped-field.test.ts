import {expect, test} from 'vitest'
import {parseMappedFields} from '../../src/contract/mapped-field.ts'
import {createMappedReader} from '../../src/source/record.ts'

/** Reads one field of this type with this value: its text, null, `unreadable`, or undefined if absent. */
function read(type: string, value: unknown): string | null | undefined {
  const fields = parseMappedFields(JSON.stringify({it: {type, path: 'terms.it'}}), 'fields.json', [])
  const text = createMappedReader(fields)({terms: {it: value}})
  if (text === null) return undefined
  const [{value: said, is_readable}] = JSON.parse(text)
  return is_readable ? said : 'unreadable'
}

test.each([
  ['text', 'A-17', 'A-17'],
  ['text', 9007199254740991, '9007199254740991'],
  ['text', 1e300, 'unreadable'],
  ['text', 'a\0b', 'unreadable'],
  // The source cut the text in the middle of an emoji.
  ['text', 'sold \ud83d', 'sold \ufffd'],
  ['text', {a: 1}, 'unreadable'],
  ['integer', 1, '1'],
  ['integer', 0, '0'],
  ['integer', '-007', '-7'],
  ['integer', 2.5, 'unreadable'],
  ['integer', '', 'unreadable'],
  ['integer', '.', 'unreadable'],
  ['decimal(9,6)', 0.0675, '0.067500'],
  ['decimal(9,6)', 0.1 + 0.2, '0.300000'],
  ['decimal(9,6)', '0.050310000000000005', 'unreadable'],
  ['decimal(9,6)', '.5', '0.500000'],
  ['decimal(9,6)', -0.5, '-0.500000'],
  ['decimal(9,6)', 1e-7, 'unreadable'],
  ['decimal(9,6)', 1000, 'unreadable'],
  ['decimal(18,2)', 90071992547409.91, '90071992547409.91'],
  ['decimal(18,2)', 900719925474099.1, 'unreadable'],
  ['decimal(18,2)', '9007199254740991.23', '9007199254740991.23'],
  ['decimal(18,2)', '1,000.00', 'unreadable'],
  ['boolean', true, 'true'],
  ['boolean', 'true', 'unreadable'],
  ['date', '2027-03-01', '2027-03-01'],
  ['date', '2027-03-01T00:00:00Z', '2027-03-01'],
  ['date', '2027-03-01T00:00:00.000-05:00', '2027-03-01'],
  ['date', '2027-03-01T12:00:00Z', 'unreadable'],
  ['date', '2027-02-30', 'unreadable'],
  ['date', '0000-01-01', 'unreadable'],
  ['date', 20270301, 'unreadable'],
  ['timestamp', '2027-03-01T12:00:00.5-05:00', '2027-03-01T17:00:00.500000'],
  ['timestamp', 'soon', 'unreadable'],
  ['date', null, null],
  ['date', undefined, undefined],
])('as %s the value %j is %j', (type, value, expected) => {
  expect(read(type, value)).toBe(expected)
})

test('a long text that is nearly a number is refused at once', () => {
  const zeros = '0'.repeat(1_000_000)
  for (const text of [`${zeros}x`, `.${zeros}x`, `.${'10'.repeat(500_000)}x`])
    expect(read('decimal(18,2)', text)).toBe('unreadable')
  expect(read('decimal(18,2)', `${zeros}1.${zeros}`)).toBe('1.00')
})

test.each([
  ['{', 'expected JSON'],
  ['{"rate": {"type": "text"}, "rate": {"type": "date"}}', 'rate: expected each name once'],
  ['{"__proto__": {"type": "text"}}', '__proto__: expected another name'],
  ['{"Rate": {"type": "text"}}', 'Rate: Invalid key in record'],
  ['{"version": {"type": "text"}}', 'version: Invalid key in record'],
  ['{"observed_at": {"type": "text"}}', 'observed_at: Invalid key in record'],
  ['{"rate": {"type": "text", "path": ["a\\nb"]}}', 'rate.path'],
  ['{"rate": {"type": "money"}}', 'rate.type: expected text, integer'],
  ['{"rate": {"type": "text", "meaning": "two\\nlines"}}', 'rate.meaning: expected one line of text'],
  ['{"rate": {"type": "text", "meaning": "two\u2028lines"}}', 'rate.meaning: expected one line of text'],
  ['{"rate": {"type": "text", "meaning": " "}}', 'rate.meaning: expected one line of text'],
  ['{"rate": {"type": "text", "path": ["a\u2029b"]}}', 'rate.path'],
  ['{"rate": {"type": "text", "from": "x"}}', 'rate: Unrecognized key'],
  [`{"rate": {"type": "text", "path": "${'a.'.repeat(20)}a"}}`, 'rate.path: expected at most 20 names'],
  [
    JSON.stringify(
      Object.fromEntries(Array.from({length: 201}, (_, index) => [`f${index}`, {type: 'text'}])),
    ),
    'expected at most 200 fields',
  ],
  [
    '{"amount": {"type": "text", "path": "loan_amount"}}',
    "amount: 'loan_amount' is a column of core.deal already",
  ],
  [
    '{"stage": {"type": "text", "path": "state.code"}}',
    "stage: 'state.code' is a column of core.deal already",
  ],
])('the file %s is refused', (text, problem) => {
  expect(() => parseMappedFields(text, '/data/fields.json', ['loan_amount', 'state.code'])).toThrow(problem)
})
