import {expect, test} from 'vitest'
import {z} from 'zod'
import {aBorrower, aListing, aRate, aVersion, aWalk, type History} from '../../src/build/case-rows.ts'
import {compileModels} from '../../src/build/compile.ts'
import {BUILT_IN_SQL, readModels} from '../../src/build/read-models.ts'
import {readSeeds} from '../../src/build/seeds.ts'
import {writeSqlFolder} from './folder.ts'
import {buildRelease} from './history.ts'

const LARGEST = "cast('9999999999999999.99' as decimal(18, 2))"

const MINE = `-- Limits of a lender's own.
-- grain: state
--
-- state: two letters
-- limit_pct: percent
-- weight: DECIMAL(12,9)
-- small: DECIMAL(4,3)
-- tax_rate: percent as DECIMAL(18,2)
-- amount: USD
select
  state,
  limit_pct,
  cast(0.999999999 as decimal(12, 9)) as weight,
  cast(9.999 as decimal(4, 3)) as small,
  cast(99.99 as decimal(18, 2)) as tax_rate,
  cast(${LARGEST} as decimal(18, 2)) as amount
from seed.state_limit
`

const history: History = {
  walk: [aWalk(), aWalk({day: '2026-03-03'})],
  deal_version: [
    aVersion({
      deal_id: 'a',
      status: 'funded',
      loan_amount: '9999999999999999.99',
      property_value: '1000000000000000.00',
    }),
    aVersion({
      deal_id: 'b',
      status: 'funded',
      loan_amount: '9999999999999999.99',
      property_value: '9999999999999999.99',
    }),
    aVersion({deal_id: 'c', loan_amount: '650000.00', property_value: '1000000.00'}),
    aVersion({deal_id: 'c', day: '2026-03-03', loan_amount: '650000.00', status: 'approved'}),
  ],
  rate: [aRate({value: '9999999999.99999999'})],
  borrower_version: [aBorrower({deal_id: 'a', email_hash: 'ab12'})],
  listing: [aListing({stream: 'borrower', parent_id: 'a'})],
}

const columnRow = z.object({place: z.string(), name: z.string(), type: z.string()})

test('every published ratio, percentage and rate can be multiplied by the largest amount and summed', async () => {
  using folder = writeSqlFolder({
    'risk/limits.sql': MINE,
    'seeds/state_limit.csv': 'state,"limit_pct:decimal(18,2)"\nTX,99.99\n',
  })
  const folders = [BUILT_IN_SQL, folder.path]
  const plan = await compileModels({models: readModels(folders), seeds: readSeeds(folders), checks: []})
  await using db = await buildRelease(history, {}, plan)
  const columns = await db.all(
    columnRow,
    `select schema_name || '.' || table_name as place, column_name as name, data_type as type from duckdb_columns()
     where database_name = 'release' and (data_type = 'DOUBLE' or data_type like 'DECIMAL%')`,
  )
  const factors = columns.filter(
    ({type, name}) => !/^DECIMAL\((18|38),2\)$/.test(type) || /pct|ltv|rate/.test(name),
  )
  expect(factors.map(({place, name}) => `${place}.${name}`)).toEqual(
    expect.arrayContaining([
      'core.deal.ltv',
      'core.reference_rate.value',
      'mart.rate_daily.value',
      'seed.state_limit.limit_pct',
    ]),
  )
  expect(
    factors.filter(({place}) => place === 'risk.limits').map(({name, type}) => `${name} ${type}`),
  ).toEqual([
    'limit_pct DECIMAL(19,2)',
    'weight DECIMAL(19,9)',
    'small DECIMAL(19,3)',
    'tax_rate DECIMAL(19,2)',
  ])
  for (const {place, name} of factors) {
    const sums = await db.all(
      z.object({nulls: z.unknown()}),
      `select sum(${LARGEST} * ${name}) / sum(${LARGEST}) is null as nulls from ${place}`,
    )
    expect(sums, `${place}.${name}`).toHaveLength(1)
  }
  expect(
    await db.all(
      z.object({wa_ltv: z.number()}),
      `
    select round(sum(loan_amount * ltv) / sum(loan_amount), 6) as wa_ltv from core.deal`,
    ),
  ).toEqual([{wa_ltv: 5.5}])
})
