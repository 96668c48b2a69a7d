import type {ServerResponse} from 'node:http'
import {brotliCompressSync, deflateSync, gzipSync, zstdCompressSync} from 'node:zlib'
import {expect, test} from 'vitest'
import {VERSION} from '../../src/core/process.ts'
import type {JsonAnswer} from '../../src/source/client.ts'
import {type ClientConfig, createClient} from '../../src/source/client.ts'
import {failureOf} from '../support/lab.ts'
import {createGate, type Handler, sendJson, startTestServer, type TestServer} from './test-server.ts'
import {aClientConfig, createTestWorld, START, TEST_KEY, type TestWorld} from './test-world.ts'

/** Asks a server once, through a new client. */
async function ask(
  server: TestServer,
  changes: Partial<ClientConfig> = {},
  world: TestWorld = createTestWorld(),
): Promise<JsonAnswer> {
  await using client = createClient(aClientConfig({baseUrl: server.url, ...changes}), world)
  return await client.getJson('/deals', {limit: 2})
}

/** Misbehaves on the first requests, then answers. */
function faulty(times: number, fault: (response: ServerResponse) => void): Handler {
  return (_request, response, turn) => (turn < times ? fault(response) : sendJson(response, {turn}))
}

const HALF = '{"data":[{"id":"deal_1"}'

const FAULTS: Record<string, (response: ServerResponse) => void> = {
  'closed before the headers': (response) => response.socket?.destroy(),
  'reset before the headers': (response) => response.socket?.resetAndDestroy(),
  'reset after the headers': (response) => {
    response.writeHead(200, {'content-type': 'application/json'}).flushHeaders()
    setImmediate(() => response.socket?.resetAndDestroy())
  },
  'reset in the middle of the body': (response) => {
    response.writeHead(200, {'content-type': 'application/json'}).write(HALF)
    setImmediate(() => response.socket?.resetAndDestroy())
  },
  'closed in the middle of a chunked body': (response) => {
    response.writeHead(200, {'content-type': 'application/json'}).write(HALF)
    setImmediate(() => response.socket?.end())
  },
  'shorter than its content length': (response) => {
    response.writeHead(200, {'content-type': 'application/json', 'content-length': '500'}).write(HALF)
    setImmediate(() => response.socket?.end())
  },
  'no HTTP': (response) => {
    response.socket?.end('hello\r\n\r\n')
  },
}

test.each(Object.entries(FAULTS))(
  'retries an answer that is %s, and gives up with exit 6',
  async (_, fault) => {
    await using mending = await startTestServer(faulty(2, fault))
    expect(await ask(mending)).toMatchObject({status: 200, body: {turn: 2}})
    expect(mending.requests).toHaveLength(3)
    await using failing = await startTestServer(faulty(99, fault))
    const error = await failureOf(ask(failing, {retries: 2}))
    expect(error).toMatchObject({code: 'SOURCE_UNREACHABLE', exitCode: 6})
    expect(error.message).toContain(`'${new URL(failing.url).host}'`)
    expect(error.message).toContain('The next run continues')
    expect(failing.requests).toHaveLength(3)
  },
)

// undici counts its timeouts in half seconds.
test('a source that never answers times out', async () => {
  await using server = await startTestServer(() => undefined)
  const error = await failureOf(ask(server, {requestTimeoutSeconds: 0.2, retries: 0}))
  expect(error).toMatchObject({code: 'SOURCE_UNREACHABLE', exitCode: 6})
  expect(error.message).toContain("'UND_ERR_HEADERS_TIMEOUT'")
})

test('a stalled body times out and is retried', async () => {
  await using server = await startTestServer(
    faulty(1, (response) => void response.writeHead(200, {'content-type': 'application/json'}).write(HALF)),
  )
  const world = createTestWorld()
  const reasons: unknown[] = []
  world.log.info = (...said) => void reasons.push(said[0])
  expect((await ask(server, {requestTimeoutSeconds: 0.2}, world)).body).toEqual({turn: 1})
  expect(reasons).toMatchObject([{reason: 'UND_ERR_BODY_TIMEOUT', attempt: 1}])
})

