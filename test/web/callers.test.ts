import {Agent, type IncomingMessage, request} from 'node:http'
import {connect, type Socket} from 'node:net'
import {text as read} from 'node:stream/consumers'
import {gzipSync} from 'node:zlib'
import {expect, test} from 'vitest'
import {z} from 'zod'
import {type RealClock, realClock} from '../../src/core/clock.ts'
import {LONGEST_ANSWER_MS} from '../../src/web/http-server.ts'
import {createTurns} from '../../src/web/turns.ts'
import {createGate} from '../source/test-server.ts'
import {FEW_TABLES} from '../support/data.ts'
import {failureOf, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {until} from '../support/until.ts'
import {signEvent} from '../support/webhooks.ts'
import {serveLab} from './side.ts'

const SECRET = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
const ROWS_WITHOUT_END = `q=${encodeURIComponent('select range from range(1e12::bigint)')}`
const ENDLESS = `q=${encodeURIComponent('select sleep_ms(1000000000) is null')}`
/** Loopback addresses: each is a separate caller to the server. */
const [ANN, BOB] = ['127.0.0.2', '127.0.0.3']

/** How far ahead the server's clock is, in ms. */
let ahead = 0
/** Opened when an answer is to have taken an hour. */
let hour = createGate()
const warned: unknown[] = []

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(3), releasedAt: '2026-06-01T16:00:00Z'})
const sleep: RealClock['sleep'] = (ms, signal) =>
  ms === LONGEST_ANSWER_MS ? hour.opened : realClock.sleep(ms, signal)
const world = {...lab.createWorld(), realClock: {now: () => Date.now() + ahead, sleep}}
const warn = (...said: unknown[]) => void warned.push(said[0])
world.log = {...world.log, warn}
const side = await serveLab(lab, {webhookSecret: SECRET, world})
const HALF_A_REQUEST = 'GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: '
const HALF_A_BODY = 'POST /webhooks/deals HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000\r\n\r\n{'
/** Requests to a separate server that have been arriving byte by byte since before the first test. */
const dripped = await serveLab(lab)
const dripping = [HALF_A_REQUEST, HALF_A_BODY].map((sent) => {
  const socket = connect({port: Number(new URL(dripped.url).port), host: '127.0.0.1'}).resume()
  const drops = setInterval(() => socket.write('x'), 100)
  socket.on('error', () => undefined).once('close', () => clearInterval(drops))
  socket.write(sent)
  return socket
})

interface Asked {
  answer: Promise<IncomingMessage>
  hangUp(): void
}

function get(path: string, from: string = ANN, method = 'GET'): Asked {
  const sent = request(side.url + path, {method, localAddress: from, agent: new Agent({maxSockets: 1})})
  const answer = new Promise<IncomingMessage>((resolve, reject) =>
    sent.once('response', resolve).once('error', reject),
  )
  answer.catch(() => undefined)
  sent.end()
  return {answer, hangUp: () => sent.destroy()}
}

const readOnceFree = (path: string) =>
  until(async () => {
    const one = await get(path).answer
    return one.statusCode === 200 ? read(one) : undefined
  })

test('each address gets its turn, however much another asks, and no more wait than allowed', async () => {
  const takeTurn = createTurns({running: 1, waiting: 5, each: 4})
  const {opened, open} = createGate()
  const begun: string[] = []
  const go = (name: string, signal = new AbortController().signal) =>
    takeTurn(name.slice(0, 1), signal, async () => {
      begun.push(name)
      await opened
    })
  const gone = new AbortController()
  const all = [go('a1'), go('a2'), failureOf(go('a3', gone.signal)), go('a4'), go('b1')]
  expect(await failureOf(go('a5'))).toMatchObject({code: 'WEB_BUSY', exitCode: 6})
  all.push(go('b2'))
  expect(await failureOf(go('c1'))).toMatchObject({code: 'WEB_BUSY'})
  // A waiting caller that hangs up makes room at once.
  gone.abort()
  await all[2]
  all.push(go('c2'))
  open()
  await Promise.all(all)
  expect(begun).toEqual(['a1', 'b1', 'c2', 'a2', 'b2', 'a4'])
})

test.each(['/sql', '/data/query.csv'])(
  'an address may ask four questions of %s at once; others and probes are answered meanwhile, and hanging up frees its places',
  async (path) => {
    const five = Array.from({length: 5}, () => get(`${path}?${ENDLESS}`))
    let answered = 0
    const counted = five.map(({answer}) => answer.finally(() => (answered += 1)))
    // One was refused, so the other four have arrived.
    const refused = await Promise.any(counted)
    expect([refused.statusCode, refused.headers['retry-after']]).toEqual([503, '10'])
    expect(await read(refused)).toMatch(/at this moment/)
    expect((await get('/healthz').answer).statusCode).toBe(200)
    expect((await get('/tables', BOB).answer).statusCode).toBe(200)
    const beside = await get(`${path}?q=select+40%2B2`, BOB).answer
    expect([beside.statusCode, await read(beside)]).toEqual([200, expect.stringContaining('42')])
    expect(answered).toBe(1)
    for (const {hangUp} of five) hangUp()
    // The next query is answered long before those four would have ended by themselves.
    expect(await readOnceFree(`${path}?q=select+40%2B2`)).toContain('42')
  },
)

test('what HEAD asks for ends with its answer and keeps no place', async () => {
  const heads = Array.from({length: 4}, () => get(`/data/query.csv?${ROWS_WITHOUT_END}`, ANN, 'HEAD').answer)
  for (const {statusCode} of await Promise.all(heads)) expect(statusCode).toBe(200)
  expect(await readOnceFree('/data/query.csv?q=select+40%2B2')).toContain('42')
})

