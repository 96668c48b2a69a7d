import {generateKeyPairSync} from 'node:crypto'
import {subscribe, unsubscribe} from 'node:diagnostics_channel'
import {writeFileSync} from 'node:fs'
import type {ServerResponse} from 'node:http'
import {join} from 'node:path'
import {text} from 'node:stream/consumers'
import {brotliCompressSync, deflateSync, gzipSync, zstdCompressSync} from 'node:zlib'
import {Pool} from 'undici'
import {expect, onTestFinished, test, vi} from 'vitest'
import {parseDescription} from '../../src/contract/description.ts'
import {receive} from '../../src/core/outgoing.ts'
import {VERSION} from '../../src/core/process.ts'
import {type ClientConfig, createClient, type JsonAnswer} from '../../src/source/client.ts'
import {backoffMs} from '../../src/source/faults.ts'
import {createFolder} from '../support/data.ts'
import {failureOf} from '../support/lab.ts'
import {createGate, sendJson, startProxy, startTestServer, type TestServer} from './test-server.ts'
import {aClientConfig, createTestWorld, START, TEST_KEY, type TestWorld} from './test-world.ts'

/** Sends one request to a server through a new client. */
async function ask(
  server: TestServer,
  changes: Partial<ClientConfig> = {},
  world: TestWorld = createTestWorld(),
): Promise<JsonAnswer> {
  await using client = createClient(aClientConfig({baseUrl: server.url, ...changes}), world)
  return await client.getJson('/deals', {limit: 2})
}

const HALF = '{"data":[{"id":"deal_1"}'
const JSON_TYPE = {'content-type': 'application/json'}

type Spoil = (response: ServerResponse) => unknown

/** Sends half of an answer, then ends or resets the connection. */
function breakOff(response: ServerResponse, how: 'end' | 'resetAndDestroy', headers = {}): void {
  response.writeHead(200, {...JSON_TYPE, ...headers}).write(HALF)
  setImmediate(() => response.socket?.[how]())
}

/** The error of a source that stays as it is, and its words. */
const UNREACHABLE = [
  'SOURCE_UNREACHABLE',
  /'127\.0\.0\.1:\d+' .* GET \/deals, 3 times in a row, .* is kept\. The next run continues/s,
] as const
const FAILING = ['SOURCE_FAILING', /status [345]\d\d/] as const
const NOT_JSON = [
  'SOURCE_NOT_JSON',
  /\d+ bytes of type '(text\/html|application\/json|unknown)': expected/,
] as const

const failWith =
  (status: number): Spoil =>
  (response) =>
    sendJson(response, {title: 'secret detail'}, {status})

test.each<[string, typeof UNREACHABLE | typeof FAILING | typeof NOT_JSON, Spoil]>([
  ['closed before the headers', UNREACHABLE, (response) => response.socket?.destroy()],
  ['reset before the headers', UNREACHABLE, (response) => response.socket?.resetAndDestroy()],
  [
    'reset after the headers',
    UNREACHABLE,
    (response) => {
      response.writeHead(200, JSON_TYPE).flushHeaders()
      setImmediate(() => response.socket?.resetAndDestroy())
    },
  ],
  ['reset in the middle of the body', UNREACHABLE, (response) => breakOff(response, 'resetAndDestroy')],
  ['closed in the middle of a chunked body', UNREACHABLE, (response) => breakOff(response, 'end')],
  ['too short', UNREACHABLE, (response) => breakOff(response, 'end', {'content-length': '500'})],
  ['no HTTP', UNREACHABLE, (response) => response.socket?.end('hello\r\n\r\n')],
  ['a 500', FAILING, failWith(500)],
  ['a 408', FAILING, failWith(408)],
  ['a 425', FAILING, failWith(425)],
  ['a 304', FAILING, (response) => response.writeHead(304).end()],
  [
    'HTML',
    NOT_JSON,
    (response) => {
      const headers = {'content-type': 'text/html; charset=utf-8'}
      response.writeHead(200, headers).end('<html>Jane Roe, sk_live_abc</html>')
    },
  ],
  ['half of a JSON text', NOT_JSON, (response) => response.writeHead(200, JSON_TYPE).end(HALF)],
  ['empty', NOT_JSON, (response) => response.writeHead(200).end()],
])(
  'retries an answer that is %s after growing pauses, and ends in an error that does not quote it',
  async (_, [code, words], spoil) => {
    let spoilt = 2
    await using server = await startTestServer(
      (_request, response, turn) => void (turn < spoilt ? spoil(response) : sendJson(response, {turn})),
    )
    expect(await ask(server)).toMatchObject({status: 200, body: {turn: 2}})
    expect(server.requests).toHaveLength(3)
    spoilt = 99
    const world = createTestWorld()
    const error = await failureOf(ask(server, {retries: 2}, world))
    expect(world.realClock.sleeps.filter((ms) => ms >= 100)).toEqual([250, 500])
    expect(error).toMatchObject({code, exitCode: 6, message: expect.stringMatching(words)})
    expect(error.message).not.toMatch(/Jane|sk_live|deal_1|secret/)
    expect(server.requests).toHaveLength(6)
  },
)

