import {subscribe, unsubscribe} from 'node:diagnostics_channel'
import {once} from 'node:events'
import {createServer, type ServerResponse} from 'node:http'
import type {AddressInfo} from 'node:net'
import {Pool} from 'undici'
import {expect, test} from 'vitest'
import {receive} from '../../src/source/client.ts'

const LONG = 60_000
const request = {path: '/deals', headers: {accept: 'application/json'}}

/** A server on loopback and a connection pool to it. */
async function startServer(answer: (response: ServerResponse) => void) {
  const server = createServer((_, response) => answer(response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const pool = new Pool(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  return {
    pool,
    async [Symbol.asyncDispose]() {
      await pool.destroy()
      server.closeAllConnections()
      server.close()
    },
  }
}

test('an answer in many parts is received whole, byte for byte', async () => {
  const parts = Array.from({length: 200}, (_, index) => Buffer.alloc(1 + ((index * 7919) % 4000), index))
  await using server = await startServer((response) => {
    response.writeHead(200, {'x-request-id': 'r1'})
    for (const part of parts) response.write(part)
    response.end()
  })
  const answer = await receive(server.pool, request, {signal: new AbortController().signal, timeoutMs: LONG})
  expect(answer).toMatchObject({status: 200, headers: {'x-request-id': 'r1'}})
  expect(answer.body.equals(Buffer.concat(parts))).toBe(true)
})

test('an abort amid the body closes the connection and throws the reason', async () => {
  const closed = Promise.withResolvers<void>()
  const stop = new AbortController()
  await using server = await startServer((response) => {
    response.on('close', closed.resolve)
    response.write('{"data": [')
  })
  const abort = () => stop.abort(new Error('asked to stop'))
  subscribe('undici:request:bodyChunkReceived', abort)
  await expect(receive(server.pool, request, {signal: stop.signal, timeoutMs: LONG})).rejects.toThrow(
    'asked to stop',
  )
  unsubscribe('undici:request:bodyChunkReceived', abort)
  await closed.promise
})

test('a body that keeps dripping is given up after a while', async () => {
  await using server = await startServer((response) => {
    const drip = setInterval(() => response.write(' '), 10)
    response.on('close', () => clearInterval(drip))
  })
  await expect(
    receive(server.pool, request, {signal: new AbortController().signal, timeoutMs: 200}),
  ).rejects.toMatchObject({code: 'SOURCE_UNREACHABLE', problem: 'answer not complete in time'})
})

test('waiting for a connection that never comes ends at once on abort', async () => {
  await using pool = Object.assign(new Pool('http://127.0.0.1:9', {connect: () => undefined}), {
    [Symbol.asyncDispose]: () => pool.destroy(),
  })
  const stop = new AbortController()
  const waiting = receive(pool, request, {signal: stop.signal, timeoutMs: LONG})
  stop.abort(new Error('asked to stop'))
  await expect(waiting).rejects.toThrow('asked to stop')
  await expect(receive(pool, request, {signal: stop.signal, timeoutMs: LONG})).rejects.toThrow(
    'asked to stop',
  )
})
