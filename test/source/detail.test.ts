import {setTimeout} from 'node:timers/promises'
import {setFlagsFromString} from 'node:v8'
import {runInNewContext} from 'node:vm'
import fc from 'fast-check'
import {expect, test, vi} from 'vitest'
import type {Received, WireRecord} from '../../src/core/types.ts'
import {
  askEach,
  askOwnPage,
  createListAsker,
  type DetailAnswer,
  type EachRequest,
  type EachSummary,
  type ListingAnswer,
} from '../../src/source/ask-each.ts'
import {createClient} from '../../src/source/client.ts'
import {failureOf} from '../support/lab.ts'
import {createGate, type Handler, passTurns, sendJson, startTestServer} from './test-server.ts'
import {aClientConfig, createTestWorld, type TestWorld} from './test-world.ts'

type Asked = EachRequest<{record: WireRecord; received: Received}>

const aRequest = (ids: Iterable<string>, changes: Partial<Asked> = {}): Asked => ({
  ...{ids: [...ids], path: '/deals/{id}', ask: askOwnPage, concurrency: 2, budgetMs: 60_000},
  ...{step: 'details', unit: 'details'},
  ...changes,
})

async function fetchDetails(
  ids: Iterable<string>,
  client: Parameters<typeof askEach>[1],
  request: Partial<Asked> = {},
  world = createTestWorld(),
): Promise<{answers: DetailAnswer[]; summary: EachSummary}> {
  const answers: DetailAnswer[] = []
  const take = (answer: DetailAnswer) => void answers.push(answer)
  const summary = await askEach(aRequest(ids, request), client, take, world)
  return {answers, summary}
}

async function fetchFrom(
  handler: Handler,
  ids: Iterable<string>,
  {request, world = createTestWorld()}: {request?: Partial<Asked>; world?: TestWorld} = {},
) {
  await using server = await startTestServer(handler)
  await using client = createClient(aClientConfig({baseUrl: server.url, retries: 1}), world)
  const result = await fetchDetails(ids, client, request, world)
  return {...result, paths: server.requests.map(({path}) => path)}
}

const idOf = (path: string): string => decodeURIComponent(path.split('/').at(-1) ?? '')

/** Answers for every deal, except the named ones. */
function dealsExcept(faults: Record<string, (...inputs: Parameters<Handler>) => void> = {}): Handler {
  return (request, response, turn) => {
    const id = idOf(request.path)
    const fault = faults[id]
    if (fault) fault(request, response, turn)
    else sendJson(response, {data: {id, loan_program: 'bridge_30yr'}})
  }
}

const answer =
  (status: number, body: unknown = {}): Handler =>
  (_request, response) =>
    sendJson(response, body, {status})

const aClient = (getJson: Parameters<typeof askEach>[1]['getJson']) => ({
  ...{waitedMs: 0, waitingSince: null},
  getJson,
})

/** Answers that a deal exists, for every path. */
async function find(path: string) {
  const asked = {path, query: {}, status: 200, headers: {}}
  const received = {...asked, requestedAt: 0n, receivedAt: 0, body: Buffer.alloc(0)}
  return {status: 200, body: {data: {id: idOf(path)}}, received}
}

test('asks nothing without ids or budget', async () => {
  const spent = await fetchFrom(dealsExcept(), ['a'], {request: {budgetMs: 0}})
  expect(spent).toMatchObject({summary: {fetched: 0, ended: 'budget'}, paths: []})
  const {summary, paths} = await fetchFrom(dealsExcept(), [])
  expect(summary).toEqual({proven: false, fetched: 0, gone: 0, failed: 0, ended: 'done'})
  expect(paths).toEqual([])
})

test('a budget that is spent between two answers ends the asking', async () => {
  const timer = new AbortController()
  vi.spyOn(AbortSignal, 'timeout').mockReturnValueOnce(timer.signal)
  const asked: string[] = []
  const client = aClient(async (path, _query, signal) => {
    signal?.throwIfAborted()
    asked.push(path)
    timer.abort()
    return await find(path)
  })
  const {summary} = await fetchDetails(['a', 'b', 'c'], client)
  vi.restoreAllMocks()
  expect([summary.fetched, summary.ended, asked]).toEqual([1, 'budget', ['/deals/a']])
})

test('a budget holds although memory is cleared up meanwhile', async () => {
  setFlagsFromString('--expose-gc')
  const clearUp = runInNewContext('gc')
  const client = aClient(async (path) => {
    clearUp()
    await setTimeout(2)
    return await find(path)
  })
  const ids = Array.from({length: 200}, (_, index) => `d${index}`)
  const {summary} = await fetchDetails(ids, client, {budgetMs: 50})
  expect(summary.ended).toBe('budget')
})