// undici rounds its timeouts to half seconds.
test.each<[string, number, Spoil]>([
  ['UND_ERR_HEADERS_TIMEOUT, Headers Timeout Error', 0.2, () => undefined],
  ['UND_ERR_BODY_TIMEOUT', 0.2, (response) => response.writeHead(200, JSON_TYPE).write(HALF)],
  [
    'not complete in time',
    0.025,
    (response) => {
      const dripping = setInterval(() => response.write(' '), 5)
      response.on('close', () => clearInterval(dripping))
    },
  ],
])(
  'gives up an answer that never comes or never ends, and says why: %s',
  async (words, requestTimeoutSeconds, spoil) => {
    await using server = await startTestServer((_request, response) => void spoil(response))
    const error = await failureOf(ask(server, {requestTimeoutSeconds, retries: 0}))
    expect(error).toMatchObject({code: 'SOURCE_UNREACHABLE', exitCode: 6})
    expect(error.message).toContain(words)
  },
)

/** Returns the error that one such answer causes without a retry. */
async function refusalOf(answer: Spoil, changes: Partial<ClientConfig> = {}) {
  await using server = await startTestServer((_request, response) => void answer(response))
  const error = await failureOf(ask(server, changes))
  expect(server.requests).toHaveLength(1)
  return error
}

test.each([400, 404, 410, 422])('hands a %d to the caller', async (status) => {
  await using server = await startTestServer((_request, response, turn) => {
    if (turn === 0) sendJson(response, {code: 'nope'}, {status})
    else response.writeHead(status).end('<p>')
  })
  expect(await ask(server)).toMatchObject({status, body: {code: 'nope'}})
  expect(await ask(server)).toMatchObject({status, body: null})
  expect(server.requests).toHaveLength(2)
})

test.each([301, 302, 303, 307, 308])('a %d never takes the key to another origin', async (status) => {
  await using other = await startTestServer((_request, response) => sendJson(response, {}))
  const location = `${other.url}/deals?token=hidden`
  const error = await refusalOf((response) => response.writeHead(status, {location}).end())
  expect(error).toMatchObject({code: 'SOURCE_REDIRECTED', exitCode: 7})
  expect(error.message).toContain(`'${new URL(other.url).origin}'`)
  expect(error.message).not.toContain('hidden')
  expect(other.requests).toHaveLength(0)
})

test('refuses an answer that is too large while it arrives', async () => {
  let sent = 0
  const chunk = Buffer.alloc(65_536, ' ')
  const send = (response: ServerResponse): void => {
    sent += 1
    if (!response.destroyed) response.write(chunk, () => setImmediate(send, response))
  }
  const error = await refusalOf(send, {maxAnswerMb: 0.5})
  expect(error).toMatchObject({code: 'SOURCE_TOO_LARGE', exitCode: 7})
  expect(error.message).toMatch(/GET \/deals: more than 0.5 MiB.*LOANTAPE_PAGE_SIZE/)
  expect(sent).toBeLessThan(200)
})

