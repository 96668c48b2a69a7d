import {afterEach, beforeEach, expect, test} from 'vitest'
import {openLedger} from '../../src/ledger/ledger.ts'
import {listWaitingEvents, storeEvent} from '../../src/ledger/webhook-events.ts'
import {applyEvents} from '../../src/pipeline/events.ts'
import {buildPortfolio} from '../../src/pipeline.ts'
import {createLab, type Lab, someDeals} from '../support/lab.ts'

let lab: Lab
const NOON = '2026-06-02T16:00:00Z'

beforeEach(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(5))
  await lab.walk('2026-06-01T16:00:00Z')
})

afterEach(() => lab[Symbol.asyncDispose]())

function receive(...dealIds: string[]): void {
  using ledger = openLedger(lab.folder.ledger)
  for (const dealId of dealIds) {
    storeEvent(ledger, {eventId: `evt_${dealId}`, type: 'deal.updated', dealId}, Date.now())
  }
}

function countWaiting(): number {
  using ledger = openLedger(lab.folder.ledger)
  return listWaitingEvents(ledger).length
}

const change = (id: string, fields: Parameters<typeof lab.service.store.update>[1]) =>
  lab.service.store.update(id, fields)

test('a deal an event names is looked at again; its version is appended at once and shown by the next release', async () => {
  const {release_id} = await buildPortfolio(lab.config, {}, lab.createWorld(NOON))
  change('deal_000002', {status: 'funded'})
  receive('deal_000002', 'deal_000003')
  expect(await applyEvents(lab.config, lab.createWorld(NOON))).toEqual({
    outcome: 'applied',
    events: 2,
    deals: 2,
    appended: 1,
  })
  expect(
    await lab.queryHistory(
      `select deal_id, status, source, walk_id, cast(business_date as varchar) as day from deal_version where source = 'webhook'`,
    ),
  ).toEqual([{deal_id: 'deal_000002', status: 'funded', source: 'webhook', walk_id: null, day: '2026-06-02'}])
  expect(lab.currentReleaseId()).toBe(release_id)
  expect(countWaiting()).toBe(0)

  await buildPortfolio(lab.config, {}, lab.createWorld(NOON))
  expect(await lab.query(`select deal_id from core.deal where status = 'funded'`)).toEqual([
    {deal_id: 'deal_000002'},
  ])
})

test('what an event brought is no change to the next walk, which ties out', async () => {
  change('deal_000002', {loanAmountCents: 400_000_00n})
  change('deal_000004', {status: 'funded'})
  receive('deal_000002')
  await applyEvents(lab.config, lab.createWorld(NOON))
  const {changes} = await lab.walk('2026-06-02T17:00:00Z')
  expect(changes).toMatchObject({updated: 1, unchanged: 4})
})

test('a deal that is new is appended with all its fields', async () => {
  lab.service.store.insert([someDeals(6)[5]!])
  receive('deal_000006')
  expect(await applyEvents(lab.config, lab.createWorld(NOON))).toMatchObject({appended: 1})
  expect((await lab.walk('2026-06-02T17:00:00Z')).changes).toMatchObject({created: 0, unchanged: 6})
})

test('a deal that is gone is left to a walk, which proves it', async () => {
  lab.service.store.remove('deal_000005')
  receive('deal_000005')
  expect(await applyEvents(lab.config, lab.createWorld(NOON))).toMatchObject({outcome: 'walked'})
  expect(await lab.query('select count(*) as deals from core.deal')).toEqual([{deals: '4'}])
  expect(countWaiting()).toBe(0)
})

test('without details a walk is made', async () => {
  change('deal_000002', {status: 'funded'})
  receive('deal_000002')
  const config = {...lab.config, detail: 'off' as const}
  expect(await applyEvents(config, lab.createWorld(NOON))).toMatchObject({outcome: 'walked'})
  expect(await lab.query(`select count(*) as deals from core.deal where status = 'funded'`)).toEqual([
    {deals: '1'},
  ])
})

test('events wait for a source that is not there', async () => {
  receive('deal_000002')
  const config = {...lab.config, apiKey: 'sk_test_wrong', retries: 0}
  await expect(applyEvents(config, lab.createWorld(NOON))).rejects.toThrow()
  expect(countWaiting()).toBe(1)
})

test('without events nothing is done', async () => {
  expect(await applyEvents(lab.config, lab.createWorld(NOON))).toMatchObject({outcome: 'unchanged'})
})
