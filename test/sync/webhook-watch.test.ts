import {afterAll, beforeAll, beforeEach, expect, test} from 'vitest'
import {applyEvents} from '../../src/pipeline.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {findLastCoverage, settleEvents, storeEvent} from '../../src/sync/webhook-events.ts'
import {readJson} from '../cli/outcome.ts'
import {aDeal, createLab, type Lab, someDeals} from '../support/lab.ts'

const LOANTAPE_WEBHOOK_SECRET = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
const config = {webhookSecret: LOANTAPE_WEBHOOK_SECRET}
const NOON = '2026-06-02T16:00:00Z'

let lab: Lab
let goBack: () => void
let day = 1

beforeAll(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(6))
  await walk()
  goBack = lab.remember()
})

beforeEach(() => {
  goBack()
  day = 2
})

afterAll(() => lab[Symbol.asyncDispose]())

/** The walk of the next day. */
function walk(changes: Partial<Lab['config']> = config) {
  const now = `2026-06-${String(day).padStart(2, '0')}T17:00:00Z`
  day += 1
  return lab.walk(now, {config: changes})
}

function receive(dealId: string, type = 'deal.updated', receivedAt = Date.now()): string {
  using stateDb = openStateDb(lab.folder.stateDb)
  const eventId = `evt_${type}_${dealId}_${receivedAt}`
  storeEvent(stateDb, {eventId, type, dealId}, receivedAt)
  return eventId
}

function lastCoverage() {
  using stateDb = openStateDb(lab.folder.stateDb)
  return findLastCoverage(stateDb)
}

const applyWaiting = () => applyEvents({...lab.config, ...config}, lab.createWorld(NOON))

const fund = (id: string) => lab.service.store.update(id, {status: 'funded'})

test('a change that an event told of is not missed, applied already or waiting still', async () => {
  fund('deal_000001')
  receive('deal_000001')
  await applyWaiting()
  fund('deal_000002')
  receive('deal_000002')
  const {certificate} = await walk()
  expect(lastCoverage()).toMatchObject({walk_id: certificate.walkId, changes: 1, missed: 0})
})

test('changes without an event are missed: a new deal, one that changed, one that went', async () => {
  lab.service.store.insert([aDeal(7)])
  fund('deal_000002')
  fund('deal_000003')
  lab.service.store.remove('deal_000004')
  receive('deal_000003')
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 4, missed: 3})
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 0, missed: 0})
})

test('an event whose deal did not change, or of a deal nobody knows, is harmless', async () => {
  receive('deal_000001')
  receive('deal_999999')
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 0, missed: 0})
})

test('an absence is missed once: that it is confirmed by the next walk is no other change', async () => {
  const withoutDetails = {...config, detail: 'off' as const}
  lab.service.store.remove('deal_000004')
  expect((await walk(withoutDetails)).changes).toMatchObject({missing: 1})
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 1})
  expect((await walk(withoutDetails)).changes).toMatchObject({vanished: 1})
  expect(lastCoverage()).toMatchObject({changes: 0, missed: 0})
})

test('an event counts for the walk after the one it came before, not for later ones', async () => {
  receive('deal_000001')
  await walk()
  fund('deal_000001')
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 1})
})

test('an event that came while a walk had read its deal already counts for the next', async () => {
  lab.service.faults.add({
    match: {path: '/deals?limit'},
    fault: {
      kind: 'mutate',
      change: (body) => {
        fund('deal_000001')
        receive('deal_000001')
        return body
      },
    },
  })
  expect((await walk({...config, detail: 'off'})).changes).toMatchObject({updated: 0})
  lab.service.faults.clear()
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 0})
})

test('an event older than senders try again is kept until a walk was compared with it', async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  stateDb.db.exec(`update webhook_coverage set began_at = '2020-01-01T00:00:00.000Z'`)
  const eventId = receive('deal_000001', 'deal.updated', Date.now() - 10 * 86_400_000)
  settleEvents(stateDb, {eventIds: [eventId], outcome: 'applied'}, Date.now())
  fund('deal_000001')
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 0})
  settleEvents(stateDb, {eventIds: [], outcome: 'applied'}, Date.now())
  expect(stateDb.db.prepare('select * from webhook_event').all()).toEqual([])
})

test('a refused walk is compared by nobody', async () => {
  fund('deal_000001')
  await walk()
  const {walk_id} = lastCoverage() ?? {}
  for (const {id} of someDeals(6)) lab.service.store.remove(id)
  await expect(walk({...config, shrinkLimitPct: 5})).rejects.toThrow()
  expect(lastCoverage()).toMatchObject({walk_id})
})

test('the first walk under webhooks, and one after a walk without them, only begin to count', async () => {
  expect(lastCoverage()).toBeUndefined()
  fund('deal_000001')
  await walk({})
  fund('deal_000002')
  await walk()
  expect(lastCoverage()).toBeUndefined()
  fund('deal_000003')
  await walk()
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 1})
})

test('status shows it, and nothing where no webhooks are taken', async () => {
  fund('deal_000001')
  fund('deal_000002')
  receive('deal_000002')
  const {certificate} = await walk()
  const env = {LOANTAPE_WEBHOOK_SECRET}
  expect(readJson(await lab.run(['status', '--json'], env)).webhooks).toEqual({
    walk_id: certificate.walkId,
    settled_at: expect.any(String),
    changes: 2,
    missed: 1,
  })
  const words = `Webhooks: missed 1 of the 2 changes of walk ${certificate.walkId}.`
  expect((await lab.run(['status'], env)).stdout).toContain(words)
  const without = await lab.run(['status', '--json'])
  expect(readJson(without).webhooks).toBeNull()
})