test('any id but a dot segment becomes one segment of the path', async () => {
  const anId = fc.string({minLength: 1, unit: 'grapheme'}).filter((id) => id !== '.' && id !== '..')
  await fc.assert(
    fc.asyncProperty(fc.array(anId, {minLength: 1, maxLength: 5}), async (ids) => {
      const asked: string[] = []
      const client = aClient((path) => {
        asked.push(path)
        return find(path)
      })
      const {answers} = await fetchDetails(ids, client)
      expect(answers.map(({id, outcome}) => `${id} ${outcome}`)).toEqual(ids.map((id) => `${id} found`))
      for (const path of asked) expect(path).toMatch(/^\/deals\/[^/?#]+$/)
    }),
    {numRuns: 50},
  )
})

test('an id that no path can contain fails, and the others continue', async () => {
  const {answers} = await fetchFrom(dealsExcept(), ['a', '\ud800', 'b', '.', 'c', '..', 'd'])
  const outcomes = ['found', 'failed', 'found', 'failed', 'found', 'failed', 'found']
  expect(answers.map(({outcome}) => outcome)).toEqual(outcomes)
})

test('asks for one deal alone until the path has answered for one', async () => {
  let [asked, answered] = [0, 0]
  const client = aClient(async (path) => {
    asked += 1
    await passTurns()
    if (answered < 2) expect(asked).toBe(answered + 1)
    answered += 1
    return answered === 1 ? {...(await find(path)), status: 422} : find(path)
  })
  const {summary} = await fetchDetails('abcd', client)
  expect(summary).toMatchObject({proven: true, fetched: 3, failed: 1})
})

test('leaves the others out when the path has not answered for any of the first five', async () => {
  const {answers, summary, paths} = await fetchFrom(answer(404), 'abcdefg')
  expect(summary).toEqual({proven: false, fetched: 0, gone: 0, failed: 5, ended: 'failing'})
  expect(answers.map(({id, outcome}) => `${id} ${outcome}`)).toEqual([...'abcde'].map((id) => `${id} failed`))
  expect(new Set(paths).size).toBe(5)
})

test.each<[string, Handler]>([
  ['status 405', answer(405)],
  ['SOURCE_FAILING', answer(500)],
  ['SOURCE_UNAUTHORIZED', answer(403)],
  ['SOURCE_NOT_JSON', (_request, response) => void response.end('<html>')],
  ['SOURCE_REDIRECTED', (_request, response) => void response.writeHead(302, {location: '/login'}).end()],
  ['the record of another id', answer(200, {data: {id: 'z'}})],
  ['the record of another id', answer(200, {data: {id: 7}})],
  ["no record in its 'data'", answer(200, {data: [{id: 'b'}], has_more: false})],
  ["no record in its 'data'", answer(200, {id: 'b'})],
  [
    "no record in its 'data'",
    (_request, response) => void response.end('{"data": {"id": "a"}, "data": {"id": "b"}}'),
  ],
])('names %j as the reason why one failed, and continues', async (reason, handler) => {
  const {answers, summary} = await fetchFrom(dealsExcept({b: handler}), 'abc')
  expect(answers[1]).toEqual({id: 'b', outcome: 'failed', reason})
  expect(summary).toEqual({proven: true, fetched: 2, gone: 0, failed: 1, ended: 'done'})
})

test.each([404, 410])('a %d means gone once the path has answered for another deal', async (status) => {
  const {answers, summary} = await fetchFrom(dealsExcept({b: answer(status)}), ['a', 'b', 'c'])
  expect(answers[1]).toMatchObject({id: 'b', outcome: 'gone', received: {status}})
  expect(summary).toMatchObject({proven: true, fetched: 2, gone: 1, failed: 0, ended: 'done'})
})

test.each([404, 410])('a list of a deal that answers %d is gone, too', async (status) => {
  await using server = await startTestServer(({path}, response) =>
    path.endsWith('/b') ? sendJson(response, {}, {status}) : sendJson(response, {data: [], has_more: false}),
  )
  const world = createTestWorld()
  await using client = createClient(aClientConfig({baseUrl: server.url}), world)
  const summary = await askEach(
    {...aRequest('abc'), ask: createListAsker(10)},
    client,
    () => undefined,
    world,
  )
  expect(summary).toMatchObject({fetched: 2, gone: 1, failed: 0})
})

test('a 404 before the path has answered waits for proof; if the path never answers, it proves nothing', async () => {
  const late = await fetchFrom(dealsExcept({a: answer(404), b: answer(404)}), ['a', 'b', 'c', 'd'])
  expect(late.answers.map(({outcome}) => outcome)).toEqual(['gone', 'gone', 'found', 'found'])
  const {answers, summary} = await fetchFrom(answer(404), ['a', 'b'])
  expect(answers).toEqual([
    {id: 'a', outcome: 'failed', reason: expect.stringContaining('only 404')},
    {id: 'b', outcome: 'failed', reason: expect.stringContaining('only 404')},
  ])
  expect(summary).toEqual({proven: false, fetched: 0, gone: 0, failed: 2, ended: 'done'})
})

test('stops after five failures in a row, which a deal that is gone interrupts', async () => {
  const bad = Object.fromEntries([...'bcdeghijlmnopqrst'].map((id) => [id, answer(422)]))
  const faults = {...bad, f: answer(404)}
  const early = await fetchFrom(dealsExcept(faults), 'abcdefghijk')
  expect(early.summary).toEqual({proven: true, fetched: 2, gone: 1, failed: 8, ended: 'done'})
  const {answers, summary, paths} = await fetchFrom(dealsExcept(faults), 'almnopqrst')
  expect(answers).toHaveLength(6)
  expect(summary).toEqual({proven: true, fetched: 1, gone: 0, failed: 5, ended: 'failing'})
  expect(paths.length).toBeLessThan(10)
})

test('ends quietly if the run is asked to stop', async () => {
  const world = createTestWorld()
  const stop: Handler = () => world.abort()
  const {answers, summary} = await fetchFrom(dealsExcept({c: stop}), ['a', 'b', 'c', 'd', 'e'], {
    request: {concurrency: 1},
    world,
  })
  expect(answers.map(({id}) => id)).toEqual(['a', 'b'])
  expect(summary).toEqual({proven: true, fetched: 2, gone: 0, failed: 0, ended: 'interrupted'})
})

test('never has more concurrent requests than allowed, nor asks far ahead of the consumer', async () => {
  let [underWay, most, asked, taken, furthest] = [0, 0, 0, 0, 0]
  const client = aClient(async (path) => {
    asked += 1
    furthest = Math.max(furthest, asked - taken)
    underWay += 1
    most = Math.max(most, underWay)
    await new Promise((resolve) => setImmediate(resolve))
    underWay -= 1
    return find(path)
  })
  const ids = Array.from({length: 60}, (_, index) => `deal_${index}`)
  const take = async () => {
    await passTurns()
    taken += 1
  }
  await askEach(aRequest(ids, {concurrency: 3}), client, take, createTestWorld())
  expect(taken).toBe(60)
  expect(most).toBe(3)
  expect(furthest).toBeLessThanOrEqual(6)
})

test('a consumer that fails cancels requests in progress', async () => {
  const asked = createGate()
  const closed = createGate()
  await using server = await startTestServer((request, response, turn) => {
    if (turn < 2) return dealsExcept()(request, response, turn)
    response.on('close', closed.open)
    asked.open()
  })
  const world = createTestWorld()
  await using client = createClient(aClientConfig({baseUrl: server.url}), world)
  const fault = new Error('disk full')
  const take = async ({id}: DetailAnswer) => {
    // The first answer is taken before further requests are sent.
    if (id === 'a') return
    await asked.opened
    throw fault
  }
  expect(await failureOf(askEach(aRequest('abcdef'), client, take, world))).toBe(fault)
  await closed.opened
})

test('a list of one deal that goes on beyond a hundred pages fails, and the next is read', async () => {
  let asked = 0
  const client = aClient(async (path, query) => {
    asked += 1
    const isEnd = path.includes('short') || asked > 500
    const body = {data: [{id: `d${asked}`}], has_more: !isEnd, next_cursor: isEnd ? null : `c${asked}`}
    const received = {path, query: query ?? {}, status: 200, headers: {}, requestedAt: 0n, receivedAt: 0}
    return {status: 200, body, received: {...received, body: Buffer.alloc(10)}}
  })
  const answers: ListingAnswer[] = []
  const request = {...aRequest(['short', 'long', 'short2']), ask: createListAsker(10)}
  await askEach(request, client, (one) => void answers.push(one), createTestWorld())
  expect(answers).toMatchObject([
    {id: 'short', outcome: 'found'},
    {id: 'long', outcome: 'failed', reason: 'too long a list'},
    {id: 'short2', outcome: 'found'},
  ])
})

test('our own bug is not taken for a failing source', async () => {
  const bug = new TypeError('a bug')
  const faulty = aClient(() => Promise.reject(bug))
  expect(await failureOf(fetchDetails('abc', faulty))).toBe(bug)
})
