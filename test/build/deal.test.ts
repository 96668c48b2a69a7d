import {expect, test} from 'vitest'
import {aQuarantine, aVersion, aWalk, type History} from '../../src/build/case-rows.ts'
import {query} from './history.ts'

const days = (...list: string[]) => list.map((day) => aWalk({day: `2026-03-${day}`}))
const on = (day: string) => ({day: `2026-03-${day}`})
const funding = 'select funded_on, funded_after, funded_before, funded_on_is_exact from core.deal'

async function fundingOf(history: History): Promise<unknown> {
  return (await query(history, funding))[0]
}

test('a deal that came back is not missing', async () => {
  const history = {
    versions: [aVersion(), aVersion({...on('03'), kind: 'missing'}), aVersion({...on('04')})],
  }
  expect(await query(history, 'select is_missing from core.deal')).toEqual([{is_missing: false}])
})

test('gives dates and instants of creation, first sight and last change', async () => {
  const history = {
    versions: [
      aVersion({created_at: '2026-02-11 00:00:00', created_at_precision: 'date'}),
      aVersion({...on('03'), created_at: '2026-02-11 23:30:00', status: 'approved'}),
      aVersion({...on('04'), created_at: '2026-02-11 23:30:00', status: 'approved'}),
    ],
  }
  expect(
    await query(history, 'select created_at, created_on, first_seen_at, last_changed_at from core.deal'),
  ).toEqual([
    {
      created_at: '2026-02-11 23:30:00',
      created_on: '2026-02-11',
      first_seen_at: '2026-03-02 02:05:00',
      last_changed_at: '2026-03-03 02:05:00',
    },
  ])
})

test('status_since is created_on for a draft that never changed', async () => {
  const history = {
    versions: [
      aVersion({deal_id: 'draft'}),
      aVersion({deal_id: 'draft', ...on('04'), loan_amount: '5'}),
      aVersion({deal_id: 'first approved', status: 'approved'}),
      aVersion({deal_id: 'draft again'}),
      aVersion({deal_id: 'draft again', ...on('03'), status: 'approved'}),
      aVersion({deal_id: 'draft again', ...on('05')}),
    ],
  }
  expect(await query(history, 'select deal_id, status_since from core.deal')).toEqual([
    {deal_id: 'draft', status_since: '2026-02-10'},
    {deal_id: 'draft again', status_since: '2026-03-05'},
    {deal_id: 'first approved', status_since: '2026-03-02'},
  ])
})

test('funded_on is exact when the walk of the day before still saw it unfunded', async () => {
  const versions = [aVersion(), aVersion({...on('06'), status: 'funded'})]
  expect(await fundingOf({walks: days('02', '03', '05', '06'), versions})).toEqual({
    funded_on: '2026-03-06',
    funded_after: '2026-03-05',
    funded_before: '2026-03-06',
    funded_on_is_exact: true,
  })
  expect(await fundingOf({walks: days('02', '03', '06'), versions})).toEqual({
    funded_on: '2026-03-06',
    funded_after: '2026-03-03',
    funded_before: '2026-03-06',
    funded_on_is_exact: false,
  })
})

test('since when a deal is funded that was when first seen is not known, only by when', async () => {
  const history = {walks: days('02', '05', '06'), versions: [aVersion({...on('06'), status: 'funded'})]}
  expect(await fundingOf(history)).toEqual({
    funded_on: null,
    funded_after: '2026-03-05',
    funded_before: '2026-03-06',
    funded_on_is_exact: false,
  })
})

test('a walk that ended before the deal page was fetched does not confirm what came before', async () => {
  const history = {
    walks: days('02', '05', '06'),
    versions: [aVersion(), aVersion({...on('06'), observed_at: '2026-03-06 02:20:00', status: 'funded'})],
  }
  expect(await fundingOf(history)).toMatchObject({funded_after: '2026-03-05'})
})

test('what a webhook showed counts on its own business date', async () => {
  const webhook = {source: 'webhook', walk_id: null, observed_at: '2026-03-05 15:00:00'}
  const history = {
    walks: days('02', '04', '05', '06'),
    versions: [
      aVersion(),
      aVersion({...on('05'), ...webhook, recorded_at: '2026-03-05 15:00:01', status: 'funded'}),
    ],
  }
  expect(await fundingOf(history)).toEqual({
    funded_on: '2026-03-05',
    funded_after: '2026-03-05',
    funded_before: '2026-03-05',
    funded_on_is_exact: true,
  })
})

test('while a deal is missing or quarantined its status is not known', async () => {
  const walks = days('02', '03', '04', '05', '06', '07')
  const funded = aVersion({...on('07'), status: 'funded'})
  const missing = {walks, versions: [aVersion(), aVersion({...on('05'), kind: 'missing'}), funded]}
  expect(await fundingOf(missing)).toMatchObject({funded_after: '2026-03-04', funded_on_is_exact: false})
  const held = {
    walks,
    versions: [aVersion(), funded],
    quarantine: [aQuarantine(on('04')), aQuarantine(on('06'))],
  }
  expect(await fundingOf(held)).toMatchObject({funded_after: '2026-03-03', funded_on_is_exact: false})
})

