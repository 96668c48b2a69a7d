import {readFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {parseRateFeeds, type RateFeed, rateFeedSchema} from '../../src/contract/rate-feed.ts'
import {parseFeedPage} from '../../src/normalise/feed-page.ts'

const SOFR = {name: 'sofr', file: 'x', format: 'csv', date: 'date', rate_name: 'SOFR', value: 'value'}

const aFeed = (fields: object = {}): RateFeed => {
  const [feed] = parseRateFeeds(JSON.stringify({feeds: [{...SOFR, ...fields}]}), 'rates.json')
  if (!feed) throw new Error('no feed')
  return feed
}

const read = (fields: object, text: string) => parseFeedPage(aFeed(fields), text, 'America/New_York')
const readOne = (fields: object, text: string) => read(fields, text).observations[0]

test('values are exact, however many digits a double could not hold', () => {
  const csv = 'date,value\n2026-03-02,1234567890.12345678\n2026-03-03,-0.1\n2026-03-04,5.3300000000\n'
  expect(read({}, csv).observations.map(({units}) => units)).toEqual([
    123_456_789_012_345_678n,
    -10_000_000n,
    533_000_000n,
  ])
  const json = '[{"date":"2026-03-02","value":1234567890.12345678},{"date":"2026-03-03","value":"4.31"}]'
  expect(read({format: 'json'}, json).observations.map(({units}) => units)).toEqual([
    123_456_789_012_345_678n,
    431_000_000n,
  ])
})

test.each([
  ['2026-03-02,abc', /^row 2: value: expected a decimal number/],
  ['2026-03-02,4.123456789', /^row 2: value/],
  ['2026-03-02,1e3', /^row 2: value/],
  ['2026-03-02,12345678901', /^row 2: value/],
  ['2026-02-30,4.31', /^row 2: date: expected a day/],
  ['0026-03-02,4.31', /^row 2: date/],
  ['2026-03-02', /CSV_RECORD_INCONSISTENT/],
])('the row %s is rejected alone, and its value is not repeated', (row, words) => {
  const page = read({}, `date,value\n2026-03-01,4.30\n${row}\n2026-03-03,4.32\n`)
  expect(page.observations.map(({rateDate}) => rateDate)).toEqual(['2026-03-01', '2026-03-03'])
  expect(page).toMatchObject({rows: 3, rejected: [expect.stringMatching(words)]})
  expect(page.rejected.join()).not.toMatch(/abc|4\.123|1e3/)
})

test('a text that means no value is neither a value nor a fault', () => {
  expect(read({}, 'date,value\n2026-03-01,.\n2026-03-02,\n')).toMatchObject({empty: 2, rejected: []})
  expect(read({format: 'json'}, '[{"date":"2026-03-02","value":null}]')).toMatchObject({empty: 1})
  expect(read({missing: ['ND']}, 'date,value\n2026-03-01,ND\n2026-03-01,.\n')).toMatchObject({
    empty: 1,
    rejected: [expect.any(String)],
  })
})

test.each([
  ['2026-03-02', 'iso', '2026-03-02'],
  ['2026-03-03T01:00:00Z', 'iso', '2026-03-02'],
  ['2026-03-02T23:59:00', 'iso', '2026-03-02'],
  ['3/2/2026', 'us', '2026-03-02'],
])('%s (%s) is of the day %s', (date, date_format, rateDate) => {
  expect(readOne({date_format}, `date,value\n${date},1\n`)).toMatchObject({rateDate})
})

test('the name of a rate is one column, or several joined', () => {
  const fields = {format: 'json', rows: 'a.b', rate_name: undefined, rate: ['who', 'what'], value: 'v.pct'}
  const row = {date: '2026-03-02', who: 'Acme', what: 'bridge', v: {pct: 7.125}}
  expect(readOne(fields, JSON.stringify({a: {b: [row]}}))).toMatchObject({rate: 'Acme/bridge'})
  expect(read(fields, JSON.stringify({a: {b: [{...row, who: ''}, {...row, v: null}, 7]}})).rejected).toEqual([
    expect.stringMatching(/^row 1: who, what: expected the name/),
    expect.stringMatching(/^row 2: v\.pct/),
    expect.stringMatching(/^row 3/),
  ])
})

test.each<[object, string, RegExp]>([
  [{}, '<html>', /column 'date' is not in its header/],
  [{}, '', /column 'date' is not in its header/],
  [{format: 'json'}, '<html>', /expected JSON/],
  [{format: 'json', rows: 'data'}, '{"items":[]}', /expected an array at 'data'/],
  [{format: 'json', rows: 'data'}, '{"data":[],"has_more":true}', /has_more without a next_cursor/],
])('what is no feed is refused: %o, %s', (fields, text, words) => {
  expect(() => read(fields, text)).toThrow(words)
})

test.each<[object, RegExp]>([
  [{name: 'A b'}, /feeds\.0\.name: expected lower-case/],
  [{file: undefined}, /feeds\.0\.url: expected either url or file/],
  [{url: 'https://x.example/y'}, /feeds\.0\.url: expected either url or file/],
  [{file: undefined, url: 'ftp://x.example'}, /feeds\.0\.url: expected an http or https URL/],
  [{file: undefined, url: 'https://me:hush@x.example/'}, /feeds\.0\.url: expected a URL without user/],
  [{rate: 'type'}, /feeds\.0\.rate: expected either rate or rate_name/],
  [{key_file: 'k'}, /feeds\.0\.key_file: expected only beside url/],
  [{format: 'xml'}, /feeds\.0\.format/],
  [{valeu: 'x'}, /feeds\.0: Unrecognized key/],
])('a wrong file of feeds is named with its field: %o', (fields, words) => {
  expect(() => aFeed(fields)).toThrow(words)
  expect(() => aFeed(fields)).toThrow(/^Rate feeds in 'rates\.json'/)
})

test('two feeds of one name are refused', () => {
  expect(() => parseRateFeeds(JSON.stringify({feeds: [SOFR, SOFR]}), 'rates.json')).toThrow(
    /feeds\.1\.name: expected a name no other feed has/,
  )
})

test('the feeds that docs/rates.md shows can be read', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/rates.md'), 'utf8')
  const [, shown = ''] = /```json\n(.*?)```/s.exec(page) ?? []
  expect(parseRateFeeds(shown, 'docs/rates.md').map(({name}) => name)).toEqual([
    'ny-fed',
    'treasury-10y',
    'pricing',
  ])
})

test('the table of docs/rates.md is what the schema of a feed says', () => {
  const page = readFileSync(join(import.meta.dirname, '../../docs/rates.md'), 'utf8')
  const {properties = {}} = z.toJSONSchema(rateFeedSchema, {io: 'input'})
  const rows = Object.entries(properties).map(([name, field]) => {
    const {default: preset = '', description} = z
      .object({default: z.unknown().optional(), description: z.string()})
      .parse(field)
    const shown = typeof preset === 'string' ? preset : JSON.stringify(preset).replace(',', ', ')
    return `| \`${name}\` | ${shown && `\`${shown}\``} | ${description} |`
  })
  const table = ['| field | default | meaning |', '|---|---|---|', ...rows].join('\n')
  expect(/^\| field \|.*?(?=\n\n)/ms.exec(page)?.[0]).toBe(table)
})
