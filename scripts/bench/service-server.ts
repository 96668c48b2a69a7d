import {fastify} from 'fastify'
import {realClock} from '../../src/core/clock.ts'
import {seedPortfolio} from '../../src/service/portfolio.ts'
import {startService} from '../../src/service/server.ts'

/** Starts the local service with a portfolio, and two bare servers that always send its first page: one as text, one as an object. */
const [, , deals = '10000', apiKey = ''] = process.argv
const startedAt = performance.now()
const service = await startService({apiKeys: [apiKey], clock: realClock})
seedPortfolio(service.store, {deals: Number(deals), seed: 1, today: '2026-03-02'})
const startMs = performance.now() - startedAt
const page = await fetch(`${service.url}/deals?limit=100`, {headers: {authorization: `Bearer ${apiKey}`}})
const body = await page.text()
const urls = {list: service.url, text: await serveBare(body), object: await serveBare(JSON.parse(body))}
process.send?.({urls, startMs})
process.on('disconnect', () => process.exit(0))

async function serveBare(page: unknown): Promise<string> {
  const bare = fastify()
  bare.get('/v1/deals', (_request, reply) => reply.type('application/json; charset=utf-8').send(page))
  return `${await bare.listen({host: '127.0.0.1', port: 0})}/v1`
}
