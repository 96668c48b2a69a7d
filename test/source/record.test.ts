import {createHmac} from 'node:crypto'
import {expect, test} from 'vitest'
import {borrowerStream} from '../../src/contract/borrower.ts'
import {dealStream} from '../../src/contract/deal.ts'
import {documentStream} from '../../src/contract/document.ts'
import {parseMappedFields} from '../../src/contract/mapped-field.ts'
import {parseInstant} from '../../src/core/clock.ts'
import {parseJson} from '../../src/core/json.ts'
import type {WireRecord} from '../../src/core/types.ts'
import {createMappedReader, createNormaliser, createSealer} from '../../src/source/record.ts'
import {aRecord, DEEP, observe, reject} from '../support/record.ts'

test('only the names of unknown fields are kept, one level deep, whatever they are', () => {
  const {unknownFields} = observe(aRecord({borrower: {name: 'A', ssn: {last: 1}}, tags: ['x'], none: {}}))
  expect(unknownFields).toBe('borrower.name\nborrower.ssn\ntags\nnone')
  const record: unknown = JSON.parse(`{"__proto__": {"a": 1}, ${JSON.stringify(aRecord()).slice(1)}`)
  expect(observe(record).unknownFields).toBe('__proto__.a')
})

test('a text of 8,192 characters with line breaks and other controls is accepted', () => {
  const address = '1 Main St\n\u0001\uffff'.padEnd(8192, '🏚')
  expect(observe(aRecord({property_address: address})).fields.property_address).toBe(address)
})

test('texts of child records have the same bounds as those of deals', () => {
  const normalise = createNormaliser(documentStream)
  const records = [{id: 'a\0'}, {id: 'a', category: 'x'.repeat(8193)}]
  expect(normalise(records, 0n, 'deal_1').quarantined).toMatchObject([
    {id: null, path: 'id', reason: 'expected text without NUL'},
    {id: 'deal_1/a', path: 'category', reason: 'expected at most 8192 characters of text'},
  ])
})

test('a date without a time is kept and marked as a date; a time without an offset is UTC', () => {
  const observation = observe(aRecord({created_at: '2026-01-05'}))
  expect(observation.fields.created_at).toBe(parseInstant('2026-01-05T00:00:00Z'))
  expect(observation.fields.created_at_precision).toBe('date')
  const local = observe(aRecord({created_at: '2026-01-05T15:00:00.5'}))
  expect(local.fields.created_at).toBe(parseInstant('2026-01-05T15:00:00.5Z'))
})

test.each<[string, WireRecord]>([
  ['id', {id: ''}],
  ['id', {id: 17}],
  ['id', {id: undefined}],
  ['id', {id: 'deal_\ud83d'}],
  ['id', {id: 'deal_\0'}],
  ['id', {id: 'd'.repeat(8193)}],
  ['property_address', {property_address: 'x'.repeat(8193)}],
  ['loan_program', {loan_program: '\0'}],
  ['loan_amount', {loan_amount: 1.234}],
  ['loan_amount', {loan_amount: -4711}],
  ['loan_amount', {loan_amount: '~4711~'}],
  ['property_address', {property_address: ['~4711~']}],
  ['loan_amount', {loan_amount: null}],
  ['loan_amount', {loan_amount: undefined}],
  ['loan_amount', {loan_amount: {value: 4711}}],
  ['property_value', {property_value: '~4711~'}],
  ['status', {status: ['~4711~']}],
  ['loan_program', {loan_program: ['~4711~']}],
  ['created_at', {created_at: '~4711~'}],
  ['status', {status: ''}],
  ['status', {status: null}],
  ['created_at', {created_at: '2026-02-30'}],
  ['created_at', {created_at: 1_770_000_000}],
  ['created_at', {created_at: '0000-12-31'}],
  ['created_at', {created_at: '0001-01-01T00:00:00+01:00'}],
  ['created_at', {created_at: '9999-12-31T23:59:59-05:00'}],
])(
  'a bad %s is quarantined with its path, and with its id if that can be read, but no value: %o',
  (path, fields) => {
    const rejected = reject(aRecord(fields), 42n)
    expect(rejected).toMatchObject({id: path === 'id' ? null : 'deal_000001', path, observedAt: 42n})
    expect(rejected.reason).toMatch(/^(?!.*4711).*expected/)
  },
)