test.each([
  ['numbers', '1,'],
  ['nested arrays', '[[]],'],
])('refuses millions of %s before they are parsed', async (_, value) => {
  const error = await refusalOf((response) =>
    response.writeHead(200, JSON_TYPE).end(`{"data":[${value.repeat(1_100_000)}0]}`),
  )
  expect(error).toMatchObject({code: 'SOURCE_TOO_LARGE', exitCode: 7})
})

test('refuses bytes that are not UTF-8, and judges an error by its status whatever its bytes', async () => {
  const body = Buffer.from('{"data":"\xff"}', 'latin1')
  const error = await refusalOf((response) => response.writeHead(200, JSON_TYPE).end(body))
  expect(error).toMatchObject({code: 'SOURCE_NOT_UTF8', exitCode: 7})
  expect(error.message).toMatch(/GET \/deals: its bytes are not UTF-8/)
  const failing = refusalOf((response) => response.writeHead(500, JSON_TYPE).end(body), {retries: 0})
  expect(await failing).toMatchObject({code: 'SOURCE_FAILING'})
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
  const headers = {...JSON_TYPE, ...(coding && {'content-encoding': coding})}
  const error = await refusalOf((response) => response.writeHead(200, headers).end(body))
  expect(error).toMatchObject({code: 'SOURCE_COMPRESSED', exitCode: 7})
  expect(error.message).toMatch(/GET \/deals: it is compressed \(\w+\).*asked for 'identity'/)
})

test('reads a long text in many parts as it is, whatever it contains and claims about its coding', async () => {
  const data = ['{[,'.repeat(1_000_000), '\\"[,', '\\', 'ü🏠']
  const whole = Buffer.from(JSON.stringify({data}))
  await using server = await startTestServer((_request, response) => {
    response.writeHead(200, {'content-type': 'application/json', 'content-encoding': 'gzip'})
    for (let at = 0; at < whole.length; at += 20_011) response.write(whole.subarray(at, at + 20_011))
    response.end()
  })
  const {body, received} = await ask(server)
  expect(body).toEqual({data})
  expect(received.body.equals(whole)).toBe(true)
})

