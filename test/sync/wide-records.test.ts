import {expect, test} from 'vitest'
import {startTestServer} from '../source/test-server.ts'
import {createLab, failureOf} from '../support/lab.ts'
import {aRecord} from '../support/record.ts'
import {dyingAt} from '../support/set-up.ts'

const DEALS = 2_100
const PAGE_SIZE = 100

/** A deal of 30 KB. */
const renderDeal = (number: number) =>
  JSON.stringify(aRecord({id: `deal_${number}`, notes: `${number}`.padEnd(30_000, ` ${number}`)}))

test('records of 30 KB are loaded, even by a run that has not read them itself', async () => {
  await using server = await startTestServer(({query}, response) => {
    const start = Number(query.get('cursor') ?? 0)
    const end = Math.min(start + PAGE_SIZE, DEALS)
    const rows = Array.from({length: end - start}, (_, index) => renderDeal(start + index))
    const position = end < DEALS ? `"has_more":true,"next_cursor":"${end}"` : '"has_more":false'
    response.writeHead(200, {'content-type': 'application/json'}).end(`{"data":[${rows}],${position}}`)
  })
  await using lab = await createLab()
  const config = {baseUrl: server.url, detail: 'off'} as const
  const now = '2026-02-02T23:30:00-05:00'
  await failureOf(lab.walk(now, {config, world: dyingAt('walk certified')}))
  await lab.walk(now, {config})
  expect(server.requests).toHaveLength(DEALS / PAGE_SIZE)
  const versions = 'select count(*) as records from deal_version'
  expect(await lab.queryHistory(versions)).toEqual([{records: `${DEALS}`}])
  const drift = `select records from drift where path = 'notes'`
  expect(await lab.queryHistory(drift)).toEqual([{records: `${DEALS}`}])
})
