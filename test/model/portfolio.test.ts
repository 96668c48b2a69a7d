import {expect, test} from 'vitest'
import {aVersion, aWalk, buildRelease, noRow, query} from './history.ts'

const summary = 'select * from mart.portfolio_summary'
const deals = (...rows: Parameters<typeof aVersion>[0][]) =>
  rows.map((row, index) => aVersion({deal_id: `deal_${index}`, ...row}))

test('sums up a portfolio in one row', async () => {
  const versions = deals(
    {loan_amount: '65', property_value: '100', status: 'funded'},
    {loan_amount: '35', property_value: '50', status: 'approved'},
    {loan_amount: '100', property_value: '0', status: 'on_the_moon'},
    {loan_amount: '7', status: 'draft', kind: 'seen'},
  )
  const vanished = aVersion({deal_id: 'deal_3', day: '2026-03-03', kind: 'vanished'})
  const missing = aVersion({deal_id: 'deal_2', day: '2026-03-03', kind: 'missing'})
  expect(await query({versions: [...versions, vanished, missing]}, summary)).toEqual([
    {
      as_of: '2026-03-31',
      deals: '3',
      amount: '200.00',
      pipeline_deals: '1',
      pipeline_amount: '35.00',
      funded_deals: '1',
      funded_amount: '65.00',
      wa_ltv: 0.6675,
      pooled_ltv: 0.666666667,
      ltv_coverage_pct: 50,
      average_amount: '66.67',
      median_amount: '65.00',
      largest_amount: '100.00',
    },
  ])
})

test('an empty portfolio is one row of zeros', async () => {
  await using db = await buildRelease({walks: [aWalk()]})
  expect(await db.all(noRow, summary)).toEqual([
    {
      as_of: '2026-03-31',
      deals: '0',
      amount: '0.00',
      pipeline_deals: '0',
      pipeline_amount: '0.00',
      funded_deals: '0',
      funded_amount: '0.00',
      wa_ltv: null,
      pooled_ltv: null,
      ltv_coverage_pct: null,
      average_amount: null,
      median_amount: null,
      largest_amount: null,
    },
  ])
  expect(await db.all(noRow, 'select * from mart.portfolio_breakdown')).toEqual([])
  expect(await db.all(noRow, 'select * from mart.position_daily')).toEqual([])
})

test('deals without an amount divide by nothing', async () => {
  const versions = deals({loan_amount: '0', property_value: '100'})
  expect(await query({versions}, summary)).toMatchObject([
    {deals: '1', wa_ltv: null, pooled_ltv: 0, ltv_coverage_pct: null, average_amount: '0.00'},
  ])
})

test('median and average round cents half up', async () => {
  const versions = deals(
    {loan_amount: '0.02'},
    {loan_amount: '9'},
    {loan_amount: '0.01'},
    {loan_amount: '0.03'},
  )
  expect(await query({versions}, summary)).toMatchObject([{median_amount: '0.03', average_amount: '2.27'}])
})

test('the largest amounts overflow nothing', async () => {
  const largest = '9999999999999999.99'
  const versions = deals(
    ...Array.from({length: 12}, () => ({loan_amount: largest, property_value: largest, status: 'funded'})),
    {loan_amount: largest, property_value: '1.00'},
  )
  expect(await query({versions}, summary)).toMatchObject([
    {
      deals: '13',
      amount: '129999999999999999.87',
      wa_ltv: 1,
      pooled_ltv: 1,
      average_amount: largest,
      median_amount: largest,
      largest_amount: largest,
    },
  ])
})

const bucketsOf = (dimension: string) =>
  `select bucket, cast(deals as integer) as deals from mart.portfolio_breakdown
   where dimension = '${dimension}' order by sort_order`

test('an ltv on a band edge belongs to the band below it', async () => {
  const ratios = ['50', '50.01', '60', '65', '65.01', '70', '75', '80', '85', '90', '90.01']
  const versions = deals(
    ...ratios.map((loan_amount) => ({loan_amount, property_value: '100'})),
    {loan_amount: '5', property_value: null},
    {loan_amount: '1000', property_value: '1'},
    {loan_amount: '269230.77', property_value: '414201.18'},
  )
  expect(await query({versions}, bucketsOf('ltv_band'))).toEqual([
    {bucket: '≤50', deals: 1},
    {bucket: '50–60', deals: 2},
    {bucket: '60–65', deals: 1},
    {bucket: '65–70', deals: 3},
    {bucket: '70–75', deals: 1},
    {bucket: '75–80', deals: 1},
    {bucket: '80–85', deals: 1},
    {bucket: '85–90', deals: 1},
    {bucket: '>90', deals: 1},
    {bucket: 'unknown', deals: 2},
  ])
})

test('an amount on a size edge belongs to the band above it', async () => {
  const amounts = ['249999.99', '250000', '500000', '1000000', '2500000', '5000000', '9999999.99', '10000000']
  const versions = deals(...amounts.map((loan_amount) => ({loan_amount})))
  expect(await query({versions}, bucketsOf('size_band'))).toEqual([
    {bucket: '<250k', deals: 1},
    {bucket: '250–500k', deals: 1},
    {bucket: '500k–1m', deals: 1},
    {bucket: '1–2.5m', deals: 1},
    {bucket: '2.5–5m', deals: 1},
    {bucket: '5–10m', deals: 2},
    {bucket: '≥10m', deals: 1},
  ])
})

