import {fork} from 'node:child_process'
import {once} from 'node:events'
import {createServer} from 'node:http'
import type {AddressInfo} from 'node:net'
import {availableParallelism} from 'node:os'
import {join} from 'node:path'
import {parseArgs} from 'node:util'
import {Pool} from 'undici'
import {z} from 'zod'
import {realClock} from '../../src/core/clock.ts'
import {type RunningService, startService} from '../../src/service/server.ts'
import {makeFolder, middleOf} from './set-up.ts'

const API_KEY = 'sk_test_bench'
const headers = {authorization: `Bearer ${API_KEY}`, 'content-type': 'application/json'}
const SIZES = ['10000', '1000000']
const BACKLOG = '100000'
/** Pages per turn. The servers take turns, and the fastest turn counts; the first turns only warm them up. */
const PAGES = 100
const [WARM_UPS, TURNS] = [40, 60]
const CHANGES = 100

const urls = z.object({list: z.string(), text: z.string(), object: z.string()})
const started = z.object({urls, startMs: z.number()})

/**
 * Benchmarks the local service: its start, its list compared with a bare fastify, its report, and changes while notifications
 * wait. `--deals` and `--backlog` set other sizes.
 */
export async function benchService(): Promise<void> {
  const {values} = parseArgs({
    args: process.argv.slice(3),
    options: {
      deals: {type: 'string', multiple: true, default: SIZES},
      backlog: {type: 'string', default: BACKLOG},
    },
  })
  const sizes: Awaited<ReturnType<typeof measureSize>>[] = []
  for (const deals of values.deals) {
    process.stderr.write(`${deals} deals …\n`)
    sizes.push(await measureSize(Number(deals)))
  }
  process.stderr.write(`${values.backlog} notifications …\n`)
  process.stdout.write(renderSection(sizes, await measureOutbox(Number(values.backlog))))
}

async function measureSize(deals: number) {
  const script = join(import.meta.dirname, 'service-server.ts')
  const server = fork(script, [String(deals), API_KEY])
  try {
    const [message] = await once(server, 'message')
    const {urls, startMs} = started.parse(message)
    const rates = await measurePages(urls)
    const reportMs = await middleOf(
      20,
      async () => (await fetch(`${urls.list}/reports/portfolio`, {headers})).text(),
      5,
    )
    return {deals, startMs, reportMs, ...rates}
  } finally {
    server.kill()
  }
}

/** Measures pages per second of each list; a list that ends is read again from its start. */
async function measurePages({list, text, object}: z.output<typeof urls>) {
  const rates = {list: 0, text: 0, object: 0}
  const readers = [openList('list', list), openList('text', text), openList('object', object)] as const
  for (let turn = -WARM_UPS; turn < TURNS; turn += 1)
    for (const {name, readPage} of readers) {
      const startedAt = performance.now()
      for (let page = 0; page < PAGES; page += 1) await readPage()
      const rate = (PAGES * 1000) / (performance.now() - startedAt)
      if (turn >= 0) rates[name] = Math.max(rates[name], rate)
    }
  await Promise.all(readers.map(({pool}) => pool.close()))
  return rates
}

function openList(name: 'list' | 'text' | 'object', url: string) {
  const pool = new Pool(new URL(url).origin, {connections: 1})
  let cursor: string | undefined
  async function readPage(): Promise<void> {
    const path = `/v1/deals?limit=100${cursor ? `&cursor=${cursor}` : ''}`
    const {body} = await pool.request({method: 'GET', path, headers})
    cursor = /"next_cursor":"([\w-]+)"/.exec((await body.text()).slice(-400))?.[1]
  }
  return {name, pool, readPage}
}

/** Measures how long a change takes while notifications wait for an endpoint that is down, and how fast a working endpoint gets them. */
async function measureOutbox(backlog: number) {
  using folder = makeFolder()
  await using service = await startService({
    apiKeys: [API_KEY],
    clock: realClock,
    dbPath: join(folder.path, 'service.db'),
    webhooks: {allowPrivate: true},
  })
  const send = async (method: string, path: string, body: object) => {
    const response = await fetch(service.url + path, {method, headers, body: JSON.stringify(body)})
    const {data} = z.object({data: z.object({id: z.string()})}).parse(await response.json())
    return data.id
  }
  const deal = await send('POST', '/deals', {property_address: '1 Main St', loan_amount: 1})
  let amount = 1
  const change = () => middleOf(CHANGES, () => send('PATCH', `/deals/${deal}`, {loan_amount: ++amount}), 10)
  const idleMs = await change()
  const dead = await send('POST', '/webhook-endpoints', {url: 'http://127.0.0.1:9/'})
  addBacklog(service, dead, backlog)
  const busyMs = await change()
  await send('PATCH', `/webhook-endpoints/${dead}`, {status: 'disabled'})
  return {backlog, idleMs, busyMs, perSecond: await drain(service, send, backlog)}
}

type Send = (method: string, path: string, body: object) => Promise<string>

/** Measures how many notifications of a backlog an endpoint gets per second. */
async function drain(service: RunningService, send: Send, backlog: number): Promise<number> {
  let received = 0
  const receiver = createServer((request, response) => {
    request.resume().on('end', () => response.end())
    received += 1
  })
  await once(receiver.listen(0, '127.0.0.1'), 'listening')
  const {port} = receiver.address() as AddressInfo
  const endpoint = await send('POST', '/webhook-endpoints', {url: `http://127.0.0.1:${port}/`})
  addBacklog(service, endpoint, backlog)
  const startedAt = performance.now()
  await realClock.sleep(5_000)
  const rate = (received * 1000) / (performance.now() - startedAt)
  receiver.close()
  receiver.closeAllConnections()
  return rate
}

/** Adds waiting notifications, as if this many changes had just been made. */
function addBacklog({database}: RunningService, endpoint_id: string, count: number): void {
  const now = realClock.now()
  database.transaction(() => {
    for (let number = 0; number < count; number += 1) {
      const event_id = `evt_${endpoint_id}_${number}`
      database.insert('event', {id: event_id, type: 'deal.updated', payload: '{}', created_at: now})
      const row = {id: `dlv_${endpoint_id}_${number}`, endpoint_id, event_id, status: 'pending', attempts: 0}
      database.insert('webhook_delivery', {...row, next_attempt_at: now, created_at: now})
    }
  })
}

function renderSection(
  sizes: readonly Awaited<ReturnType<typeof measureSize>>[],
  {backlog, idleMs, busyMs, perSecond}: Awaited<ReturnType<typeof measureOutbox>>,
): string {
  const rows = sizes.map(({deals, startMs, list, text, object, reportMs}) =>
    [
      deals.toLocaleString('en'),
      (startMs / 1000).toFixed(1),
      list.toFixed(0),
      (list / text).toFixed(2),
      (list / object).toFixed(2),
      reportMs.toFixed(1),
    ].join(' | '),
  )
  return `## The local service

\`npm run bench service\`, ${availableParallelism()} cores. *list* is pages of 100 a second; *text* and *object* a bare fastify that sends one such page
again and again, as a text it has, or as an object by \`JSON.stringify\`.

| deals | start (s) | list | list / text | list / object | report (ms) |
|---|---|---|---|---|---|
${rows.map((row) => `| ${row} |`).join('\n')}

A change takes ${idleMs.toFixed(1)} ms, and ${busyMs.toFixed(1)} ms while ${backlog.toLocaleString('en')} notifications wait for an endpoint that is down; one that answers gets ${perSecond.toFixed(0)} a second.

`
}
