import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {descriptionShape, parseDescription} from '../../src/contract/description.ts'
import {STREAMS} from '../../src/contract/streams.ts'
import {parseJson} from '../../src/core/json.ts'
import {createRecordReader, createTranslator} from '../../src/source/described.ts'

const BASE = new URL('https://api.example.com/v1/')

const describe = (changes: object) =>
  parseDescription(
    JSON.stringify({paging: {by: 'link'}, deals: {list: '/deals', records: 'data'}, ...changes}),
    'source.json',
  )

/** The next cursor after a page. */
function nextOf(
  paging: object,
  body: object,
  {headers = {}, cursor}: {headers?: Record<string, string>; cursor?: string} = {},
) {
  const asked = createTranslator(describe({paging}), BASE).ask('/deals', cursor === undefined ? {} : {cursor})
  return asked?.read({data: [{}], ...body}, headers).next_cursor
}

const link = (text: string) => ({headers: {link: text}})

test.each([
  ['a link', {by: 'link'}, {}, link('</v1/deals?after=7>; rel="next"'), '/deals?after=7'],
  [
    'a link among others',
    {by: 'link'},
    {},
    link('<a>; rel=prev, <https://api.example.com/v1/d?x=1,2>; title="rel=next; a"; rel="last next"'),
    '/d?x=1,2',
  ],
  ['no link', {by: 'link'}, {}, {}, null],
  ['a link that is not the next', {by: 'link'}, {}, link('<a>; rel="nextish"; title="next"'), null],
  [
    'a URL in the body',
    {by: 'url', next: 'paging.next'},
    {paging: {next: 'https://api.example.com/v1/deals?p=2'}},
    {},
    '/deals?p=2',
  ],
  ['a URL that is null', {by: 'url', next: 'paging.next'}, {paging: {next: null}}, {}, null],
  ['a cursor', {by: 'cursor', parameter: 'c', next: 'meta.c'}, {meta: {c: 17}}, {}, '17'],
  [
    'a cursor in a header',
    {by: 'cursor', parameter: 'c', header: 'X-Next'},
    {},
    {headers: {'x-next': 'abc'}},
    'abc',
  ],
  [
    'a cursor after the last page',
    {by: 'cursor', parameter: 'c', next: 'c', more: 'more'},
    {c: 'x', more: false},
    {},
    null,
  ],
  ['the first page number', {by: 'page', parameter: 'p', first: 0}, {}, {}, '1'],
  ['a later page number', {by: 'page', parameter: 'p'}, {}, {cursor: '9'}, '10'],
  ['an offset', {by: 'offset', parameter: 'o'}, {}, {cursor: '40'}, '41'],
  ['an empty page', {by: 'offset', parameter: 'o'}, {data: []}, {cursor: '40'}, null],
  ['a list of one page', {by: 'nothing'}, {next_cursor: 'x'}, {}, null],
])('the next page by %s', (_by, paging, body, given, next) => {
  expect(nextOf(paging, body, given)).toBe(next)
})

test.each([
  [
    'a link to another origin',
    {by: 'link'},
    {},
    link('<https://evil.example/v1/deals>; rel=next'),
    /below 'https:\/\/api\.example\.com\/v1'/,
  ],
  ['a link out of the base URL', {by: 'link'}, {}, link('</v2/deals>; rel=next'), /below/],
  [
    'more announced, no cursor',
    {by: 'cursor', parameter: 'c', next: 'c', more: 'more'},
    {more: true},
    {},
    /without a cursor/,
  ],
  [
    'a cursor that is a list',
    {by: 'cursor', parameter: 'c', next: 'c'},
    {c: []},
    {},
    /expected a text at 'c'/,
  ],
  [
    'nothing said whether more follow',
    {by: 'page', parameter: 'p', more: 'more'},
    {},
    {},
    /expected a boolean at 'more'/,
  ],
  ['no records', {by: 'nothing'}, {data: null}, {}, /expected records at 'data'/],
])('%s is refused', (_what, paging, body, given, problem) => {
  expect(() => nextOf(paging, body, given)).toThrow(problem)
})

