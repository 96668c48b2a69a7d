import {createHmac} from 'node:crypto'
import {expect, test} from 'vitest'
import {borrowerStream} from '../../src/contract/borrower.ts'
import {documentStream} from '../../src/contract/document.ts'
import {parseJson} from '../../src/core/json.ts'
import {createNormaliser, createSealer} from '../../src/source/record.ts'

const KEY = 'a key of this test'
const seal = createSealer(borrowerStream, KEY)
const hashOf = (text: string) => createHmac('sha256', KEY).update(text).digest('hex')

test('an address becomes its keyed hash, whatever its case and surrounding spaces', () => {
  const expected = {email: `hmac-sha256:${hashOf('pat@example.com')}`}
  for (const email of ['pat@example.com', ' Pat@Example.COM\n']) expect(seal({email})).toEqual(expected)
  expect(createSealer(borrowerStream, 'another')({email: 'pat@example.com'})).not.toEqual(expected)
})

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