test('a body that drips forever times out as a whole', async () => {
  await using server = await startTestServer((_request, response) => {
    response.writeHead(200, {'content-type': 'application/json'}).write(HALF)
    const dripping = setInterval(() => response.write(' '), 5)
    response.on('close', () => clearInterval(dripping))
  })
  const error = await failureOf(ask(server, {requestTimeoutSeconds: 0.025, retries: 0}))
  expect(error).toMatchObject({code: 'SOURCE_UNREACHABLE', exitCode: 6})
  expect(error.message).toContain('not complete in time')
})

test.each([500, 502, 503, 504, 408, 425])('retries %d, and gives up with exit 6', async (status) => {
  const fail = (response: ServerResponse): void => sendJson(response, {title: 'secret detail'}, {status})
  await using mending = await startTestServer(faulty(2, fail))
  expect((await ask(mending)).body).toEqual({turn: 2})
  await using failing = await startTestServer(faulty(99, fail))
  const error = await failureOf(ask(failing))
  expect(error).toMatchObject({code: 'SOURCE_FAILING', exitCode: 6})
  expect(error.message).toContain(`status ${status}`)
  expect(error.message).not.toContain('secret')
})

test.each([
  ['HTML', 'text/html; charset=utf-8', '<html>Jane Roe, sk_live_abc</html>'],
  ['half of a JSON text', 'application/json', HALF],
  ['empty', 'unknown', ''],
])('a 200 that is %s is retried, then exit 7 without quoting it', async (_name, contentType, body) => {
  const answer = (response: ServerResponse): void => {
    response.writeHead(200, contentType === 'unknown' ? {} : {'content-type': contentType}).end(body)
  }
  await using mending = await startTestServer(faulty(1, answer))
  expect((await ask(mending)).body).toEqual({turn: 1})
  await using wrong = await startTestServer(faulty(99, answer))
  const error = await failureOf(ask(wrong, {retries: 1}))
  expect(error).toMatchObject({code: 'SOURCE_NOT_JSON', exitCode: 7})
  expect(error.message).toContain(`'${contentType.split(';')[0]}'`)
  expect(error.message).toContain('LOANTAPE_BASE_URL')
  expect(error.message).not.toMatch(/Jane|sk_live|deal_1/)
  expect(wrong.requests).toHaveLength(2)
})

test.each([401, 403])('ends at once on %d, without the key in the message', async (status) => {
  await using server = await startTestServer((_request, response) => sendJson(response, {}, {status}))
  const error = await failureOf(ask(server))
  expect(error).toMatchObject({code: 'SOURCE_UNAUTHORIZED', exitCode: 5})
  expect(error.message).not.toContain(TEST_KEY)
  expect(server.requests).toHaveLength(1)
})

test.each([400, 404, 410, 422])('hands a %d to the caller', async (status) => {
  await using json = await startTestServer((_request, response) =>
    sendJson(response, {code: 'nope'}, {status}),
  )
  expect(await ask(json)).toMatchObject({status, body: {code: 'nope'}})
  await using html = await startTestServer(
    (_request, response) => response.writeHead(status).end('<p>') && undefined,
  )
  expect(await ask(html)).toMatchObject({status, body: null})
  expect(html.requests).toHaveLength(1)
})

test.each([301, 302, 303, 307, 308])('a %d never takes the key to another origin', async (status) => {
  await using other = await startTestServer((_request, response) => sendJson(response, {}))
  await using server = await startTestServer((_request, response) => {
    response.writeHead(status, {location: `${other.url}/deals?token=hidden`}).end()
  })
  const error = await failureOf(ask(server))
  expect(error).toMatchObject({code: 'SOURCE_REDIRECTED', exitCode: 7})
  expect(error.message).toContain(`'${new URL(other.url).origin}'`)
  expect(error.message).not.toContain('hidden')
  expect(other.requests).toHaveLength(0)
  expect(server.requests).toHaveLength(1)
})

