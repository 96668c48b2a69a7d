import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {dealStream} from '../../src/contract/deal.ts'
import {descriptionShape, parseDescription} from '../../src/contract/description.ts'
import {parseJson} from '../../src/core/json.ts'
import {createRecordReader, createTranslator} from '../../src/source/described.ts'
import {createNormaliser} from '../../src/source/record.ts'
import {aRecord, DEEP} from '../support/record.ts'

const BASE = new URL('https://api.example.com/v1/')

const describe = (changes: object) =>
  parseDescription(
    JSON.stringify({paging: {by: 'link'}, deals: {list: '/deals', records: 'data'}, ...changes}),
    'source.json',
  )

function nextOf(
  paging: object,
  body: object,
  {headers = {}, cursor}: {headers?: Record<string, string>; cursor?: string} = {},
) {
  const given = {limit: 2, ...(cursor !== undefined && {cursor})}
  const request = createTranslator(describe({paging}), BASE)('/deals', given)
  return JSON.parse(request?.translate({data: [{}], ...body}, headers) ?? '').next_cursor
}

const link = (text: string) => ({headers: {link: text}})

const LINK = {by: 'link'}
const URL_AT = {by: 'url', next: 'at.next'}
const CURSOR = {by: 'cursor', parameter: 'c', next: 'c'}
const HEADER = {by: 'cursor', parameter: 'c', header: 'X-Next'}
const PAGE = {by: 'page', parameter: 'p', first: 1}
const PAGES = {...PAGE, pages: 'of'}
const OFFSET = {by: 'offset', parameter: 'o'}
const TOTAL = {...OFFSET, total: 'n'}
const SAID = {more: 'more'}
const OTHERS = '<a>; rel=prev, <https://api.example.com/v1/d?x=1,2>; title="rel=next; a"; rel="last next"'
const NO_NEXT = '<a>; rel="nextish"; title="next"'
const at40 = {cursor: '40'}

test.each([
  ['a link', LINK, {}, link('</v1/deals?after=7>; rel="next"'), '/deals?after=7'],
  ['a link among others', LINK, {}, link(OTHERS), '/d?x=1,2'],
  ['no link', LINK, {}, {}, null],
  ['a link that is not the next', LINK, {}, link(NO_NEXT), null],
  ['a URL in the body', URL_AT, {at: {next: 'https://api.example.com/v1/deals?p=2'}}, {}, '/deals?p=2'],
  ['a URL that is null', URL_AT, {at: {next: null}}, {}, null],
  ['a cursor', {...CURSOR, next: 'meta.c'}, {meta: {c: 17}}, {}, '17'],
  ['a cursor in a header', HEADER, {}, {headers: {'x-next': 'abc'}}, 'abc'],
  ['a cursor after the last page', {...CURSOR, ...SAID}, {c: 'x', more: false}, {}, null],
  ['the first page number', {...PAGE, first: 0}, {}, {}, '1'],
  ['a later page number', PAGE, {}, {cursor: '9'}, '10'],
  ['a page of so many', PAGES, {of: 2}, {}, '2'],
  ['the last page of so many', PAGES, {of: 2}, {cursor: '2'}, null],
  ['an offset', OFFSET, {}, at40, '41'],
  ['an offset below the total', TOTAL, {n: 42}, at40, '41'],
  ['an offset below a total that is text', TOTAL, {n: '42'}, at40, '41'],
  ['an offset at the total', TOTAL, {n: 41}, at40, null],
  ['an empty page after a list that shrank', TOTAL, {n: 39, data: null}, at40, null],
  ['an empty list of one page', PAGES, {of: 1, data: []}, {}, null],
  ['an empty page that more follow', {...PAGE, ...SAID}, {more: true, data: []}, at40, '41'],
  ['an empty page', OFFSET, {data: []}, at40, null],
  ['a list of one page', {by: 'nothing'}, {next_cursor: 'x'}, {}, null],
])('the next page by %s', (_by, paging, body, given, next) => {
  expect(nextOf(paging, body, given)).toBe(next)
})