test('records that are no objects are quarantined, and good ones beside them kept in order', () => {
  const bad = [null, 'deal', 42, true, ['deal_000001']]
  const page = createNormaliser(dealStream)([aRecord({id: 'a'}), ...bad, aRecord({id: 'c'})], 0n)
  expect(page.observations.map(({id}) => id)).toEqual(['a', 'c'])
  const reason = expect.stringMatching(/^expected object, received \w+$/)
  expect(page.quarantined).toEqual(
    bad.map((_, index) => ({id: null, path: '(record)', reason, position: index + 1, observedAt: 0n})),
  )
})

test('a record nested too deeply to be written as JSON is handled like any other', () => {
  const deep: unknown = JSON.parse(DEEP)
  expect(reject(aRecord({loan_amount: deep}))).toMatchObject({id: 'deal_000001', path: 'loan_amount'})
  expect(observe(aRecord({notes: deep})).unknownFields).toBe('notes.id')
})

test('of two deals with a slash in an id, each keeps its own borrowers and documents', () => {
  for (const child of [borrowerStream, documentStream]) {
    const ids = [
      ['K', 'L/M'],
      ['K/L', 'M'],
    ].map(([deal_id, id]) => child.schema.parse({deal_id, id})[child.idColumn])
    expect(new Set(ids).size).toBe(2)
  }
})

const KEY = 'a key of this test'
const seal = createSealer(borrowerStream, KEY)
const hashOf = (text: string) => createHmac('sha256', KEY).update(text).digest('hex')

test('names and digits are removed, unknown fields keep their names, and sealing again changes nothing', () => {
  const sealed = seal({
    id: 'bor_1',
    first_name: 'Pat',
    ssn_last_four: '1234',
    email: 'pat@example.com',
    phone: '555 0100',
    created_at: {by: 'Pat'},
  })
  expect(sealed).toEqual({
    id: 'bor_1',
    email: `hmac-sha256:${hashOf('pat@example.com')}`,
    phone: null,
    created_at: {},
  })
  expect(seal(sealed)).toEqual(sealed)
})

test('what is no address identifies nobody, and a non-record, or one that repeats a field, is quarantined without its content', () => {
  for (const email of [null, '', '  ', 7, {address: 'pat@example.com'}, ['pat@example.com']])
    expect(seal({email})).toEqual({email: null})
  const twice = parseJson('{"id": "bor_1", "email": "pat@example.com", "email": "sam@example.com"}')
  const records = ['pat@example.com', ['pat'], twice].map(seal)
  expect(records).toEqual([null, null, null])
  expect(createNormaliser(borrowerStream)(records, 0n, 'deal_1').quarantined).toHaveLength(3)
})

test('borrowers are not sealed without a key, nor read unsealed; documents, which have no hashes, are', () => {
  const open = createNormaliser(borrowerStream)([{id: 'bor_1', email: 'pat@example.com'}], 0n, 'deal_1')
  expect(open.quarantined).toMatchObject([{path: 'email'}])
  expect(() => createSealer(borrowerStream, undefined)).toThrow(/no key/)
  const sealed = createSealer(documentStream, undefined)({id: 'doc_1', name: 'Pat'})
  const {observations} = createNormaliser(documentStream)([sealed], 0n, 'deal_1')
  expect(observations).toMatchObject([{id: 'deal_1/doc_1', unknownFields: null}])
})

/** Reads one field of this type with this value: its text, null, `unreadable`, or undefined if absent. */
function readMapped(type: string, value: unknown): string | null | undefined {
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
  expect(readMapped(type, value)).toBe(expected)
})

test('a long text that is nearly a number is refused at once', () => {
  const zeros = '0'.repeat(1_000_000)
  for (const text of [`${zeros}x`, `.${zeros}x`, `.${'10'.repeat(500_000)}x`])
    expect(readMapped('decimal(18,2)', text)).toBe('unreadable')
  expect(readMapped('decimal(18,2)', `${zeros}1.${zeros}`)).toBe('1.00')
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
