import {expect, test} from 'vitest'
import {z} from 'zod'
import {parseConfig} from '../../src/core/config.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {openHistory} from '../../src/store/warehouse.ts'
import {createQuickWorld, Stopped} from '../proof/quick-world.ts'
import {startTestServer} from '../source/test-server.ts'
import {createFolder} from '../support/data.ts'

const DEALS = 2_100
const PAGE_SIZE = 100
const NOTE_LENGTH = 30_000

function renderDeal(number: number): string {
  const note = `${number}`.padEnd(NOTE_LENGTH, ` ${number}`)
  return `{"id":"deal_${number}","property_address":"${number} Main St, Austin, TX 78701","loan_amount":100.10,"status":"funded","created_at":"2026-01-10T12:00:00Z","notes":"${note}"}`
}

test('records of 30 KB are loaded, even by a run that has not read them itself', async () => {
  await using server = await startTestServer(({query}, response) => {
    const start = Number(query.get('cursor') ?? 0)
    const end = Math.min(start + PAGE_SIZE, DEALS)
    const rows = Array.from({length: end - start}, (_, index) => renderDeal(start + index))
    const position = end < DEALS ? `"has_more":true,"next_cursor":"${end}"` : '"has_more":false'
    response.writeHead(200, {'content-type': 'application/json'}).end(`{"data":[${rows}],${position}}`)
  })
  using data = createFolder()
  const env = {
    LOANTAPE_BASE_URL: server.url,
    LOANTAPE_API_KEY: 'sk_test_wide',
    LOANTAPE_DATA_DIR: data.folder.root,
    LOANTAPE_RATE_PER_SECOND: '5000',
    LOANTAPE_DETAIL: 'off',
  }
  const config = parseConfig(env, {readFile: () => ''})
  const now = '2026-02-02T23:30:00-05:00'
  for (const stopAt of ['walk certified', 'changes applied'] as const) {
    await expect(syncDeals(config, {}, createQuickWorld({now, stopAt}))).rejects.toThrow(Stopped)
  }
  expect(server.requests).toHaveLength(DEALS / PAGE_SIZE)

  await using db = await openHistory(data.folder)
  const kept = await db.one(
    z.object({records: z.string(), named: z.string()}),
    `select count(*) as records, (select any_value(records) from history.raw.drift where path = 'notes') as named
     from history.raw.deal_version`,
  )
  expect(kept).toEqual({records: `${DEALS}`, named: `${DEALS}`})
})
