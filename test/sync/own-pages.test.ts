import {beforeEach, expect, test} from 'vitest'
import {aDeal, someDeals} from '../support/lab.ts'
import {useLab} from '../support/set-up.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
const DAY_3 = '2026-02-04T23:30:00-05:00'

/** Not walked yet. */
const lab = await useLab({deals: someDeals(40, {status: 'funded'})})
beforeEach(lab.remember())

const idOf = (number: number) => aDeal(number).id

/** From now on the own pages of these deals answer so, while the list shows them. */
function failPages(status: number, ...numbers: number[]): void {
  const path = new RegExp(`^/deals/(${numbers.map(idOf).join('|')})$`)
  lab.service.faults.add({match: {path}, fault: {kind: 'status', status}})
}

const countValues = () =>
  lab.queryHistory('select count(*) as deals, count(property_value) as priced from deal_head')
const countFailed = () =>
  lab.queryHistory('select details_failed as failed from walk where state = $$applied$$ order by started_at')

test.each([404, 410])('a deal that the list shows is there, even if its own page says %d', async (status) => {
  failPages(status, 1)
  expect((await lab.walk(DAY_1, {config: {detail: 'on'}})).changes).toMatchObject({created: 40})
  expect(await countValues()).toEqual([{deals: '40', priced: '39'}])
  failPages(status, 2, 3, 4, 5, 6, 7, 8)
  for (const number of [2, 3, 4, 5, 6, 7, 8])
    lab.service.store.update(idOf(number), {loan_amount_cents: 5_00n})
  const second = await lab.walk(DAY_2)
  expect(second.changes).toMatchObject({updated: 7, unchanged: 33, missing: 0, vanished: 0})
  expect(await countFailed()).toEqual([{failed: '1'}, {failed: '8'}])
  const third = await lab.walk(DAY_3)
  expect(third.changes).toMatchObject({unchanged: 40, vanished: 0, restored: 0})
})
