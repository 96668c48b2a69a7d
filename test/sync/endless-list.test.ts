import {beforeEach, expect, test} from 'vitest'
import type {WireRecord} from '../../src/core/types.ts'
import {sendJson, startTestServer} from '../source/test-server.ts'
import type {Fault} from '../support/faults.ts'
import {DAY_1, DAY_2, failureOf, someDeals} from '../support/lab.ts'
import {aRecord} from '../support/record.ts'
import {linkBorrower, useLab} from '../support/set-up.ts'

const SMALL = {pageSize: 2, retries: 0, detail: 'off' as const}

const lab = await useLab({deals: someDeals(20)})
beforeEach(lab.remember())

/** Makes every page show the first page's records, one of them unreadable, with the true page's cursor. */
function createStuckList(): Fault {
  let first: object[] | undefined
  const change = (page: WireRecord) => {
    first ??= (page.data as object[]).with(0, {...(page.data as object[])[0], loan_amount: 'much'})
    return {...page, data: first}
  }
  return {kind: 'mutate', change}
}

const countRequests = (path: RegExp) =>
  lab.service.requests.entries.filter((one) => path.test(one.path)).length

test('a list that ignores its cursor ends the walk after three pages, even when resumed, and the next starts afresh', async () => {
  lab.service.faults.add({match: {path: '/deals?'}, fault: createStuckList()})
  lab.service.faults.add({match: {path: '/deals?', nth: 3}, fault: {kind: 'status', status: 500}})
  expect(await failureOf(lab.walk(DAY_1, {config: SMALL}))).toMatchObject({code: 'SOURCE_FAILING'})
  lab.service.requests.clear()
  const failure = await failureOf(lab.walk(DAY_1, {config: SMALL}))
  expect(failure).toMatchObject({code: 'SOURCE_CURSOR_LOOP', exitCode: 7})
  expect(failure.message).toMatch(/3 pages in a row.*Nothing is concluded.*new walk/)
  expect(countRequests(/^\/deals\?/)).toBe(4)
  lab.service.faults.add({match: {path: '/deals?', nth: 3}, fault: {kind: 'status', status: 500}})
  expect(await failureOf(lab.walk(DAY_1, {config: SMALL}))).toMatchObject({code: 'SOURCE_FAILING'})
  lab.service.faults.add({match: {path: /cursor=/, times: 1}, fault: {kind: 'status', status: 410}})
  expect(await failureOf(lab.walk(DAY_1, {config: SMALL}))).toMatchObject({code: 'SOURCE_CURSOR_LOOP'})
  lab.service.faults.clear()
  expect(await lab.walk(DAY_1, {config: SMALL})).toMatchObject({
    certificate: {resumed: 0, distinct: 20, duplicates: 0},
    changes: {created: 20},
  })
})

test('a list of borrowers that ignores its cursor concludes nothing for its deal', async () => {
  const [first = ''] = lab.service.store.ids()
  for (let count = 0; count < 12; count += 1) linkBorrower(lab, first)
  const config = {...SMALL, streams: 'deals,borrowers'}
  await lab.walk(DAY_1, {config})
  lab.service.store.update(first, {status: 'approved'})
  lab.service.faults.add({match: {path: `/deals/${first}/borrowers`}, fault: createStuckList()})
  lab.service.requests.clear()
  expect((await lab.walk(DAY_2, {config})).streams).toMatchObject([
    {failed: 1, changes: {missing: 0, vanished: 0}},
  ])
  expect(countRequests(/borrowers\?/)).toBe(5)
})

test('a list of ever new deals and cursors ends at the growth limit, and resumes once growth is accepted', async () => {
  let last = 1
  await using server = await startTestServer((request, response) => {
    const page = Number(request.query.get('cursor') ?? 1)
    const data = Array.from({length: 100}, (_, index) => aRecord({id: `deal_${page}_${index}`}))
    sendJson(response, {data, has_more: page < last, next_cursor: page < last ? `${page + 1}` : null})
  })
  const config = {detail: 'off', baseUrl: server.url} as const
  await lab.walk(DAY_1, {config})
  last = Number.POSITIVE_INFINITY
  const before = server.requests.length
  const failure = await failureOf(lab.walk(DAY_2, {config}))
  expect(failure).toMatchObject({code: 'SOURCE_ENDLESS', exitCode: 7})
  expect(failure.message).toMatch(
    /1300 .*more follow: .*at most 1231\..*Nothing is concluded.*--accept growth/,
  )
  expect(server.requests.length - before).toBe(13)
  expect(await lab.queryHistory('select count(*) as deals from deal_head')).toEqual([{deals: '100'}])
  last = 15
  expect(await failureOf(lab.walk(DAY_2, {config}))).toMatchObject({code: 'SOURCE_ENDLESS'})
  expect((await lab.walk(DAY_2, {config, accept: ['growth']})).changes).toMatchObject({created: 1400})
})
