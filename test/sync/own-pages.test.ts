import {beforeEach, expect, test} from 'vitest'
import type {WireRecord, World} from '../../src/core/types.ts'
import {aDeal, DAY_1, DAY_2, DAY_3, DAY_4, failureOf, someDeals} from '../support/lab.ts'
import {changeRecords, dyingAt, useLab} from '../support/set-up.ts'

const lab = await useLab({deals: someDeals(40, {status: 'funded'})})
beforeEach(lab.remember())

const idOf = (number: number) => aDeal(number).id

/** Makes the own pages of these deals answer with this status; the list still shows them. */
function failPages(status: number, ...numbers: number[]): void {
  const path = new RegExp(`^/deals/(${numbers.map(idOf).join('|')})$`)
  lab.service.faults.add({match: {path}, fault: {kind: 'status', status}})
}

const countValues = () =>
  lab.queryHistory('select count(*) as deals, count(property_value) as priced from deal_head')
const countFailed = () =>
  lab.queryHistory('select details_failed as failed from walk where state = $$applied$$ order by started_at')

test('a deal that the list shows is there, even if its own page says that it is gone', async () => {
  failPages(404, 1)
  expect((await lab.walk(DAY_1, {config: {detail: 'on'}})).changes).toMatchObject({created: 40})
  expect(await countValues()).toEqual([{deals: '40', priced: '39'}])
  failPages(410, 2, 3, 4, 5, 6, 7, 8)
  for (const number of [2, 3, 4, 5, 6, 7, 8])
    lab.service.store.update(idOf(number), {loan_amount_cents: 5_00n})
  const second = await lab.walk(DAY_2)
  expect(second.changes).toMatchObject({updated: 7, unchanged: 33, missing: 0, vanished: 0})
  expect(await countFailed()).toEqual([{failed: '1'}, {failed: '8'}])
  const third = await lab.walk(DAY_3)
  expect(third.changes).toMatchObject({unchanged: 40, vanished: 0, restored: 0})
})

test('a page that leaves out what the list shows as null is read, and null takes a value away', async () => {
  changeRecords(lab, /^\/deals/, (records) => {
    for (const record of records) {
      if (record.property_value === undefined) record.property_address = null
      else delete record.property_address
    }
  })
  await lab.walk(DAY_1)
  expect(await countValues()).toEqual([{deals: '40', priced: '40'}])
  changeRecords(lab, /^\/deals/, (records) => {
    for (const record of records) {
      if (record.loan_program === undefined) record.property_value = null
      else delete record.property_value
    }
  })
  await lab.walk(DAY_2, {config: {changeLimitPct: 100}})
  expect(await countValues()).toEqual([{deals: '40', priced: '0'}])
})

test.each<[string, () => void]>([
  ['answer 500', () => failPages(500, 1, 2)],
  [
    'cannot be read',
    () => changeRecords(lab, `/deals/${idOf(1)}`, ([deal]) => Object.assign(deal!, {status: 7})),
  ],
])('a list that lags does not undo what own pages said on nights when they %s', async (_, fail) => {
  const walk = (night: string, listed: string) => {
    changeRecords(lab, '/deals?', ([deal]) => Object.assign(deal!, {status: listed}))
    return lab.walk(night)
  }
  await walk(DAY_1, 'approved')
  for (const night of [DAY_2, DAY_3]) {
    fail()
    expect((await walk(night, 'approved')).changes).toMatchObject({updated: 0, unchanged: 40})
  }
  fail()
  expect((await walk(DAY_4, 'draft')).changes).toMatchObject({updated: 1, unchanged: 39})
  expect(await lab.run(['verify', '--rebuild'])).toMatchObject({code: 0})
})

test.each([
  ['deals', 41],
  ['deals,borrowers', 2],
])(
  'of %s, pages that lists contradict every night leave a part of the budget to borrowers',
  async (streams, asked) => {
    changeRecords(lab, '/deals?', (records) => {
      for (const record of records) record.loan_amount = 100_000
    })
    await lab.walk(DAY_1)
    lab.service.store.insert([aDeal(41)])
    lab.service.requests.entries.splice(0)
    let passedMs = 0
    const realClock = {...lab.createWorld(DAY_2).realClock, now: () => Date.now() + passedMs}
    const onProgress: World['onProgress'] = ({step, done}) => {
      if (step === 'details' && done === 2) passedMs = 18 * 60_000
    }
    const {changes} = await lab.walk(DAY_2, {config: {streams}, world: {realClock, onProgress}})
    expect(changes).toMatchObject({created: 1, updated: 0})
    const paths = lab.service.requests.entries.map(({path}) => path)
    expect(paths.filter((path) => /^\/deals\/deal_\d+$/.test(path))).toHaveLength(asked)
  },
)

test('listed deals without a page of their own, new ones too, do not switch off those of others', async () => {
  failPages(404, 1, 2)
  await lab.walk(DAY_1)
  expect(await countValues()).toEqual([{deals: '40', priced: '38'}])
  const added = [41, 42, 43, 44, 45, 46]
  lab.service.store.insert(added.map((number) => aDeal(number, {status: 'funded'})))
  failPages(404, ...added)
  // The list leaves two out; their own pages still show them.
  const change = (body: WireRecord) => ({...body, data: (body.data as object[]).toSpliced(19, 2)})
  lab.service.faults.add({match: {path: '/deals?'}, fault: {kind: 'mutate', change}})
  for (const night of [DAY_2, DAY_3]) {
    const {changes} = await lab.walk(night)
    expect(changes).toMatchObject({created: night === DAY_2 ? 6 : 0, missing: 0, vanished: 0})
  }
})

test('a run that dies among own pages asks for the others alone, and the certificate counts the pages of both', async () => {
  lab.service.store.insert(someDeals(60).slice(40))
  changeRecords(lab, new RegExp(`^/deals/(${idOf(1)}|${idOf(2)})$`), ([deal]) => {
    Object.assign(deal!, {loan_amount: -5})
  })
  await failureOf(lab.walk(DAY_1, {world: dyingAt('details stored')}))
  await lab.walk(DAY_1)
  const kept = 'select count(*) as records, count(distinct quarantine_id) as ids from quarantine'
  expect(await lab.queryHistory(kept)).toEqual([{records: '2', ids: '2'}])
  const fetched = 'select resumed, details_fetched as fetched, details_failed as failed from walk'
  expect(await lab.queryHistory(fetched)).toEqual([{resumed: '1', fetched: '58', failed: '2'}])
})
