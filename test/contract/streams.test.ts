import {expect, test} from 'vitest'
import {dealStream} from '../../src/contract/deal.ts'
import {descriptionShape} from '../../src/contract/description.ts'
import {childIdOf, optionalColumnsOf, type Stream} from '../../src/contract/stream.ts'
import {parseChildStreams, STREAMS} from '../../src/contract/streams.ts'
import {aRecord} from '../support/record.ts'

const children = STREAMS.filter(({parent}) => parent)

const least = ({parent}: Stream) => ({id: 'x', [parent?.column ?? '']: 'deal_1'})

const fieldsOf = (stream: Stream) => [stream.idColumn, ...stream.columns.map(({name}) => name)].sort()

test.each(children.map((stream) => [stream.plural, stream] as const))(
  'a record of %s needs only its id, and gives a value to every column',
  (_plural, stream) => {
    const parsed = stream.schema.parse(least(stream))
    expect(Object.keys(parsed).sort()).toEqual(fieldsOf(stream))
    expect(parsed[stream.idColumn]).toBe(childIdOf('deal_1', 'x'))
    expect(stream.listPath).toContain('{id}')
    const sealed = [...(stream.privacy?.hashed ?? []), ...(stream.privacy?.dropped ?? [])]
    for (const field of sealed) expect(stream.wireFields).toContain(field)
  },
)

test('of two deals with a slash in an id, each keeps its own borrowers and documents', () => {
  for (const {schema, idColumn} of children) {
    const ids = ['K L/M', 'K/L M']
      .map((pair) => pair.split(' '))
      .map(([deal_id, id]) => schema.parse({deal_id, id})[idColumn])
    expect(new Set(ids).size).toBe(2)
  }
})

test('a deal gives a value to every column and nothing else, and may lack the fields that list rows lack', () => {
  const parsed = dealStream.schema.parse(aRecord({property_value: 1, loan_program: 'bridge', extra: 1}))
  expect(Object.keys(parsed).sort()).toEqual(fieldsOf(dealStream))
  const missing = dealStream.wireFields.filter((field) => !(field in aRecord()))
  expect(optionalColumnsOf(dealStream).map(({name}) => name)).toEqual(missing)
})

test('source.json may say where the records of each stream are', () => {
  expect(Object.keys(descriptionShape.shape)).toEqual(
    expect.arrayContaining(STREAMS.map(({plural}) => plural)),
  )
})

test('the setting names the deals and any of the others, in any order', () => {
  const names = (text: string) => parseChildStreams(text).map(({plural}) => plural)
  expect(names('deals')).toEqual([])
  expect(names(' documents, deals,borrowers ')).toEqual(['borrowers', 'documents'])
  for (const text of ['', 'borrowers', 'deals,tenants'])
    expect(() => names(text)).toThrow(expect.objectContaining({exitCode: 2}))
})
