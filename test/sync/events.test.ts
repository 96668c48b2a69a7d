import {rmSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {buildRelease} from '../../src/build/build.ts'
import {applyEvents} from '../../src/pipeline.ts'
import {requireWritable} from '../../src/store/data-folder.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {findLearnt} from '../../src/sync/at-source.ts'
import {findLastCoverage, settleEvents, storeEvent} from '../../src/sync/webhook-events.ts'
import {readJson} from '../cli/outcome.ts'
import {FEW_TABLES} from '../support/data.ts'
import {aDeal, failureOf, someDeals} from '../support/lab.ts'
import {changeRecords, dyingAt, linkBorrower, useLab} from '../support/set-up.ts'
import {countWaitingEvents, receiveEvents} from '../support/webhooks.ts'

const NOON = '2026-06-02T16:00:00Z'
const LATER = '2026-06-02T17:00:00Z'

const lab = await useLab({tables: FEW_TABLES, deals: someDeals(5)})
const webhookSecret = `whsec_${Buffer.alloc(32, 1).toString('base64')}`
await lab.walk('2026-06-01T16:00:00Z', {config: {webhookSecret}})
beforeEach(lab.remember())

const receive = (...dealIds: string[]) => receiveEvents(lab.folder, ...dealIds)
const change = (id: string, fields: Parameters<typeof lab.service.store.update>[1]) =>
  lab.service.store.update(id, fields)

/** Runs a walk at noon that dies before it is settled. */
const dieAtNoon = () => failureOf(lab.walk(NOON, {world: dyingAt('walk read')}))

test('what an event brought is no change to the next walk, which ties out, and the next release shows it', async () => {
  change('deal_000002', {status: 'funded', loan_amount_cents: 400_000_00n})
  lab.service.store.insert([someDeals(6)[5]!])
  receive('deal_000002', 'deal_000003', 'deal_000006')
  const counted = {outcome: 'applied', events: 3, deals: 3, appended: 2}
  expect(await applyEvents(lab.config, lab.createWorld(NOON))).toEqual(counted)
  expect(
    await lab.queryHistory(
      `select deal_id, status, walk_id, cast(business_date as varchar) as day
       from deal_version where source = 'webhook' order by deal_id`,
    ),
  ).toEqual([
    {deal_id: 'deal_000002', status: 'funded', walk_id: null, day: '2026-06-02'},
    {deal_id: 'deal_000006', status: 'draft', walk_id: null, day: '2026-06-02'},
  ])
  expect(lab.currentReleaseId()).toBeUndefined()
  expect(countWaitingEvents(lab.folder)).toBe(0)

  change('deal_000004', {status: 'funded'})
  const {changes} = await lab.sync(LATER)
  expect(changes).toMatchObject({created: 0, updated: 1, unchanged: 5})
  expect(await lab.query(`select deal_id from core.deal where status = 'funded' order by deal_id`)).toEqual([
    {deal_id: 'deal_000002'},
    {deal_id: 'deal_000004'},
  ])
})

test('what is read from before a day begins until after belongs to the day before, as in a walk', async () => {
  change('deal_000002', {status: 'funded'})
  receive('deal_000002')
  lab.service.requests.clear()
  const isAsked = () => lab.service.requests.entries.length > 0
  const clock = {now: () => Date.parse(isAsked() ? '2026-06-02T10:01:00Z' : '2026-06-02T09:59:00Z')}
  await applyEvents(lab.config, {...lab.createWorld(NOON), clock})
  const seen = `select cast(business_date as varchar) as day from deal_version where source = 'webhook'`
  expect(await lab.queryHistory(seen)).toEqual([{day: '2026-06-01'}])
})

test('a rebuild from where the tapes begin makes the same of an event after a walk that changed nothing', async () => {
  const tell = async (cents: bigint, now: string) => {
    change('deal_000002', {loan_amount_cents: cents})
    receive('deal_000002')
    await applyEvents(lab.config, lab.createWorld(now))
  }
  await tell(400_000_00n, NOON)
  const {walk_id} = (await lab.walk(LATER)).certificate
  await tell(360_000_00n, '2026-06-02T18:00:00Z')
  rmSync(join(lab.folder.tapes, '2026/06', `${walk_id}.jsonl.zst`))
  expect((await lab.run(['tape', 'go-on', '--why', 'a disk died'])).code).toBe(0)
  expect(await lab.run(['verify', '--rebuild'])).toMatchObject({code: 0})
})

test('data read by a walk that died does not supersede a later event, even one that brought nothing new', async () => {
  change('deal_000002', {loan_amount_cents: 400_000_00n})
  await dieAtNoon()
  change('deal_000002', {loan_amount_cents: 350_000_00n})
  receive('deal_000002')
  await applyEvents(lab.config, lab.createWorld('2026-06-02T16:05:00Z'))
  const {changes} = await lab.walk('2026-06-02T16:10:00Z', {config: {detail: 'off'}})
  expect(changes).toMatchObject({updated: 0, unchanged: 5})
  const versions = `select loan_amount, observed_at from deal_version where deal_id = 'deal_000002' order by observed_at`
  expect(await lab.queryHistory(versions)).toEqual([
    {loan_amount: '350000.00', observed_at: '2026-06-01 16:00:00'},
    {loan_amount: '400000.00', observed_at: '2026-06-02 16:00:00'},
    {loan_amount: '350000.00', observed_at: '2026-06-02 16:05:00'},
  ])
})

test('a list that lags behind an event does not undo it, even if its rows lack no field', async () => {
  changeRecords(lab, '/deals', (records) => {
    for (const record of records) Object.assign(record, {property_value: 500_000, loan_program: 'bridge'})
  })
  changeRecords(lab, '/deals?', (records) => {
    for (const record of records) record.loan_amount = 350_000
  })
  await lab.walk(NOON, {accept: ['change']})
  change('deal_000002', {loan_amount_cents: 400_000_00n})
  receive('deal_000002')
  await applyEvents(lab.config, lab.createWorld('2026-06-02T16:05:00Z'))
  const {changes} = await lab.walk(LATER)
  expect(changes).toMatchObject({updated: 0, unchanged: 5})
})

test('a day whose walk was applied after an event of the next day can be released', async () => {
  await dieAtNoon()
  change('deal_000002', {loan_amount_cents: 400_000_00n})
  receive('deal_000002')
  const nextDay = '2026-06-03T16:00:00Z'
  await applyEvents(lab.config, lab.createWorld(nextDay))
  await lab.sync(nextDay)
  const {release_id} = await buildRelease(lab.config, {asOf: '2026-06-02'}, lab.createWorld(nextDay))
  const amount = 'select amount from mart.portfolio_summary'
  expect(await lab.query(amount)).toEqual([{amount: '1800000.00'}])
  expect(await lab.query(amount, release_id)).toEqual([{amount: '1750000.00'}])
})

test('deals that become funded event by event are refused together until a walk accepts them', async () => {
  lab.service.store.insert(someDeals(45).slice(5))
  await lab.walk('2026-06-01T17:00:00Z', {accept: ['growth']})
  const fund = (first: number, count: number, now = NOON) => {
    const ids = someDeals(45)
      .slice(first, first + count)
      .map(({id}) => id)
    for (const id of ids) change(id, {status: 'funded'})
    receive(...ids)
    return applyEvents(lab.config, lab.createWorld(now))
  }
  const refusal = {code: 'GUARD_CHANGE', exitCode: 8, problem: expect.stringMatching(/30 deals .* of the 45/)}
  expect(await fund(0, 20)).toMatchObject({outcome: 'applied', appended: 20})
  expect(await failureOf(fund(20, 10))).toMatchObject(refusal)
  expect(countWaitingEvents(lab.folder)).toBe(10)
  expect(await failureOf(lab.walk('2026-06-02T23:00:00Z'))).toMatchObject(refusal)
  const {changes} = await lab.walk('2026-06-02T23:30:00Z', {accept: ['change']})
  expect(changes).toMatchObject({updated: 10, unchanged: 35})
  expect(await fund(30, 5, '2026-06-03T16:00:00Z')).toMatchObject({outcome: 'applied', appended: 5})
})

test('an event that came after the walk which a run goes on with waits for the next', async () => {
  await dieAtNoon()
  change('deal_000002', {loan_amount_cents: 400_000_00n})
  receive('deal_000002')
  const apply = () => applyEvents({...lab.config, detail: 'off'}, lab.createWorld(LATER))
  expect([await apply(), countWaitingEvents(lab.folder)]).toMatchObject([{outcome: 'walked'}, 1])
  expect([await apply(), countWaitingEvents(lab.folder)]).toMatchObject([{outcome: 'walked'}, 0])
  const amount = `select loan_amount from core.deal where deal_id = 'deal_000002'`
  expect(await lab.query(amount)).toEqual([{loan_amount: '400000.00'}])
})

test('a walk runs if a deal is gone, to prove it, if its page cannot be read, and if details are off', async () => {
  changeRecords(lab, '/deals/deal_000001', ([deal]) => Object.assign(deal ?? {}, {status: 7}))
  receive('deal_000001', 'deal_000003')
  const read = await applyEvents(lab.config, lab.createWorld('2026-06-02T15:00:00Z'))
  expect(read).toMatchObject({outcome: 'walked', deals: 2})
  lab.service.store.remove('deal_000005')
  receive('deal_000005')
  expect(await applyEvents(lab.config, lab.createWorld(NOON))).toMatchObject({outcome: 'walked'})
  change('deal_000002', {status: 'funded'})
  receive('deal_000002')
  const config = {...lab.config, detail: 'off' as const}
  expect(await applyEvents(config, lab.createWorld(LATER))).toMatchObject({outcome: 'walked'})
  expect(
    await lab.query(`select count(*) as deals, count_if(status = 'funded') as funded from core.deal`),
  ).toEqual([{deals: '4', funded: '1'}])
  expect(countWaitingEvents(lab.folder)).toBe(0)
})

test('the first event leads to the first walk, which no guard compares with a few deals', async () => {
  rmSync(lab.folder.root, {recursive: true})
  lab.service.store.insert(someDeals(45).slice(5))
  receiveEvents(requireWritable(lab.folder), 'deal_000001')
  const outcome = await applyEvents(lab.config, lab.createWorld(NOON))
  expect(outcome).toMatchObject({outcome: 'walked', events: 1, appended: 0})
  expect(await lab.query('select count(*) as deals from core.deal')).toEqual([{deals: '45'}])
})

test('without events nothing happens; events wait for an unavailable source; a busy one is asked more slowly', async () => {
  expect(await applyEvents(lab.config, lab.createWorld(NOON))).toMatchObject({outcome: 'unchanged'})
  receive('deal_000002')
  const config = {...lab.config, apiKey: 'sk_test_wrong', retries: 0}
  await expect(applyEvents(config, lab.createWorld(NOON))).rejects.toThrow()
  expect(countWaitingEvents(lab.folder)).toBe(1)
  lab.service.faults.add({match: {path: '/deals/', times: 1}, fault: {kind: 'status', status: 429}})
  await applyEvents(lab.config, lab.createWorld(NOON))
  using stateDb = openStateDb(lab.folder.stateDb)
  const learnt = findLearnt(stateDb, lab.config.baseUrl ?? '', lab.createWorld())
  expect(learnt?.learntRate).toBeLessThan(lab.config.ratePerSecond)
})

const WATCHED = {webhookSecret, detail: 'off' as const}

/** Walks on a day of June under webhooks. */
const watch = (day: number, changes: object = WATCHED) =>
  lab.walk(`2026-06-0${day}T17:00:00Z`, {config: changes})

function lastCoverage() {
  using stateDb = openStateDb(lab.folder.stateDb)
  return findLastCoverage(stateDb)
}

const fund = (id: string) => change(id, {status: 'funded'})

test('a walk counts the changes no event announced; an event counts for the next walk alone', async () => {
  fund('deal_000001')
  receive('deal_000001')
  await applyEvents(lab.config, lab.createWorld(NOON))
  fund('deal_000002')
  receive('deal_000002')
  const {certificate} = await watch(2)
  expect(lastCoverage()).toMatchObject({walk_id: certificate.walk_id, changes: 1, missed: 0})

  // One deal is new, one changed, one is missing; a fourth change was announced.
  lab.service.store.insert([aDeal(7)])
  fund('deal_000003')
  lab.service.store.remove('deal_000004')
  fund('deal_000005')
  receive('deal_000005')
  expect((await watch(3)).changes).toMatchObject({missing: 1})
  expect(lastCoverage()).toMatchObject({changes: 4, missed: 3})

  receive('deal_000007', 'deal_999999')
  // Another spelling is no change, nor is an absence that is confirmed, nor what changes in the lists of deals.
  changeRecords(lab, '/deals?', (deals) => {
    for (const deal of deals) deal.status = String(deal.status).toUpperCase()
  })
  linkBorrower(lab, 'deal_000001')
  const third = await watch(4, {...WATCHED, streams: 'deals,borrowers'})
  expect(third).toMatchObject({changes: {vanished: 1}, streams: [{changes: {created: 1}}]})
  lab.service.faults.clear()
  expect(lastCoverage()).toMatchObject({walk_id: third.certificate.walk_id, changes: 0, missed: 0})
  fund('deal_000007')
  const last = await watch(5)
  const counted = {walk_id: last.certificate.walk_id, changes: 1, missed: 1}
  expect(lastCoverage()).toMatchObject(counted)

  const env = {LOANTAPE_WEBHOOK_SECRET: webhookSecret}
  expect(readJson(await lab.run(['status', '--json'], env)).webhooks).toMatchObject(counted)
  const words = `Webhooks: missed 1 of 1 change of walk ${counted.walk_id}.`
  expect((await lab.run(['status'], env)).stdout).toContain(words)
  expect(readJson(await lab.run(['status', '--json'])).webhooks).toBeNull()

  // A refused walk is not compared.
  for (const id of lab.service.store.ids()) lab.service.store.remove(id)
  await expect(watch(6, {...WATCHED, shrinkLimitPct: 5})).rejects.toThrow()
  expect(lastCoverage()).toMatchObject(counted)
})

test('an event that arrives after a walk has read its deal already counts for the next one', async () => {
  changeRecords(lab, '/deals?limit', () => {
    fund('deal_000001')
    receive('deal_000001')
  })
  expect((await watch(2)).changes).toMatchObject({updated: 0})
  lab.service.faults.clear()
  await watch(3)
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 0})
})