test('sends key, version and the queries of base URL, path and call under the prefix, escaped', async () => {
  await using server = await startTestServer((_request, response) => sendJson(response, {}))
  await using client = createClient(aClientConfig({baseUrl: `${server.url}/?tenant=7`}), createTestWorld())
  const given = {limit: 100, status: 'funded & closed'}
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

test.each([
  ['before its answer', () => undefined],
  ['amid its body', (response: ServerResponse) => response.write('{"data": [')],
])('an abort cancels a request %s', async (_, begin) => {
  const closed = createGate()
  const world = createTestWorld()
  await using server = await startTestServer((_request, response) => {
    response.on('close', closed.open)
    begin(response)
    if (!response.headersSent) world.abort()
  })
  subscribe('undici:request:bodyChunkReceived', world.abort)
  const error = await failureOf(ask(server, {}, world))
  unsubscribe('undici:request:bodyChunkReceived', world.abort)
  expect(error).toMatchObject({code: 'INTERRUPTED', exitCode: 6})
  expect(error.message).toContain('The next run continues')
  await closed.opened
})

test('a client certificate that cannot be used is refused before anything is asked', async () => {
  using data = createFolder()
  const file = join(data.folder.root, 'client.pem')
  const createWithCertificate = () =>
    createClient(aClientConfig({baseUrl: 'https://x.test', clientCertFile: file}), createTestWorld())
  const expected = {
    code: 'CONFIG_INVALID',
    message: expect.stringContaining(`'${file}' in LOANTAPE_CLIENT_CERT_FILE cannot be used`),
  }
  expect(createWithCertificate).toThrow(expect.objectContaining(expected))
  const key = generateKeyPairSync('ec', {namedCurve: 'P-256'}).privateKey
  for (const text of ['', 'no PEM', key.export({type: 'pkcs8', format: 'pem'})]) {
    writeFileSync(file, text)
    expect(createWithCertificate, String(text)).toThrow(expect.objectContaining(expected))
  }
})

test('a source is asked through the proxy that the environment names, unless it is on this machine', async () => {
  await using server = await startTestServer((_request, response) => sendJson(response, {data: []}))
  const asked: string[] = []
  let status = '200 OK'
  using proxy = await startProxy(server.url, (name) => {
    asked.push(name)
    return status
  })
  onTestFinished(() => void vi.unstubAllEnvs())
  vi.stubEnv('HTTP_PROXY', proxy.url)
  vi.stubEnv('NO_PROXY', '')
  const there = {baseUrl: 'http://deals.company.test/v1', retries: 0}
  expect((await ask(server, there)).status).toBe(200)
  expect(asked).toEqual(['deals.company.test:80'])
  expect((await ask(server)).status).toBe(200)
  expect([asked.length, server.requests.length]).toEqual([1, 2])
  status = '407 Proxy Authentication Required'
  await expect(ask(server, there)).rejects.toMatchObject({
    code: 'SOURCE_UNREACHABLE',
    message: expect.stringContaining("the proxy's 407"),
  })
  proxy[Symbol.dispose]()
  await expect(ask(server, there)).rejects.toMatchObject({
    message: expect.stringContaining(`'ECONNREFUSED ${new URL(proxy.url).host}'`),
  })
  vi.stubEnv('HTTP_PROXY', 'proxy.company.test:3128')
  await expect(ask(server, there)).rejects.toMatchObject({code: 'CONFIG_INVALID'})
})

test('an abort ends the wait for a connection that never comes', async () => {
  await using pool = Object.assign(new Pool('http://127.0.0.1:9', {connect: () => undefined}), {
    [Symbol.asyncDispose]: () => pool.destroy(),
  })
  const stop = new AbortController()
  const request = {origin: 'http://127.0.0.1:9', path: '/deals', method: 'GET' as const}
  const receiving = () => receive(pool, request, {signal: stop.signal, timeoutMs: 60_000})
  const waiting = receiving()
  stop.abort(new Error('asked to stop'))
  await expect(waiting).rejects.toThrow('asked to stop')
  await expect(receiving()).rejects.toThrow('asked to stop')
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

const describe = (auth: object) =>
  parseDescription(
    JSON.stringify({auth, paging: {by: 'nothing'}, deals: {list: '/d', records: 'data'}}),
    'source.json',
  )

test.each([
  [{by: 'bearer'}, {authorization: `Bearer ${TEST_KEY}`}, ''],
  [{by: 'basic', user: 'ann'}, {authorization: `Basic ${btoa(`ann:${TEST_KEY}`)}`}, ''],
  [{by: 'header', name: 'X-Key'}, {'x-key': TEST_KEY}, ''],
  [{by: 'query', name: 'code'}, {}, TEST_KEY],
])('a source gets the key by %j and in no other way', async (auth, headers, code) => {
  await using server = await startTestServer((_request, response) => sendJson(response, {data: []}))
  expect(await ask(server, {description: describe(auth)})).toMatchObject({body: {data: [], has_more: false}})
  const [request] = server.requests
  expect(request?.headers).toMatchObject(headers)
  expect(request?.query.get('code') ?? '').toBe(code)
  expect(JSON.stringify([request?.headers, ...(request?.query ?? [])]).split(TEST_KEY).length).toBeLessThan(3)
})

test('a token server that is busy or says nothing of use is asked again, and gets the second secret once it, or the source, refuses the first', async () => {
  const faults = [
    {status: 503, headers: {'retry-after': '7'}},
    {status: 429},
    {status: 200, body: '<html>'},
    {status: 404},
  ]
  const tokens = new Map([
    ['old', {access_token: 'old'}],
    ['new?', {access_token: 'new', expires_in: {toString: 1}}],
  ])
  const secretOf = (authorization = '') => decodeURIComponent(atob(authorization.slice(6)).slice(3))
  await using server = await startTestServer(async ({path, headers, incoming}, response) => {
    if (path === '/v1/d')
      return sendJson(
        response,
        {data: [{id: 1}]},
        {status: headers.authorization === 'Bearer new' ? 200 : 401},
      )
    expect(await text(incoming)).toBe('grant_type=client_credentials')
    const fault = faults.shift()
    if (fault) return void response.writeHead(fault.status, fault.headers).end(fault.body)
    const token = tokens.get(secretOf(headers.authorization))
    sendJson(response, token ?? {error: 'invalid_client', toString: 1}, {status: token ? 200 : 400})
  })
  const world = createTestWorld()
  const askWith = (apiKey: string, nextApiKey?: string, tokenUrl = `${server.url}/token`) => {
    const description = describe({by: 'oauth2', clientId: 'me', tokenUrl})
    return ask(server, {description, apiKey, nextApiKey, retries: 4}, world)
  }
  const answer = {body: {data: [{id: '1'}]}}
  expect(await askWith('unknown', 'new?')).toMatchObject(answer)
  expect(world.realClock.sleeps).toContain(7000)
  const before = server.requests.length
  expect(await askWith('old', 'new?')).toMatchObject(answer)
  // Two tokens for the first secret are refused.
  expect(server.requests.length - before).toBe(6)
  for (const [apiKey, nextApiKey] of [['unknown'], ['old'], ['unknown', 'old']] as [string, string?][])
    expect(await failureOf(askWith(apiKey, nextApiKey))).toMatchObject({
      code: 'SOURCE_UNAUTHORIZED',
      exitCode: 5,
    })
  faults.push({status: 302})
  expect(await failureOf(askWith('new?'))).toMatchObject({
    code: 'SOURCE_REDIRECTED',
    message: expect.stringContaining('tokenUrl'),
  })
  expect(await failureOf(askWith('new?', undefined, 'http://127.0.0.1:1/token'))).toMatchObject({
    code: 'SOURCE_UNREACHABLE',
    message: expect.stringContaining("'ECONNREFUSED of the token server '127.0.0.1:1''"),
  })
})

test.each([
  ['as it is', 'Zm9v/c2V+jcmV0=='],
  ['in escapes of a URL', 'Zm9v%2Fc2V%2BjcmV0%3D%3D'],
  ['in lower-case ones', 'Zm9v%2fc2V%2bjcmV0%3d%3d'],
  ['in some of them', 'Zm9v/c2V+jcmV0%3d='],
  ['in escapes of JSON', String.raw`Zm9v\/c2V\u002bjcmV0\u003D=`],
])('an answer that repeats the key %s is not kept as it came', async (_, told) => {
  const description = describe({by: 'query', name: 'code'})
  await using server = await startTestServer((_request, response, turn) => {
    response.end(`{"data": [], "asked": "/d?code=${turn === 0 ? told : told.replace('9', '8')}"}`)
  })
  const config = aClientConfig({baseUrl: server.url, apiKey: 'Zm9v/c2V+jcmV0==', description})
  await using client = createClient(config, createTestWorld())
  const kept = [await client.getJson('/deals'), await client.getJson('/deals')]
  expect(kept.map(({received}) => received.original?.body !== undefined)).toEqual([false, true])
})

test('jitter stays below a bound that doubles up to half a minute', () => {
  expect(backoffMs(5, () => 0)).toBe(0)
  expect([0, 1, 5, 6, 200].map((n) => backoffMs(n, () => 0.9999))).toEqual([499, 999, 15_998, 29_997, 29_997])
})
