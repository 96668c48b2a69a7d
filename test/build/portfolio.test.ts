import {expect, test} from 'vitest'
import {aVersion, aWalk} from '../../src/build/case-rows.ts'
import {buildRelease, noRow, query} from './history.ts'

const summary = 'select * from mart.portfolio_summary'
const deals = (...rows: Parameters<typeof aVersion>[0][]) =>
  rows.map((row, index) => aVersion({deal_id: `deal_${index}`, ...row}))

test('an empty portfolio is one row of zeros', async () => {
  await using db = await buildRelease({walks: [aWalk()]})
  expect(await db.all(noRow, summary)).toEqual([
    {
      as_of: '2026-03-31',
      deals: '0',
      amount: '0.00',
      open_deals: '0',
      open_amount: '0.00',
      open_wa_ltv: null,
      open_pooled_ltv: null,
      open_ltv_coverage_pct: null,
      open_average_amount: null,
      open_median_amount: null,
      open_largest_amount: null,
      ended_deals: '0',
      ended_amount: '0.00',
      pipeline_deals: '0',
      pipeline_amount: '0.00',
      funded_deals: '0',
      funded_amount: '0.00',
      funded_wa_ltv: null,
      funded_pooled_ltv: null,
      funded_ltv_coverage_pct: null,
      funded_average_amount: null,
      funded_median_amount: null,
      funded_largest_amount: null,
    },
  ])
  expect(await db.all(noRow, 'select * from mart.portfolio_breakdown')).toEqual([])
  expect(await db.all(noRow, 'select * from mart.position_daily')).toEqual([])
})

test('deals without an amount divide by nothing', async () => {
  const versions = deals({loan_amount: '0', property_value: '100'})
  expect(await query({versions}, summary)).toMatchObject([
    {
      deals: '1',
      open_wa_ltv: null,
      open_pooled_ltv: 0,
      open_ltv_coverage_pct: null,
      open_average_amount: '0.00',
    },
  ])
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
      open_wa_ltv: 1,
      open_pooled_ltv: 1,
      open_average_amount: largest,
      open_median_amount: largest,
      funded_average_amount: largest,
      funded_median_amount: largest,
      funded_largest_amount: largest,
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