test.each([
  ['a link to another origin', LINK, {}, link('<https://a.example/v1/d>; rel=next'), /below 'https:/],
  ['a link out of the base URL', LINK, {}, link('</v2/deals>; rel=next'), /below/],
  ['more announced, no cursor', {...CURSOR, ...SAID}, {more: true}, {}, /without a cursor/],
  ['a cursor that is a list', CURSOR, {c: []}, {}, /expected a text or/],
  ['nothing said whether more follow', {...PAGE, ...SAID}, {}, {}, /expected a boolean at 'more'/],
  ['a number that is not exact', CURSOR, {c: 2 ** 60}, {}, /exact at 'c'/],
  ['more after the last page', {...PAGES, ...SAID}, {of: 1, more: true}, {}, /'of' and 'more' to agree/],
  ['a total of nothing', TOTAL, {n: 0}, {}, /expected 'n' to agree with the 1 records at o=0/],
  ['a total that is no number', TOTAL, {n: 'many'}, at40, /expected a whole number at 'n'/],
  ['a total that only looks like an object', TOTAL, {n: {toString: 1}}, at40, /whole number.* at 'n'/],
  ['a total below what was read', TOTAL, {n: 40}, at40, /agree/],
  ['an empty page amid the total', TOTAL, {n: 42, data: null}, at40, /agree with the 0 records at o=40/],
  ['a count of no pages', PAGES, {of: 0}, {}, /agree/],
  ['a page beyond the last', PAGES, {of: 39}, at40, /agree/],
  ['page 0 of a source that counts from 1', {...PAGES, first: 0}, {of: 3, data: []}, {}, /agree.* p=0/],
  ['the last page from 1 of a source that counts from 0', PAGES, {of: 40, data: []}, at40, /agree.* p=40/],
  ['more announced, nothing on the first page', {...PAGE, ...SAID}, {more: true, data: []}, {}, /agree/],
  ['no records', {by: 'nothing'}, {data: undefined}, {}, /expected a list at 'data'/],
])('%s is refused', (_what, paging, body, given, problem) => {
  expect(() => nextOf(paging, body, given)).toThrow(problem)
})

test('a next URL is read from the address of its page, and carries no key', () => {
  const source = describe({auth: {by: 'query', name: 'key'}, paging: {by: 'url', next: 'next'}})
  const request = createTranslator(source, new URL('https://api.example.com/v1?sig=s1'))('/deals', {
    cursor: '/deals?p=2',
    limit: 9,
  })
  expect(request).toMatchObject({path: '/deals?p=2', query: {}})
  const read = request?.translate({data: [], next: '?p=3&key=secret&sig=s1#top'}, {})
  expect(JSON.parse(read ?? '').next_cursor).toBe('/deals?p=3')
})

test('a name repeated outside the records is refused; a record that repeats one, nests too deeply, or has an infinite number, nobody can read', () => {
  const request = createTranslator(describe({paging: {by: 'nothing'}}), BASE)('/deals', {})
  expect(() => request?.translate(parseJson('{"data": [], "data": [{}]}'), {})).toThrow(/each name once/)
  const records = `[${DEEP}, {"id": "a", "id": "b"}, {"id": "c", "loan_amount": 1e999}]`
  const text = request?.translate(parseJson(`{"data": ${records}}`), {}) ?? ''
  expect(createNormaliser(dealStream)(JSON.parse(text).data, 0n)).toMatchObject({
    observations: [],
    quarantined: [
      {id: null, reason: 'expected a record that nests less deeply'},
      {id: null, reason: 'expected each name once in an object'},
      {id: 'c'},
    ],
  })
})

test('a page with nothing where the next would be told is no end, unless that is how lists end there', () => {
  const full = {data: [{}, {}]}
  const translated = (paging: object, given: object, body: object) =>
    createTranslator(describe({pageSize: 'n', paging}), BASE)('/deals', {limit: 2, ...given})?.translate(
      body,
      {},
    )
  const url = {by: 'url', next: 'paging.nxt'}
  const second = {cursor: '/deals?p=2'}
  const isEnd = expect.stringContaining('"has_more":false')
  expect(() => translated(url, {}, {data: [{}]})).toThrow(/nothing where source.json says.*"absentEnds"/)
  expect(() => translated(url, second, full)).toThrow(/nothing where/)
  expect(translated(url, {}, {data: []})).toEqual(isEnd)
  expect(translated(url, {}, {...full, paging: {nxt: null}})).toEqual(isEnd)
  for (const paging of [{...url, absentEnds: true}, {by: 'link'}]) {
    expect(() => translated(paging, {}, full)).toThrow(/nothing where.*LOANTAPE_PAGE_SIZE/)
    expect(translated(paging, second, full)).toEqual(isEnd)
  }
  expect(() => translated({by: 'nothing'}, {}, full)).toThrow(/nothing where.*LOANTAPE_PAGE_SIZE/)
  // The page is longer than was asked for, so it is the whole list.
  expect(translated({by: 'nothing'}, {}, {data: [{}, {}, {}]})).toEqual(isEnd)
})

test('a list of a deal may have a paging of its own', () => {
  const borrowers = {list: '/deals/{id}/borrowers', paging: {by: 'nothing'}}
  const request = createTranslator(
    describe({paging: {by: 'page', parameter: 'p', first: 1}, borrowers}),
    BASE,
  )('/deals/7/borrowers', {})
  expect(request).toMatchObject({path: '/deals/7/borrowers', query: {}})
  expect(request?.translate([{id: 1, deal_id: 7}], {})).toBe(
    '{"data":[{"id":"1","deal_id":"7"}],"has_more":false,"next_cursor":null}',
  )
})

const NEW_YORK = 'America/New_York'
const FIELDS = {
  id: 'no',
  property_address: 'place.line',
  loan_amount: {path: 'money.minor', unit: 'cents'},
  status: {path: 'stage', values: {LIVE: 'funded'}},
  created_at: {path: 'opened', timeZone: NEW_YORK},
}
const CODED = {status: {path: 'stage', values: {3: 'funded', true: 'draft'}}}
const ODD = {no: 'x', status: 'ours?', stage: 'toString'}
const PARTS = ['at.street', 'at.unit', 'at.town', 'at.zip']
const EPOCH = {...FIELDS, created_at: {path: 'opened', epoch: 'seconds'}}

test.each([
  [
    'a whole record',
    FIELDS,
    {no: 7, place: {line: 'A', zip: 'B'}, money: {minor: '12345'}, stage: 'LIVE', opened: '2026-01-05 10:00'},
    {
      id: '7',
      property_address: 'A',
      place: {zip: 'B'},
      loan_amount: '123.45',
      status: 'funded',
      created_at: '2026-01-05T15:00:00Z',
    },
  ],
  ['a status of nobody, and a name that means something else', FIELDS, ODD, {id: 'x', status: 'toString'}],
  ['a name that means something else, and nothing in its place', FIELDS, {status: 'ours?'}, {}],
  [
    'nulls',
    FIELDS,
    {no: null, place: null, money: {minor: null}},
    {id: null, property_address: null, loan_amount: null},
  ],
  [
    'a number where text is expected',
    {loan_program: 'code'},
    {code: 30, more: 1},
    {loan_program: '30', more: 1},
  ],
  ['a status that is a number', CODED, {stage: 3}, {status: 'funded'}],
  ['a status that is a boolean', CODED, {stage: true}, {status: 'draft'}],
  ['cents that are none', FIELDS, {money: {minor: 12.5}}, {loan_amount: {whole_cents: 12.5}}],
  ['cents beyond a double', FIELDS, {money: {minor: 2 ** 60}}, {loan_amount: {whole_cents: 2 ** 60}}],
  ['summer time', FIELDS, {opened: '2026-07-05T10:00:00.5'}, {created_at: '2026-07-05T14:00:00.5Z'}],
  [
    'an offset of its own',
    FIELDS,
    {opened: '2026-07-05T10:00+02:00'},
    {created_at: '2026-07-05T10:00+02:00'},
  ],
  ['a date', FIELDS, {opened: '2026-07-05'}, {created_at: '2026-07-05'}],
  ['seconds', EPOCH, {opened: 1767625200}, {created_at: '2026-01-05T15:00:00.000Z'}],
  ['seconds as text', EPOCH, {opened: '1767625200'}, {created_at: '2026-01-05T15:00:00.000Z'}],
  ['seconds that are none', EPOCH, {opened: 'soon'}, {created_at: {since_1970: 'soon'}}],
  [
    'dollars with separators of thousands',
    {loan_amount: 'sum', property_value: 'worth'},
    {sum: '1,350,000.10', worth: '1,35'},
    {loan_amount: '1350000.10', property_value: '1,35'},
  ],
  [
    'a text in parts, without those that say nothing',
    {property_address: PARTS},
    {at: {street: '12 Ocean Ct', unit: ' ', town: null, zip: 78701}},
    {property_address: '12 Ocean Ct, 78701'},
  ],
  ['a text whose parts say nothing', {property_address: PARTS}, {at: null}, {property_address: null}],
  ['a text without its parts', {property_address: PARTS}, {loan_amount: 1}, {loan_amount: 1}],
  [
    'a text with a part that is none',
    {property_address: {path: PARTS}},
    {at: {street: '12 Ocean Ct', town: ['Mystic']}},
    {property_address: {parts: ['12 Ocean Ct', ['Mystic']]}},
  ],
  ['no record', FIELDS, 'text', 'text'],
])('%s is read', (_what, fields, record, read) => {
  const source = describe({deals: {list: '/deals', fields}})
  expect(createRecordReader(dealStream, source)(record)).toEqual(read)
})

test.each([
  ['in the gap of spring, as much later', NEW_YORK, '2026-03-08 02:30:00', '2026-03-08T07:30:00Z'],
  ['in the hour that comes twice, the first', NEW_YORK, '2026-11-01 01:30:00', '2026-11-01T05:30:00Z'],
  ['the same east of Greenwich', 'Europe/Berlin', '2026-10-25 02:30:00', '2026-10-25T00:30:00Z'],
  ['padded, and in lower case', NEW_YORK, ' 2026-01-05t10:00:00 ', '2026-01-05T15:00:00Z'],
  ['when the epoch began', NEW_YORK, '1970-01-01 00:00:00', '1970-01-01T05:00:00Z'],
  ['of the last day there is', NEW_YORK, '9999-12-31 10:00:00', '9999-12-31T15:00:00Z'],
  ['of the first', NEW_YORK, '0001-01-01 00:00:00', '0001-01-01T04:56:02Z'],
  ['of a year of three digits', NEW_YORK, '0999-12-31 19:03:58', '1000-01-01T00:00:00Z'],
  ['that is none', NEW_YORK, 'yesterday', {time: 'yesterday'}],
])('a local time %s', (_what, timeZone, text, instant) => {
  const source = describe({deals: {list: '/deals', fields: {created_at: {path: 'at', timeZone}}}})
  expect(createRecordReader(dealStream, source)({at: text})).toEqual({created_at: instant})
})

const TIME = 'expected an ISO 8601'

test.each([
  ['a local time after the last year', 'created_at', {timeZone: NEW_YORK}, '9999-12-31 23:59:59.9', TIME],
  ['a local time before the first', 'created_at', {timeZone: 'Europe/Berlin'}, '0001-01-01 00:00', TIME],
  ['a time that is no number', 'created_at', {epoch: 'seconds'}, 'soon', 'since 1970'],
  ['dollars in place of cents', 'loan_amount', {unit: 'cents'}, '12.50', 'expected whole cents'],
])('%s puts its record into quarantine', (_what, path, how, sent, reason) => {
  const source = describe({deals: {list: '/deals', fields: {[path]: {path: 'sent', ...how}}}})
  const read = createRecordReader(dealStream, source)(aRecord({id: 'a', sent}))
  expect(createNormaliser(dealStream)([read], 0n)).toMatchObject({
    quarantined: [{id: 'a', path, reason: expect.stringContaining(reason)}],
  })
})

const OPENLY = {auth: {by: 'oauth2', tokenUrl: 'http://a.example/t', clientId: 'x'}}
const NOWHERE = {auth: {...OPENLY.auth, tokenUrl: 'a.example/t'}}
const withDeals = (deals: object) => ({deals: {list: '/deals', ...deals}})

test.each([
  ['a unit of a status', withDeals({fields: {status: {path: 's', unit: 'cents'}}}), 'deals.fields.status'],
  [
    'two ways to read a time',
    withDeals({fields: {created_at: {path: 't', epoch: 'seconds', timeZone: 'UTC'}}}),
    'created_at',
  ],
  ['a field within another', withDeals({fields: {id: 'loan', status: 'loan.state'}}), "'loan'"],
  ['the path of an id for another field', withDeals({fields: {property_address: 'id'}}), "'id'"],
  ['one path for two fields', withDeals({fields: {loan_amount: 'a.b', property_value: 'a.b'}}), "'a.b'"],
  ['a field of nobody', withDeals({fields: {rate: 'x'}}), 'deals.fields'],
  ['a page without an id', withDeals({page: '/b'}), 'deals.page: expected {id}'],
  ['a hint that leads nowhere', withDeals({changedSince: 'since'}), 'changedSince: expected `page`'],
  ['nothing of paging', {paging: undefined}, 'paging: '],
  ['a token asked for nowhere', NOWHERE, 'auth.tokenUrl: expected a URL. '],
  ['a token asked for openly', OPENLY, 'auth.tokenUrl: expected https'],
])('%s is refused, with its place', (_what, changes, place) => {
  const message = expect.stringContaining(place)
  expect(() => describe(changes)).toThrow(
    expect.objectContaining({code: 'SOURCE_FILE', exitCode: 2, message}),
  )
})

test('a status is asked for by the one word that the source has for it', () => {
  const queryOf = (values: object) => {
    const fields = {status: {path: 'stage', values}}
    const source = describe({deals: {list: '/deals', filter: 'f', fields}})
    return createTranslator(source, BASE)('/deals', {status: 'funded'})?.query
  }
  expect(queryOf({LIVE: 'funded', NEW: 'draft'})).toEqual({f: 'LIVE'})
  expect(queryOf({NEW: 'draft'})).toEqual({f: 'funded'})
  expect(() => queryOf({LIVE: 'funded', LATE: 'funded'})).toThrow(/several values/)
})

test('what a source does not offer is not asked for', () => {
  const translator = createTranslator(describe({}), BASE)
  expect(() => translator('/deals/x', {})).toThrow(/describes nothing of the kind/)
  expect(() => translator('/deals/x/borrowers', {})).toThrow(/describes nothing of the kind/)
  expect(() => translator('/deals', {status: 'funded'})).toThrow(/filter/)
  expect(translator('/rates', {})).toBeUndefined()
})

test('the schema for editors is that of the program: npm run docs', () => {
  const written = readFileSync(join(import.meta.dirname, '../../docs/source.schema.json'), 'utf8')
  expect(JSON.parse(written)).toEqual(z.toJSONSchema(descriptionShape, {io: 'input'}))
})