test('downloads read without end delay nobody else, and lose their places after an hour', async () => {
  const rows = encodeURIComponent('select range, repeat(chr(120), 1000) as x from range(20000)')
  const slow = [ANN, ANN, ANN, ANN, BOB].map((from) => get(`/data/query.csv?q=${rows}`, from).answer)
  for (const {statusCode} of await Promise.all(slow)) expect(statusCode).toBe(200)
  const ask = (from: string) => get('/data/query.csv?q=select+40%2B2', from).answer
  expect(await read(await ask(BOB))).toContain('42')
  expect((await ask(ANN)).statusCode).toBe(503)
  const {open} = hour
  hour = createGate()
  open()
  await expect(read(await slow[0]!)).rejects.toThrow('aborted')
  expect(await readOnceFree('/data/query.csv?q=select+40%2B2')).toContain('42')
})

const EVENT = JSON.stringify({type: 'deal.updated', data: {id: 'deal_000001'}})

test('250 connections that send half a body silence neither probes nor webhooks, and the oldest of whoever has most are closed, but for what is being answered', async () => {
  const download = get(`/data/query.csv?${ROWS_WITHOUT_END}`, ANN)
  const rows = (await download.answer).resume()
  const port = Number(new URL(side.url).port)
  const sockets: Socket[] = []
  for (let index = 0; index < 250; index += 1) {
    const socket = connect({port, host: '127.0.0.1', localAddress: index === 190 ? BOB : ANN})
    socket.on('error', () => undefined)
    await new Promise((resolve) => socket.once('connect', resolve))
    socket.write(HALF_A_BODY)
    sockets.push(socket.resume())
  }
  expect((await get('/healthz', BOB).answer).statusCode).toBe(200)
  expect((await get('/healthz', ANN).answer).statusCode).toBe(200)
  const answer = await fetch(`${side.url}/webhooks/deals`, {
    method: 'POST',
    body: EVENT,
    headers: signEvent(SECRET, 'evt_1', EVENT),
  })
  expect(answer.status).toBe(202)
  await until(() => sockets[0]?.closed)
  expect([sockets[190]?.closed, rows.destroyed]).toEqual([false, false])
  for (const socket of sockets) socket.destroy()
  download.hangUp()
})

test('a flood of unsigned webhooks stores nothing and fills no log, and replays of a signed one store it once', async () => {
  const send = (headers: Record<string, string>, body: string | Uint8Array<ArrayBuffer> = '{}') =>
    fetch(`${side.url}/webhooks/deals`, {method: 'POST', body, headers}).then(({status}) => status)
  const count = () =>
    side.stateDb.all(z.object({n: z.number()}), 'select count(*) as n from webhook_event')[0]?.n
  const before = count()
  warned.length = 0
  for (let index = 0; index < 50; index += 1) expect(await send({})).toBe(401)
  expect([count(), warned]).toEqual([before, [{code: 'WEBHOOK_REFUSED', count: 1}]])
  ahead = 60_000
  expect(await send({})).toBe(401)
  expect(warned.at(-1)).toEqual({code: 'WEBHOOK_REFUSED', count: 50})
  ahead = 0
  const signed = signEvent(SECRET, 'evt_replayed', EVENT)
  const replays = await Promise.all(Array.from({length: 50}, () => send(signed, EVENT)))
  expect(replays.filter((status) => status === 202)).toHaveLength(1)
  expect(new Set(replays)).toEqual(new Set([200, 202]))
  expect(await send({...signed, 'webhook-id': 'evt_other'}, EVENT)).toBe(401)
  expect(await send({...signed, 'content-encoding': 'gzip'}, new Uint8Array(gzipSync(EVENT)))).toBe(401)
  expect(count()).toBe((before ?? 0) + 1)
})

test('behind a trusted proxy each caller has its own places, and a forwarded host name is not trusted', async () => {
  await using behind = await serveLab(lab, {webProxy: '127.0.0.0/8'})
  const gone = new AbortController()
  const ask = (caller: string, question: string) =>
    fetch(`${behind.url}/data/query.csv?${question}`, {
      headers: {'x-forwarded-for': caller},
      signal: gone.signal,
    })
  const statusOf = (caller: string) => ask(caller, 'q=select+40%2B2').then(({status}) => status)
  // The first answer of five is the refusal: the other four have arrived.
  const fillPlacesOf = (callers: string[]) => Promise.any(callers.map((caller) => ask(caller, ENDLESS)))
  expect((await fillPlacesOf(Array(5).fill('192.0.2.1'))).status).toBe(503)
  expect(await statusOf('192.0.2.1')).toBe(503)
  expect(await statusOf('192.0.2.2')).toBe(200)
  const network = [1, 2, 3, 4, 5].map((host) => `2001:db8:0:7::${host}`)
  expect((await fillPlacesOf(network)).status).toBe(503)
  expect(await statusOf('2001:db8:0:7:ffff:1:2:3')).toBe(503)
  gone.abort()
  const {port} = new URL(behind.url)
  const host = await new Promise<IncomingMessage>((resolve) =>
    request(
      {port, host: '127.0.0.1', headers: {host: 'evil.example', 'x-forwarded-host': 'localhost'}},
      resolve,
    ).end(),
  )
  expect(host.statusCode).toBe(403)
})

test('a request whose headers or body arrive drop by drop is dropped', async () => {
  await until(() => dripping.every(({closed}) => closed))
})