test('breaks the portfolio down by status, program, state and month, unknown last', async () => {
  const versions = deals(
    {status: 'funded', loan_program: 'zebra', loan_amount: '75', property_value: '100'},
    {status: 'draft', loan_program: null, loan_amount: '25', created_at: '2025-12-31 23:59:59'},
    {status: 'on_the_moon', loan_program: 'bridge', loan_amount: '100', property_address: 'nowhere'},
    {status: 'approved', loan_program: 'bridge', loan_amount: '0', property_address: 'x, CA 90210'},
  )
  await using db = await buildRelease({versions})
  expect(await db.all(noRow, bucketsOf('status'))).toEqual([
    {bucket: 'draft', deals: 1},
    {bucket: 'approved', deals: 1},
    {bucket: 'funded', deals: 1},
    {bucket: 'on_the_moon', deals: 1},
  ])
  expect(await db.all(noRow, bucketsOf('loan_program'))).toEqual([
    {bucket: 'bridge', deals: 2},
    {bucket: 'zebra', deals: 1},
    {bucket: 'unknown', deals: 1},
  ])
  expect(await db.all(noRow, bucketsOf('state'))).toEqual([
    {bucket: 'CA', deals: 1},
    {bucket: 'TX', deals: 2},
    {bucket: 'unknown', deals: 1},
  ])
  expect(await db.all(noRow, bucketsOf('created_month'))).toEqual([
    {bucket: '2025-12', deals: 1},
    {bucket: '2026-02', deals: 3},
  ])
  const zebra = `select * exclude (sort_order) from mart.portfolio_breakdown where bucket = 'zebra'`
  expect(await db.all(noRow, zebra)).toEqual([
    {
      dimension: 'loan_program',
      bucket: 'zebra',
      deals: '1',
      amount: '75.00',
      share_pct: 37.5,
      funded_deals: '1',
      funded_amount: '75.00',
      funded_share_pct: 100,
      wa_ltv: 0.75,
      pooled_ltv: 0.75,
    },
  ])
})

test('position_daily has every day and status, carried over days without a walk', async () => {
  const history = {
    walks: [aWalk({day: '2026-03-02'}), aWalk({day: '2026-03-04'}), aWalk({day: '2026-03-05'})],
    versions: [
      aVersion({deal_id: 'a', loan_amount: '10'}),
      aVersion({deal_id: 'b', loan_amount: '5'}),
      aVersion({deal_id: 'a', day: '2026-03-04', loan_amount: '12', status: 'funded'}),
      aVersion({deal_id: 'b', day: '2026-03-04', kind: 'missing'}),
      aVersion({deal_id: 'b', day: '2026-03-05', kind: 'vanished'}),
    ],
  }
  const rows = await query(history, 'select * from mart.position_daily', {asOf: '2026-03-06'})
  const text = rows.map((row) => Object.values(row as object).join(' '))
  expect(text).toEqual([
    '2026-03-02 draft 2 15.00 true',
    '2026-03-02 funded 0 0.00 true',
    '2026-03-03 draft 2 15.00 false',
    '2026-03-03 funded 0 0.00 false',
    '2026-03-04 draft 1 5.00 true',
    '2026-03-04 funded 1 12.00 true',
    '2026-03-05 draft 0 0.00 true',
    '2026-03-05 funded 1 12.00 true',
    '2026-03-06 draft 0 0.00 false',
    '2026-03-06 funded 1 12.00 false',
  ])
})

test('position_daily counts the last version of a day, and a replay only where it was the last word', async () => {
  const history = {
    walks: [aWalk({day: '2026-03-02'}), aWalk({day: '2026-03-03'})],
    versions: [
      aVersion({loan_amount: '1'}),
      aVersion({loan_amount: '2', observed_at: '2026-03-02 09:00:00'}),
      aVersion({day: '2026-03-03', loan_amount: '4'}),
      aVersion({observed_at: '2026-03-02 12:00:00', business_date: '2026-03-04', loan_amount: '3'}),
    ],
  }
  const rows = await query(history, 'select day, amount from mart.position_daily', {asOf: '2026-03-04'})
  expect(rows).toEqual([
    {day: '2026-03-02', amount: '2.00'},
    {day: '2026-03-03', amount: '4.00'},
    {day: '2026-03-04', amount: '4.00'},
  ])
})

test('mart.run holds applied certificates that as_of and known_at let count', async () => {
  const walks = [
    aWalk({day: '2026-03-02'}),
    aWalk({day: '2026-03-03', state: 'refused', recorded_at: null}),
    aWalk({day: '2026-03-04', state: 'walking', recorded_at: null}),
    aWalk({day: '2026-03-05', recorded_at: '2026-03-20 00:00:00'}),
    aWalk({day: '2026-04-01'}),
  ]
  const ids = 'select walk_id from mart.run'
  expect(await query({walks}, ids)).toEqual([{walk_id: 'walk 2026-03-02'}, {walk_id: 'walk 2026-03-05'}])
  expect(await query({walks}, ids, {knownAt: '2026-03-19 00:00:00'})).toEqual([{walk_id: 'walk 2026-03-02'}])
})