test("an event older than senders' retries is kept until a walk was compared with it", async () => {
  using stateDb = openStateDb(lab.folder.stateDb)
  stateDb.db.exec(`update webhook_coverage set began_at = '2020-01-01T00:00:00.000Z'`)
  const eventId = 'evt_old'
  storeEvent(stateDb, {eventId, type: 'deal.updated', dealId: 'deal_000001'}, Date.now() - 10 * 86_400_000)
  settleEvents(stateDb, {eventIds: [eventId], outcome: 'applied'}, Date.now())
  fund('deal_000001')
  await watch(2)
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 0})
  settleEvents(stateDb, {eventIds: [], outcome: 'applied'}, Date.now())
  expect(stateDb.db.prepare('select * from webhook_event').all()).toEqual([])
})

test('the first walk under webhooks, and one after a walk without them, only start the count', async () => {
  expect(lastCoverage()).toBeUndefined()
  fund('deal_000001')
  await watch(2, {detail: 'off'})
  fund('deal_000002')
  await watch(3)
  expect(lastCoverage()).toBeUndefined()
  fund('deal_000003')
  await watch(4)
  expect(lastCoverage()).toMatchObject({changes: 1, missed: 1})
})

test('a walk under a clock that was ahead is no longer the last one once it is taken back', async () => {
  const world = lab.createWorld()
  const realClock = {...world.realClock, now: () => world.realClock.now() + 365 * 86_400_000}
  const {certificate} = await lab.walk('2027-06-02T17:00:00Z', {config: WATCHED, world: {realClock}})
  expect(lastCoverage()).toMatchObject({walk_id: certificate.walk_id})
  const without = ['rebuild', '--apply', '--without', certificate.walk_id, '--why', 'the clock was ahead']
  expect(await lab.run(without)).toMatchObject({code: 0})
  fund('deal_000001')
  const {walk_id} = (await watch(2)).certificate
  expect(lastCoverage()).toMatchObject({walk_id, changes: 1, missed: 1})
})
