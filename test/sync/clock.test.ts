import {beforeEach, expect, test} from 'vitest'
import type {Clock} from '../../src/core/clock.ts'
import {applyEvents} from '../../src/pipeline.ts'
import {expectRefused} from '../cli/outcome.ts'
import {aDeal, DAY_1, DAY_2, DAY_3, failureOf, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'
import {countWaitingEvents, receiveEvents} from '../support/webhooks.ts'

const THREE_DAYS = 3 * 86_400_000
/** Ten deals make five pages; own pages are fetched one after the other. */
const SMALL = {pageSize: 2, detailConcurrency: 1}

const lab = await useLab({deals: someDeals(10)})
await lab.walk(DAY_1, {config: SMALL})
beforeEach(lab.remember())

/**
 * Creates a clock that starts at `start` and advances a second per request; it is three days ahead from request `first` until
 * just before request `end`, counted from 0.
 */
function aheadFrom(first: number, end: number, start: string = DAY_2): Clock {
  const before = lab.service.requests.count
  return {
    now() {
      const requests = lab.service.requests.count - before
      return Date.parse(start) + requests * 1000 + (requests >= first && requests < end ? THREE_DAYS : 0)
    },
  }
}

function fundAll(): void {
  for (const id of lab.service.store.ids()) lab.service.store.update(id, {status: 'funded'})
}

const listNights = () =>
  lab.queryHistory(
    `select business_date, count(*) as versions, count(*) filter (status = 'funded') as funded,
       bool_and(observed_at < business_date + interval 2 day) as is_of_its_day
     from deal_version group by business_date order by business_date`,
  )

const FIRST = {business_date: '2026-02-02', versions: '10', funded: '0', is_of_its_day: true}
const SECOND = {business_date: '2026-02-03', versions: '10', funded: '10', is_of_its_day: true}

test.each([
  ['the first page', 0, 1],
  ['the last request, for one deal,', 14, 15],
])('a clock that is days ahead for %s costs the walk, and the next starts afresh', async (_, first, end) => {
  fundAll()
  const failure = await failureOf(lab.walk(DAY_2, {config: SMALL, world: {clock: aheadFrom(first, end)}}))
  expect(failure).toMatchObject({code: 'CLOCK_STEPPED', exitCode: 6})
  expect(failure.message).toMatch(/Clock '2026-02-04.*2026-02-07.*Nothing.*applied.*new walk/)
  const clock = aheadFrom(0, 0, '2026-02-03T23:40:00-05:00')
  const next = await lab.walk(DAY_2, {config: SMALL, world: {clock}})
  expect(next).toMatchObject({certificate: {resumed: 0}, changes: {updated: 10}})
  expect(await listNights()).toEqual([FIRST, SECOND])
})

test('a walk killed while the clock was ahead is not resumed', async () => {
  fundAll()
  const onStep = () => {
    if (lab.service.requests.count > 2) throw new Error('died')
  }
  const world = {clock: aheadFrom(0, 99), onStep}
  await failureOf(lab.walk(DAY_2, {config: SMALL, world}))
  expect(await lab.queryHistory('select 1')).toHaveLength(1)
  const failure = await failureOf(lab.walk(DAY_2, {config: SMALL}))
  expect(failure).toMatchObject({code: 'CLOCK_STEPPED', exitCode: 6})
  expect(await lab.walk(DAY_2, {config: SMALL})).toMatchObject({
    certificate: {resumed: 0, business_date: '2026-02-03'},
    changes: {updated: 10},
  })
  expect(await listNights()).toEqual([FIRST, SECOND])
})

test('if the clock stays ahead to the end, the next run names the deals until that instant has come', async () => {
  for (const number of [9, 10]) lab.service.store.update(aDeal(number).id, {status: 'approved'})
  await lab.walk(DAY_2, {config: SMALL, world: {clock: aheadFrom(4, 99)}})
  fundAll()
  const requests = lab.service.requests.count
  const failure = await failureOf(lab.walk(DAY_3, {config: SMALL}))
  expect(failure).toMatchObject({
    code: 'CLOCK_BACKWARDS',
    exitCode: 2,
    // The first one was asked for because it was its turn.
    details: {deals: [aDeal(1).id, aDeal(9).id, aDeal(10).id]},
  })
  expect(failure.message).toMatch(
    /up to 2026-02-07T04:30:\d\d.*: w_\S+; 3 deals \('deal_000001', 'deal_000009', 'deal_000010'\).*Nothing.*operations\.md/,
  )
  expect(lab.service.requests.count).toBe(requests)
  expect((await lab.walk('2026-02-07T05:00:00Z', {config: SMALL})).changes).toMatchObject({updated: 10})
})

test('once days begin later, a walk counts for no earlier day than the last', async () => {
  for (const dayCutoff of ['00:00', '06:00']) {
    const {certificate} = await lab.walk('2026-02-04T01:00:00-05:00', {config: {...SMALL, dayCutoff}})
    expect(certificate.business_date, dayCutoff).toBe('2026-02-04')
  }
})

test('a walk under a clock that was ahead is named, that one alone, and goes by its name', async () => {
  fundAll()
  await lab.walk(DAY_2, {config: SMALL})
  const {certificate} = await lab.walk('2026-02-04T03:30:00-05:00', {config: SMALL})
  const refused = lab.run(['sync', '--json'], {LOANTAPE_NOW: '2026-02-03T23:45:00-05:00'})
  const {message} = await expectRefused(refused, 'CLOCK_BACKWARDS')
  expect(message.match(/\bw_[\w-]+/g)).toEqual([certificate.walk_id])

  await lab.run(['rebuild', '--apply', '--without', certificate.walk_id, '--why', 'the clock was ahead'])
  expect((await lab.walk('2026-02-03T23:45:00-05:00', {config: SMALL})).changes).toMatchObject({updated: 0})
  expect(await listNights()).toEqual([FIRST, SECOND])
})

test('a look under a clock that was ahead stops the next run, and a rebuild without it removes it', async () => {
  await lab.walk(DAY_2, {config: SMALL})
  fundAll()
  receiveEvents(lab.folder, aDeal(3).id)
  await applyEvents({...lab.config, ...SMALL}, lab.createWorld('2027-02-03T23:30:00-05:00'))
  const refusal = {code: 'CLOCK_BACKWARDS', exitCode: 2, details: {deals: [aDeal(3).id]}}
  const stopped = await failureOf(lab.walk(DAY_3, {config: SMALL}))
  expect(stopped).toMatchObject(refusal)
  expect(stopped.message).toContain(': 2027-02-03; 1 deal (')
  receiveEvents(lab.folder, aDeal(4).id)
  const events = applyEvents({...lab.config, ...SMALL}, lab.createWorld(DAY_3))
  expect(await failureOf(events)).toMatchObject(refusal)
  expect(countWaitingEvents(lab.folder)).toBe(1)

  const without = ['rebuild', '--apply', '--without', '2027-02-03', '--why', 'the clock was a year ahead']
  expect(await lab.run(without)).toMatchObject({code: 0})
  expect((await lab.walk(DAY_3, {config: SMALL})).changes).toMatchObject({updated: 10})
  expect(await listNights()).toEqual([FIRST, {...SECOND, business_date: '2026-02-04'}])
})

test('a look during which the clock steps stores nothing, and its events wait', async () => {
  fundAll()
  receiveEvents(lab.folder, aDeal(1).id, aDeal(2).id, aDeal(3).id)
  const world = {...lab.createWorld(), clock: aheadFrom(1, 2)}
  const failure = await failureOf(applyEvents({...lab.config, ...SMALL}, world))
  expect(failure).toMatchObject({code: 'CLOCK_STEPPED', exitCode: 6})
  expect(countWaitingEvents(lab.folder)).toBe(3)
  const later = lab.createWorld('2026-02-03T23:40:00-05:00')
  expect(await applyEvents({...lab.config, ...SMALL}, later)).toMatchObject({appended: 3})
})

test('a clock that steps while lists of borrowers are read costs these lists, not the deals', async () => {
  fundAll()
  const config = {...SMALL, streams: 'deals,borrowers'}
  const {changes, streams} = await lab.walk(DAY_2, {config, world: {clock: aheadFrom(17, 18)}})
  expect(changes).toMatchObject({updated: 10})
  expect(streams).toMatchObject([{outcome: 'refused', reason: 'CLOCK_STEPPED'}])
  const next = await lab.walk(DAY_2, {config, world: {clock: aheadFrom(0, 0, '2026-02-03T23:40:00-05:00')}})
  expect(next.streams).toMatchObject([{outcome: 'applied', listed: 10}])
  expect(await listNights()).toEqual([FIRST, SECOND])
})