test('a next URL is read from the address of its page, and carries no key', () => {
  const source = describe({auth: {by: 'query', name: 'key'}, paging: {by: 'url', next: 'next'}})
  const asked = createTranslator(source, BASE).ask('/deals', {cursor: '/deals?p=2'})
  expect(asked).toMatchObject({path: '/deals?p=2', query: {}})
  expect(asked?.read({data: [], next: '?p=3&key=secret#top'}, {}).next_cursor).toBe('/deals?p=3')
})

test('a name repeated outside the records is refused, and one within a record is left to it', () => {
  const asked = createTranslator(describe({paging: {by: 'nothing'}}), BASE).ask('/deals', {})
  expect(() => asked?.read(parseJson('{"data": [], "data": [{}]}'), {})).toThrow(/each name once/)
  expect(asked?.read(parseJson('{"data": [{"a": 1, "a": 2}]}'), {})).toMatchObject({data: [{a: 2}]})
})

const FIELDS = {
  id: 'no',
  property_address: 'place.line',
  loan_amount: {path: 'money.minor', unit: 'cents'},
  status: {path: 'stage', values: {LIVE: 'funded'}},
  created_at: {path: 'opened', timeZone: 'America/New_York'},
}
const EPOCH = {...FIELDS, created_at: {path: 'opened', epoch: 'seconds'}}

test.each([
  [
    'a whole record',
    FIELDS,
    {
      no: 7,
      place: {line: 'A', zip: 'B'},
      money: {minor: '12345'},
      stage: 'LIVE',
      opened: '2026-01-05 10:00:00.5',
      more: 1,
    },
    {
      id: '7',
      property_address: 'A',
      place: {zip: 'B'},
      loan_amount: '123.45',
      status: 'funded',
      created_at: '2026-01-05T15:00:00.5Z',
      more: 1,
    },
  ],
  [
    'a status of nobody, and a name that means something else here',
    FIELDS,
    {no: 'x', status: 'ours?', stage: 'toString'},
    {id: 'x', status: 'toString'},
  ],
  ['a name that means something else, and nothing in its place', FIELDS, {status: 'ours?'}, {}],
  [
    'nulls',
    FIELDS,
    {no: null, place: null, money: {minor: null}},
    {id: null, place: null, loan_amount: null},
  ],
  ['cents that are none', FIELDS, {money: {minor: 12.5}}, {loan_amount: {cents: 12.5}}],
  ['cents beyond a double', FIELDS, {money: {minor: 2 ** 60}}, {loan_amount: {cents: 2 ** 60}}],
  ['summer time', FIELDS, {opened: '2026-07-05T10:00'}, {created_at: '2026-07-05T14:00:00Z'}],
  [
    'an offset of its own',
    FIELDS,
    {opened: '2026-07-05T10:00:00+02:00'},
    {created_at: '2026-07-05T10:00:00+02:00'},
  ],
  ['a date', FIELDS, {opened: '2026-07-05'}, {created_at: '2026-07-05'}],
  ['seconds', EPOCH, {opened: 1767625200}, {created_at: '2026-01-05T15:00:00.000Z'}],
  ['seconds that are none', EPOCH, {opened: 'soon'}, {created_at: {epoch: 'soon'}}],
  ['no record', FIELDS, 'text', 'text'],
])('%s is read', (_what, fields, record, read) => {
  const source = describe({deals: {list: '/deals', fields}})
  const [deals] = STREAMS
  expect(deals && createRecordReader(deals, source)(record)).toEqual(read)
})

test('what a source does not offer is not asked for', () => {
  const translator = createTranslator(describe({}), BASE)
  expect(() => translator.ask('/deals/x', {})).toThrow(/not described/)
  expect(() => translator.ask('/deals/x/borrowers', {})).toThrow(/not described/)
  expect(() => translator.ask('/deals', {status: 'funded'})).toThrow(/filter/)
  expect(translator.ask('/rates', {})).toBeUndefined()
})

test('the schema for editors is that of the program: npm run docs', () => {
  const written = readFileSync(join(import.meta.dirname, '../../docs/source.schema.json'), 'utf8')
  expect(JSON.parse(written)).toEqual(z.toJSONSchema(descriptionShape, {io: 'input'}))
})