test('refuses an answer that is too large while it arrives', async () => {
  let sent = 0
  await using server = await startTestServer((_request, response) => {
    response.writeHead(200, {'content-type': 'application/json'})
    const chunk = Buffer.alloc(65_536, ' ')
    const send = (): void => {
      sent += 1
      if (!response.destroyed) response.write(chunk, () => setImmediate(send))
    }
    send()
  })
  const error = await failureOf(ask(server, {maxAnswerMb: 0.5}))
  expect(error).toMatchObject({code: 'SOURCE_TOO_LARGE', exitCode: 7})
  expect(error.message).toMatch(/GET \/deals: more than 0.5 MiB.*LOANTAPE_PAGE_SIZE/)
  expect(sent).toBeLessThan(200)
  expect(server.requests).toHaveLength(1)
})

test.each([
  ['objects', '{},'],
  ['numbers', '1,'],
  ['nested arrays', '[[]],'],
])('refuses millions of %s before they are parsed', async (_, value) => {
  await using server = await startTestServer((_request, response) => {
    response.writeHead(200, {'content-type': 'application/json'})
    response.end(`{"data":[${value.repeat(1_100_000)}0]}`)
  })
  expect(await failureOf(ask(server))).toMatchObject({code: 'SOURCE_TOO_LARGE', exitCode: 7})
})

test('refuses bytes that are not UTF-8, and judges an error by its status whatever its bytes', async () => {
  let status = 200
  await using server = await startTestServer((_request, response) => {
    response.writeHead(status, {'content-type': 'application/json'})
    response.end(Buffer.concat([Buffer.from('{"data":"'), Buffer.from([0xff]), Buffer.from('"}')]))
  })
  const error = await failureOf(ask(server))
  expect(error).toMatchObject({code: 'SOURCE_NOT_UTF8', exitCode: 7})
  expect(error.message).toMatch(/GET \/deals: its bytes are not UTF-8/)
  expect(server.requests).toHaveLength(1)
  status = 500
  expect(await failureOf(ask(server))).toMatchObject({code: 'SOURCE_FAILING'})
})

const BODY = Buffer.from('{"data":[{"id":"deal_1"}]}')

test.each([
  ['gzip and says so', gzipSync(BODY), 'gzip'],
  ['br and says so', brotliCompressSync(BODY), 'br'],
  ['gzip without saying so', gzipSync(BODY), undefined],
  ['zlib without saying so', deflateSync(BODY), undefined],
  ['zstd but says identity', zstdCompressSync(BODY), 'identity'],
  ['gzip cut in half', gzipSync(BODY).subarray(0, 20), 'gzip'],
])('refuses an answer that is %s as compressed unasked', async (_, body, coding) => {
  await using server = await startTestServer((_request, response) => {
    response.writeHead(200, {'content-type': 'application/json', ...(coding && {'content-encoding': coding})})
    response.end(body)
  })
  const error = await failureOf(ask(server))
  expect(error).toMatchObject({code: 'SOURCE_COMPRESSED', exitCode: 7})
  expect(error.message).toMatch(/GET \/deals: it is compressed \(\w+\).*asked for 'identity'/)
  expect(server.requests).toHaveLength(1)
})

test('reads a long text as it is, whatever it contains and claims about its coding', async () => {
  const data = ['{[,'.repeat(1_000_000), '\\"[,', '\\']
  await using server = await startTestServer((_request, response) =>
    sendJson(response, {data}, {headers: {'content-encoding': 'gzip'}}),
  )
  expect((await ask(server)).body).toEqual({data})
})

