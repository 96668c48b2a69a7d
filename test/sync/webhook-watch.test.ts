import {beforeEach, expect, test} from 'vitest'
import {applyEvents} from '../../src/pipeline.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {findLastCoverage, settleEvents, storeEvent} from '../../src/sync/webhook-events.ts'
import {readJson} from '../cli/outcome.ts'
import {aDeal, type Lab, someDeals} from '../support/lab.ts'
import {changeRecords, linkBorrower, useLab} from '../support/set-up.ts'
import {receiveEvents} from '../support/webhooks.ts'

const LOANTAPE_WEBHOOK_SECRET = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
const config = {webhookSecret: LOANTAPE_WEBHOOK_SECRET, detail: 'off' as const}
const NOON = '2026-06-02T16:00:00Z'

const lab = await useLab({deals: someDeals(6)})
let day = 1
await walk()

beforeEach(lab.remember())
beforeEach(() => {
  day = 2
})

function walk(changes: Partial<Lab['config']> = config) {
  const now = `2026-06-${String(day).padStart(2, '0')}T17:00:00Z`
  day += 1
  return lab.walk(now, {config: changes})
}

const receive = (dealId: string) => receiveEvents(lab.folder, dealId)

function lastCoverage() {
  using stateDb = openStateDb(lab.folder.stateDb)
  return findLastCoverage(stateDb)
}

const fund = (id: string) => lab.service.store.update(id, {status: 'funded'})

test('a walk counts the changes no event announced; an event counts for the next walk alone', async () => {
  fund('deal_000001')
  receive('deal_000001')
  await applyEvents({...lab.config, ...config, detail: 'auto'}, lab.createWorld(NOON))
  fund('deal_000002')
  receive('deal_000002')
  const {certificate} = await walk()
  expect(lastCoverage()).toMatchObject({walk_id: certificate.walk_id, changes: 1, missed: 0})

  // One deal is new, one changed, one is missing; a fourth change was announced.
  lab.service.store.insert([aDeal(7)])
  fund('deal_000003')
  lab.service.store.remove('deal_000004')
  fund('deal_000005')
  receive('deal_000005')
  expect((await walk()).changes).toMatchObject({missing: 1})
  expect(lastCoverage()).toMatchObject({changes: 4, missed: 3})

  receive('deal_000006')
  receive('deal_999999')
  // Another spelling is no change, nor is an absence that is confirmed, nor what changes in the lists of deals.
  changeRecords(lab, '/deals?', (deals) => {
    for (const deal of deals) deal.status = String(deal.status).toUpperCase()
  })
  linkBorrower(lab, 'deal_000001')
  const third = await walk({...config, streams: 'deals,borrowers'})
  expect(third).toMatchObject({changes: {vanished: 1}, streams: [{changes: {created: 1}}]})
  lab.service.faults.clear()
  expect(lastCoverage()).toMatchObject({walk_id: third.certificate.walk_id, changes: 0, missed: 0})
  fund('deal_000006')
  const last = await walk()
  const counted = {walk_id: last.certificate.walk_id, changes: 1, missed: 1}
  expect(lastCoverage()).toMatchObject(counted)

  const env = {LOANTAPE_WEBHOOK_SECRET}
  expect(readJson(await lab.run(['status', '--json'], env)).webhooks).toMatchObject(counted)
  const words = `Webhooks: missed 1 of 1 change of walk ${counted.walk_id}.`
  expect((await lab.run(['status'], env)).stdout).toContain(words)
  expect(readJson(await lab.run(['status', '--json'])).webhooks).toBeNull()

  // A refused walk is not compared.
  for (const {id} of someDeals(7)) lab.service.store.remove(id)
  await expect(walk({...config, shrinkLimitPct: 5})).rejects.toThrow()
  expect(lastCoverage()).toMatchObject(counted)
})

test('an event that arrives after a walk has read its deal already counts for the next one', async () => {
  changeRecords(lab, '/deals?limit', () => {
    fund('deal_000001')
    receive('deal_000001')
  })
  expect((await walk()).changes).toMatchObject({updated: 0})
  lab.service.faults.clear()
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 0})
})

test("an event older than senders' retries is kept until a walk was compared with it", async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  stateDb.db.exec(`update webhook_coverage set began_at = '2020-01-01T00:00:00.000Z'`)
  const eventId = 'evt_old'
  storeEvent(stateDb, {eventId, type: 'deal.updated', dealId: 'deal_000001'}, Date.now() - 10 * 86_400_000)
  settleEvents(stateDb, {eventIds: [eventId], outcome: 'applied'}, Date.now())
  fund('deal_000001')
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 0})
  settleEvents(stateDb, {eventIds: [], outcome: 'applied'}, Date.now())
  expect(stateDb.db.prepare('select * from webhook_event').all()).toEqual([])
})

test('the first walk under webhooks, and one after a walk without them, only start the count', async () => {
  expect(lastCoverage()).toBeUndefined()
  fund('deal_000001')
  await walk({detail: 'off'})
  fund('deal_000002')
  await walk()
  expect(lastCoverage()).toBeUndefined()
  fund('deal_000003')
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 1})
})

test('a walk under a clock that was ahead is no longer the last one once it is taken back', async () => {
  const world = lab.createWorld()
  const realClock = {...world.realClock, now: () => world.realClock.now() + 365 * 86_400_000}
  const {certificate} = await lab.walk('2027-06-02T17:00:00Z', {config, world: {realClock}})
  expect(lastCoverage()).toMatchObject({walk_id: certificate.walk_id})
  const without = ['rebuild', '--apply', '--without', certificate.walk_id, '--why', 'the clock was ahead']
  expect(await lab.run(without)).toMatchObject({code: 0})
  fund('deal_000001')
  const {walk_id} = (await walk()).certificate
  expect(lastCoverage()).toMatchObject({walk_id, changes: 1, missed: 1})
})
