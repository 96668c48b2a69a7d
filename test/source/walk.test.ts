import {expect, test} from 'vitest'
import {createClient} from '../../src/source/client.ts'
import {type Page, type WalkRequest, walkPages} from '../../src/source/walk-pages.ts'
import {failureOf} from '../support/lab.ts'
import {createGate, type Handler, passTurns, sendJson, startTestServer} from './test-server.ts'
import {aClientConfig, createTestWorld, type TestWorld} from './test-world.ts'

async function withWalk<T>(
  handler: Handler,
  use: (
    walk: AsyncGenerator<Page>,
    tools: {requests: {query: URLSearchParams}[]; world: TestWorld},
  ) => Promise<T>,
  {request = {}, world = createTestWorld()}: {request?: Partial<WalkRequest>; world?: TestWorld} = {},
): Promise<T> {
  await using server = await startTestServer(handler)
  await using client = createClient(aClientConfig({baseUrl: server.url}), world)
  return await use(walkPages({path: '/deals', pageSize: 2, ...request}, client), {
    requests: server.requests,
    world,
  })
}

/** Serves pages `c1` → `c2` → … of one record each. Page n is requested with cursor `c<n>`, the first one without. */
function pagesUpTo(count: number): Handler {
  return (request, response) => {
    const number = Number((request.query.get('cursor') ?? 'c1').slice(1))
    const hasMore = number < count
    sendJson(response, {
      data: [{id: `deal_${number}`}],
      has_more: hasMore,
      next_cursor: hasMore ? `c${number + 1}` : null,
    })
  }
}

const collect = (walk: AsyncGenerator<Page>): Promise<Page[]> => Array.fromAsync(walk)

test('in a filtered list a status may be spelled otherwise, or be unreadable, but not be another', async () => {
  const walkOf = (...statuses: unknown[]) =>
    withWalk(
      (_, response) => {
        const data = statuses.map((status, index) => ({id: `deal_${index}`, status}))
        sendJson(response, {data, has_more: false})
      },
      collect,
      {request: {filter: {status: 'Under Review'}}},
    )
  expect(await walkOf('under review', ' UNDER REVIEW\n', null, 7)).toHaveLength(1)
  expect((await failureOf(walkOf('under review', 'funded'))).message).toMatch(
    /^1 of 2 records at GET \/deals \(limit, status\) .*'Under Review'/,
  )
})

test('fetches exactly one page ahead of the consumer, and cancels it when the consumer stops', async () => {
  const asked = createGate()
  const cancelled = createGate()
  await withWalk(
    (request, response, turn) => {
      if (turn === 0) return pagesUpTo(4)(request, response, turn)
      response.on('close', cancelled.open)
      asked.open()
    },
    async (walk, {requests}) => {
      for await (const page of walk) {
        expect(page.cursor).toBeNull()
        await asked.opened
        await passTurns()
        expect(requests.map(({query}) => query.get('cursor'))).toEqual([null, 'c2'])
        break
      }
      await cancelled.opened
    },
  )
})

test('a consumer that throws gets its own error, even if the read-ahead fails', async () => {
  const failed = createGate()
  const fault = new Error('disk full')
  await withWalk(
    (request, response, turn) => {
      if (turn === 0) return pagesUpTo(2)(request, response, turn)
      response.on('finish', failed.open)
      sendJson(response, {}, {status: 401})
    },
    async (walk) => {
      const consume = async (): Promise<void> => {
        for await (const _page of walk) {
          await failed.opened
          await passTurns()
          throw fault
        }
      }
      expect(await failureOf(consume())).toBe(fault)
    },
  )
})

test('a failed read-ahead waits until the consumer comes for it', async () => {
  await withWalk(
    (request, response, turn) => {
      if (turn === 0) pagesUpTo(2)(request, response, turn)
      else sendJson(response, {}, {status: 403})
    },
    async (walk) => {
      expect((await walk.next()).value.cursor).toBeNull()
      await passTurns()
      expect(await failureOf(walk.next())).toMatchObject({code: 'SOURCE_UNAUTHORIZED', exitCode: 5})
      expect(await walk.next()).toEqual({done: true, value: undefined})
    },
  )
})

test('ends at a cursor that an earlier run of the walk has met', async () => {
  const request = {cursor: 'c3', seenCursors: ['c4']}
  const error = await withWalk(pagesUpTo(9), (walk) => failureOf(collect(walk)), {request})
  expect(error).toMatchObject({code: 'SOURCE_CURSOR_LOOP', exitCode: 7})
})

test('a page of more than ten times the records asked for is refused', async () => {
  const ofRecords =
    (count: number): Handler =>
    (_request, response) =>
      sendJson(response, {data: Array.from({length: count}, () => ({})), has_more: false})
  expect(await withWalk(ofRecords(20), collect)).toHaveLength(1)
  const error = await withWalk(ofRecords(21), (walk) => failureOf(collect(walk)))
  expect(error).toMatchObject({
    code: 'SOURCE_TOO_LARGE',
    exitCode: 7,
    message: expect.stringMatching(
      /Page of 21 records at GET \/deals.*the 2 asked for.*nothing is concluded/,
    ),
  })
})

/** Returns the error of a walk whose request gets this answer. */
const refusalOf = (body: unknown, status: number, request: Partial<WalkRequest> = {}) =>
  withWalk(
    (_request, response) => sendJson(response, body, {status}),
    (walk) => failureOf(collect(walk)),
    {request},
  )

test.each([400, 404, 410, 422])('reports a %d on a cursor as a refused cursor', async (status) => {
  const body = {code: 'invalid_cursor', detail: 'jane@example.com'}
  const error = await refusalOf(body, status, {cursor: 'old'})
  expect(error).toMatchObject({code: 'SOURCE_CURSOR_REFUSED', exitCode: 7})
  expect(error.message).toContain(
    `Status ${status} (invalid_cursor) from the source at GET /deals (limit, cursor): expected the next page.`,
  )
  expect(error.message).toContain('`pages`, `total` or `more` of `paging`')
  expect(error.message).not.toContain('jane')
})

test.each([
  [400, {code: 'invalid_parameter'}, 'Status 400 (invalid_parameter)'],
  [422, {title: 'Unprocessable Entity'}, 'Status 422 (Unprocessable Entity)'],
  [409, {code: 'jane_roe'}, 'Status 409 (sha256:fadf9e7a6308)'],
  [409, {code: '', title: 'Jane Roe not found'}, 'Status 409 (sha256:8fe2a69c1692)'],
  [418, {code: 7, title: 'key sk_live_abc is odd'}, 'Status 418 (sha256:e1c76074c56e)'],
  [405, null, 'Status 405 from'],
  [404, {}, 'LOANTAPE_BASE_URL'],
])('reports a %d on the first page as a refused request or a wrong address', async (status, body, words) => {
  const error = await refusalOf(body, status)
  const code = status === 404 ? 'SOURCE_NOT_FOUND' : 'SOURCE_REQUEST_REFUSED'
  expect(error).toMatchObject({code, exitCode: 7})
  expect(error.message).toContain(words)
})

test('holds later pages to the envelope of the first', async () => {
  await withWalk(
    (_request, response, turn) => {
      const position = {has_more: turn === 0, next_cursor: 'c2'}
      sendJson(response, turn === 0 ? {data: [{}], ...position} : {data: [{}], meta: position})
    },
    async (walk) => {
      await walk.next()
      expect(await failureOf(walk.next())).toMatchObject({code: 'SOURCE_ENVELOPE_CHANGED', exitCode: 7})
    },
  )
})