test('sends key, version and the queries of base URL, path and call under the prefix, escaped', async () => {
  await using server = await startTestServer((_request, response) => sendJson(response, {}))
  await using client = createClient(aClientConfig({baseUrl: `${server.url}/?tenant=7`}), createTestWorld())
  const given = {limit: 100, status: 'funded & closed', cursor: undefined}
  await client.getJson('/deals/a%2Fb ü?expand=all', given)
  const [request] = server.requests
  expect(request?.path).toBe('/v1/deals/a%2Fb%20%C3%BC')
  const sent = {expand: 'all', tenant: '7', limit: '100', status: 'funded & closed'}
  expect(Object.fromEntries(request?.query ?? [])).toEqual(sent)
  expect(request?.headers).toMatchObject({
    authorization: `Bearer ${TEST_KEY}`,
    accept: 'application/json',
    'accept-encoding': 'identity',
    'user-agent': `loantape/${VERSION}`,
  })
})

test('reuses its connections for successive requests', async () => {
  const ports = new Set<number | undefined>()
  await using server = await startTestServer((_request, response) => {
    ports.add(response.socket?.remotePort)
    sendJson(response, {})
  })
  await using client = createClient(aClientConfig({baseUrl: server.url}), createTestWorld())
  for (let count = 0; count < 20; count += 1) await client.getJson('/deals')
  expect(ports.size).toBeLessThanOrEqual(2)
})

test('stamps an answer with the start of the request that succeeded', async () => {
  const world = createTestWorld()
  let businessNow = 1_000
  world.clock = {now: () => businessNow}
  await using server = await startTestServer((_request, response, turn) => {
    businessNow += 500
    if (turn === 0) response.socket?.destroy()
    else sendJson(response, {})
  })
  const answer = await ask(server, {}, world)
  expect(answer.received).toMatchObject({requestedAt: 1_500_000n, receivedAt: START + 250})
})

test('a limit is waited for without spending a retry', async () => {
  await using server = await startTestServer((_request, response, turn) => {
    if (turn < 4) sendJson(response, {}, {status: 429, headers: {'retry-after': '3'}})
    else sendJson(response, {turn})
  })
  await using client = createClient(aClientConfig({baseUrl: server.url, retries: 0}), createTestWorld())
  expect((await client.getJson('/deals')).body).toEqual({turn: 4})
  expect([...client.answers]).toEqual([
    [429, 4],
    [200, 1],
  ])
  expect(client.waitingSince).toBeNull()
  expect(client.waitedMs).toBeGreaterThan(12_000)
  expect(client.ratePerSecond).toBeLessThan(100)
})

test('starts from a learned rate', async () => {
  await using client = createClient(aClientConfig({ratePerSecond: 5, learntRate: 1.5}), createTestWorld())
  expect(client.ratePerSecond).toBe(1.5)
})

test('an abort cancels the current request', async () => {
  const arrived = createGate()
  const closed = createGate()
  await using server = await startTestServer((_request, response) => {
    response.on('close', closed.open)
    arrived.open()
  })
  const world = createTestWorld()
  const asking = failureOf(ask(server, {}, world))
  await arrived.opened
  world.abort()
  const error = await asking
  expect(error).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
  expect(error.message).toContain('The next run continues')
  await closed.opened
})

test('an abort ends the wait before a retry, and nothing is requested after it', async () => {
  const world = createTestWorld()
  await using server = await startTestServer((_request, response) => {
    world.abort()
    sendJson(response, {}, {status: 500})
  })
  for (let time = 0; time < 2; time += 1)
    expect(await failureOf(ask(server, {}, world))).toMatchObject({code: 'INTERRUPTED'})
  expect(server.requests).toHaveLength(1)
})

test('a caller can cancel only its own request', async () => {
  const arrived = createGate()
  await using server = await startTestServer((_request, response, turn) =>
    turn === 0 ? arrived.open() : sendJson(response, {turn}),
  )
  await using client = createClient(aClientConfig({baseUrl: server.url}), createTestWorld())
  const caller = new AbortController()
  const asking = failureOf(client.getJson('/deals', {}, caller.signal))
  await arrived.opened
  caller.abort()
  expect(await asking).toBe(caller.signal.reason)
  expect((await client.getJson('/deals')).status).toBe(200)
})