test('a deal funded again counts from its last spell; one that is not funded has no dates', async () => {
  const versions = [
    aVersion({status: 'funded'}),
    aVersion({...on('03'), status: 'approved'}),
    aVersion({...on('05'), status: 'funded'}),
  ]
  const walks = days('02', '03', '04', '05')
  expect(await fundingOf({walks, versions})).toMatchObject({
    funded_on: '2026-03-05',
    funded_after: '2026-03-04',
  })
  expect(await fundingOf({walks, versions: versions.slice(0, 2)})).toEqual({
    funded_on: null,
    funded_after: null,
    funded_before: null,
    funded_on_is_exact: null,
  })
})

test('ltv is exact to nine decimals, half up, and null where it says nothing', async () => {
  const cases: [string, string | null, string | null][] = [
    ['65', '100', '0.650000000'],
    ['1', '3', '0.333333333'],
    ['2', '3', '0.666666667'],
    ['0.01', '20000000', '0.000000001'],
    ['0.01', '20000001', '0.000000000'],
    ['9999999999999999.99', '9999999999999999.99', '1.000000000'],
    ['9999999999999999.99', '1.00', null],
    ['9999999999999999.99', '0.01', null],
    ['999.99', '1.00', null],
    ['100', '10.00', '10.000000000'],
    ['100.01', '10.00', null],
    ['9999999999999999.99', '999999999999999.99', null],
    ['9999999999999999.90', '999999999999999.99', '10.000000000'],
    ['9999999999999999.99', '10000000000000.00', null],
    ['100', '0', null],
    ['100', '-5', null],
    ['100', null, null],
    ['0', '5', '0.000000000'],
  ]
  const versions = cases.map(([loan_amount, property_value], index) =>
    aVersion({deal_id: `deal_${String(index).padStart(2, '0')}`, loan_amount, property_value}),
  )
  const rows = await query({versions}, 'select ltv from core.deal')
  expect(rows).toEqual(cases.map(([, , ltv]) => ({ltv})))
})

test('parses state and zip from free text, and guesses nothing', async () => {
  const addresses: [string | null, string, string | null][] = [
    ['12 Main St, Austin, TX 78701', 'TX', '78701'],
    ['12 Main St, Austin, tx 78701-1234', 'TX', '78701'],
    ['12 Main St Austin TX 78701', 'TX', '78701'],
    ['12 Main St, Austin, TX, 78701', 'TX', '78701'],
    ['12 Main St, Austin, TX', 'TX', null],
    ['12 Main St, Austin TX', 'unknown', null],
    ['12 Main St, Austin, Texas', 'TX', null],
    ['12 Main St, Austin, texas 78701, USA', 'TX', '78701'],
    ['12 Main St, Austin, TX 78701, United States of America', 'TX', '78701'],
    ['12 Main St, Austin, TX 78701 U.S.A.', 'TX', '78701'],
    ['1 Coal Rd, Charleston, West Virginia 25301', 'WV', '25301'],
    ['1 Coal Rd, Charleston West Virginia', 'WV', null],
    ['1 Bay Rd, Norfolk, Virginia', 'VA', null],
    ['1 Hill Rd, Little Rock, Arkansas', 'AR', null],
    ['1 Hill Rd, Kansas City, Kansas', 'KS', null],
    ['1 Hill Rd, Kansas City, MO 64101', 'MO', '64101'],
    ['5th Ave, New York, New York 10001', 'NY', '10001'],
    ['1 Mall, Washington, D.C. 20001', 'DC', '20001'],
    ['1 Calle Sol, San Juan, PR 00901', 'PR', '00901'],
    ['12 Ocean Ct', 'unknown', null],
    ['12 Ocean Ct 78701', 'unknown', null],
    ['12 Ocean Ct, Mystic, CT 06355', 'CT', '06355'],
    ['12 Ocean Ct Mystic CT 06355', 'CT', '06355'],
    ['Virginia Ave 12, Atlanta', 'unknown', null],
    ['12 Main St, Springfield, ZZ 12345', 'unknown', '12345'],
    ['PO Box 12345', 'unknown', null],
    ['12345 Main St', 'unknown', null],
    ['', 'unknown', null],
    [null, 'unknown', null],
  ]
  const versions = addresses.map(([property_address], index) =>
    aVersion({deal_id: `deal_${String(index).padStart(2, '0')}`, property_address}),
  )
  const rows = await query({versions}, 'select property_address, state, zip from core.deal')
  expect(rows).toEqual(addresses.map(([property_address, state, zip]) => ({property_address, state, zip})))
})
