import {expect, test} from 'vitest'
import {aRow, type History} from '../../src/build/case-rows.ts'
import {compileModels} from '../../src/build/compile.ts'
import {readModels} from '../../src/build/read-models.ts'
import {readSeeds} from '../../src/build/seeds.ts'
import {anyRow} from '../support/data.ts'
import {writeSqlFolder} from './folder.ts'
import {buildRelease, builtInPlan, planOf} from './history.ts'

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

const largest = {status: 'funded', loan_amount: '9999999999999999.99'}
const history: History = {
  walk: [aRow('walk'), aRow('walk', {day: '2026-03-03'})],
  deal_version: [
    aRow('deal_version', {...largest, deal_id: 'a', property_value: '1000000000000000.00'}),
    aRow('deal_version', {...largest, deal_id: 'b', property_value: '9999999999999999.99'}),
    aRow('deal_version', {deal_id: 'c', loan_amount: '650000.00', property_value: '1000000.00'}),
  ],
  rate: [aRow('rate', {value: '9999999999.99999999'})],
}

const isFactor = ({name, type}: {name: string; type: string}) =>
  /^(DOUBLE|DECIMAL)/.test(type) && (!/^DECIMAL\((18|38),2\)$/.test(type) || /pct|ltv|rate/.test(name))

test('every published ratio, percentage and rate can be multiplied by the largest amount and summed', async () => {
  using folder = writeSqlFolder({
    'risk/limits.sql': MINE,
    'seeds/state_limit.csv': 'state,"limit_pct:decimal(18,2)"\nTX,99.99\n',
  })
  const folders = [folder.path]
  const own = await compileModels({models: readModels(folders), seeds: readSeeds(folders), checks: []})
  const mine = ['risk.limits', 'seed.state_limit'].flatMap((table) => own.columns.get(table) ?? [])
  const factors = mine.filter(isFactor)
  expect(factors.map(({name, type}) => `${name} ${type}`)).toEqual([
    'limit_pct DECIMAL(19,2)',
    'weight DECIMAL(19,9)',
    'small DECIMAL(19,3)',
    'tax_rate DECIMAL(19,2)',
    'limit_pct DECIMAL(19,2)',
  ])
  // With 19 digits or more, the engine multiplies by an amount without overflow.
  const {plan} = await builtInPlan()
  const published = plan.models.filter(({isPublished}) => isPublished)
  const shipped = published.flatMap(({name}) => plan.columns.get(name) ?? []).filter(isFactor)
  expect(shipped.length).toBeGreaterThan(20)
  expect(shipped.filter(({type}) => !/^(DOUBLE|DECIMAL\((19|2\d|3\d),\d+\))$/.test(type))).toEqual([])

  const isSummed = (column: string) => `sum(${LARGEST} * ${column}) / sum(${LARGEST}) > 0`
  const tables = 'core.deal core.reference_rate mart.rate_daily'
  await using db = await buildRelease(history, {}, await planOf(tables))
  const multiplied = `select
    (select ${isSummed('value')} from core.reference_rate) as rate,
    (select ${isSummed('value')} from mart.rate_daily) as rate_of_day,
    round(sum(loan_amount * ltv) / sum(loan_amount), 6) as wa_ltv
  from core.deal`
  expect(await db.one(anyRow, multiplied)).toEqual({rate: true, rate_of_day: true, wa_ltv: 5.5})
})
