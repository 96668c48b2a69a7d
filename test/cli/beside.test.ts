import {setTimeout as delay} from 'node:timers/promises'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {createLab, type Lab, someDeals} from '../support/lab.ts'
import {readJson} from './outcome.ts'

let lab: Lab

beforeEach(async () => {
  lab = await createLab()
  lab.service.store.insert(someDeals(300))
  await lab.walk('2026-02-02T23:30:00-05:00')
})

afterEach(() => lab[Symbol.asyncDispose]())

test('beside a sync that walks for seconds, builds and looks at the status go on, and it waits for none of them for long', async () => {
  const now = {LOANTAPE_NOW: '2026-03-02T23:30:00-05:00'}
  lab.service.store.update('deal_000001', {status: 'funded'})
  const slow = {LOANTAPE_PAGE_SIZE: '10', LOANTAPE_RATE_PER_SECOND: '5', LOANTAPE_RATE_BURST: '1'}
  const sync = lab.start(['sync', '--json'], {...now, ...slow, LOANTAPE_DETAIL: 'off'})
  let isUnderWay = true
  const ended = sync.ended.finally(() => {
    isUnderWay = false
  })
  const statuses: number[] = []
  const looking = (async () => {
    while (isUnderWay) {
      statuses.push((await lab.run(['status', '--json'])).code ?? -1)
      await delay(500)
    }
  })()
  let builds = 0
  for (let day = 3; isUnderWay; day += 1) {
    const asOf = `2026-02-${String(3 + (day % 25)).padStart(2, '0')}`
    expect(await lab.run(['build', '--as-of', asOf], now)).toMatchObject({code: 0})
    if (isUnderWay) builds += 1
  }
  await looking
  expect(readJson(await ended)).toMatchObject({outcome: 'released', changes: {updated: 1, unchanged: 299}})
  expect(builds).toBeGreaterThan(1)
  // Without a release it says 1; who is turned away gets 4.
  expect(new Set(statuses)).not.toContain(4)
  expect(statuses.length).toBeGreaterThan(2)
})
