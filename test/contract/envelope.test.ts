import {expect, test} from 'vitest'
import {createListProgress, readPage} from '../../src/contract/list.ts'
import {DEEP} from '../support/record.ts'

const RECORDS = [{id: 'deal_1'}, {id: 'deal_2'}]
const MORE = {has_more: true, next_cursor: 'c2'}
const LAST = {has_more: false, next_cursor: null}

const SHAPES: [string, (position: object) => unknown][] = [
  ['data | top level', (position) => ({data: RECORDS, ...position})],
  ['data | pagination', (position) => ({data: RECORDS, pagination: position})],
  ['data | whatever', (position) => ({whatever: position, data: RECORDS, other: {total: 2}})],
  ['data.deals | data', (position) => ({data: {deals: RECORDS, ...position}})],
  ['data.items | data.pagination', (position) => ({data: {items: RECORDS, pagination: position}})],
  ['data.items | meta', (position) => ({data: {items: RECORDS}, meta: position})],
]

test.each(SHAPES)('finds and reads %j', (text, build) => {
  const path = text.split(' ')[0]?.split('.')
  expect(readPage(build(MORE))).toEqual({records: RECORDS, path, nextCursor: 'c2', envelope: text})
  expect(readPage(build(LAST), text)).toEqual({records: RECORDS, path, nextCursor: null, envelope: text})
  expect(readPage(build({has_more: false}), text).nextCursor).toBeNull()
})

test('has_more decides alone: a cursor on the last page is not followed', () => {
  const body = {data: RECORDS, has_more: false, next_cursor: 'c9'}
  expect(readPage(body).nextCursor).toBeNull()
})

test('takes the cursor from its own place if has_more is in two places', () => {
  const body = {data: RECORDS, has_more: true, pagination: MORE}
  expect(readPage(body)).toMatchObject({envelope: 'data | pagination', nextCursor: 'c2'})
  for (const envelope of ['data | pagination', 'data | top level'])
    expect(readPage(body, envelope)).toMatchObject({envelope, nextCursor: 'c2'})
})

test('takes the cursor from another place than that of has_more, which names the envelope', () => {
  const links = {data: RECORDS, has_more: true, links: {next_cursor: 'c2'}, meta: {next_cursor: null}}
  expect(readPage(links)).toMatchObject({envelope: 'data | top level', nextCursor: 'c2'})
  const within = {data: {deals: RECORDS, next_cursor: 'c2'}, meta: {has_more: true}}
  expect(readPage(within)).toMatchObject({envelope: 'data.deals | meta', nextCursor: 'c2'})
  const beside = {...links, ...MORE, links: {next_cursor: 'of something else'}}
  expect(readPage(beside)).toMatchObject({nextCursor: 'c2'})
})

test.each([
  ['no object', RECORDS],
  ['no data', MORE],
  ['data null', {data: null, ...LAST}],
  ['two arrays in data', {data: {deals: [], others: [], ...LAST}}],
  ['no array in data', {data: {...LAST}}],
  ['no has_more', {data: RECORDS, next_cursor: 'c2'}],
  ['has_more a text', {data: RECORDS, has_more: 'true', next_cursor: 'c2'}],
  ['has_more inside a record only', {data: [{id: 'deal_1', has_more: false}]}],
  ['positions that differ', {data: RECORDS, has_more: false, meta: MORE}],
  ['positions of two kinds', {data: RECORDS, ...MORE, meta: {has_more: 'true'}}],
])('refuses a page with %s', (_name, body) => {
  const refuse = expect.objectContaining({code: 'SOURCE_ENVELOPE', exitCode: 7})
  expect(() => readPage(body)).toThrow(refuse)
  expect(() => readPage(body, 'data | top level')).toThrow(refuse)
})

test('refuses two cursors that differ, and has_more true without a cursor', () => {
  const read = (body: object) => () => readPage(body)
  const two = {data: RECORDS, ...MORE, meta: {has_more: true, next_cursor: 'c3'}}
  expect(read(two)).toThrow(expect.objectContaining({code: 'SOURCE_ENVELOPE'}))
  const missing = expect.objectContaining({code: 'SOURCE_CURSOR_MISSING', exitCode: 7})
  for (const next_cursor of [undefined, null, '', 7, {}])
    expect(read({data: RECORDS, has_more: true, next_cursor})).toThrow(missing)
})

test('names the pinned and the found envelope and how to accept it, even if records moved or the pinned text is unreadable', () => {
  const changed = expect.objectContaining({code: 'SOURCE_ENVELOPE_CHANGED'})
  expect(() => readPage({data: {deals: RECORDS}, ...LAST}, 'data | top level')).toThrow(changed)
  expect(() => readPage({data: RECORDS, ...LAST}, 'garbage')).toThrow(changed)
  const body = {data: RECORDS, meta: LAST}
  const read = (): unknown => readPage(body, 'data | top level')
  expect(read).toThrow(expect.objectContaining({code: 'SOURCE_ENVELOPE_CHANGED', exitCode: 7}))
  expect(read).toThrow(/'data \| meta'.*'data \| top level'.*--accept envelope/)
})

const LIST = {name: 'GET /deals'}

/** Reads a list of pages with these ids; each but the last names a new cursor. */
function readList(pages: unknown[][]): void {
  const progress = createListProgress(LIST)
  for (const [index, ids] of pages.entries()) {
    const nextCursor = index < pages.length - 1 ? `c${index}` : null
    progress.take({records: ids.map((id) => ({id, amount: 1})), nextCursor})
  }
}

test.each([
  ['the first page', [['a', 'b'], ['a', 'b'], ['a', 'b'], ['a', 'b'], ['a', 'b'], ['c']]],
  ['pages it has shown twice', [['a'], ['b'], ['a'], ['b'], ['a'], ['b'], ['a'], ['c']]],
  ['records without ids', [[undefined], [undefined], [undefined], [undefined], [undefined], []]],
  ['no record', [[], [], [], ['c']]],
])('refuses a list that gives fresh cursors and shows only %s on three more pages', (_, pages) => {
  expect(() => readList(pages)).toThrow(/3 pages in a row of GET \/deals hold no new record/)
})

test.each([
  ['two empty pages, and past an empty last one', [[], [], ['a'], [], [], []]],
  ['a record without an id that nests too deeply to be written', [[JSON.parse(DEEP)], ['a']]],
  [
    'any number of pages that it shows again, once, and two that it shows once more',
    [['a'], ['b'], ['c'], ['d'], ['a'], ['b'], ['c'], ['d'], ['a'], ['b'], ['e'], ['c'], ['d'], ['f']],
  ],
])('goes past %s', (_, pages) => readList(pages))
