import {expect, test} from 'vitest'
import {createSilentLog} from '../../src/core/log.ts'
import {planCombined} from '../../src/export/clickhouse-combined.ts'
import {findCurrentRelease, readReleaseModels} from '../../src/store/release.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {createLab, DAY_1, someDeals} from '../support/lab.ts'

test("every mart about more than one deal has a total over all lenders, and so has one's own mart where possible", async () => {
  await using lab = await createLab({tables: 'all', deals: someDeals(3)})
  const model = (grain: string, sql: string) =>
    `-- Something.\n-- grain: ${grain}\n--\n-- ${grain}: it\n-- deals: how many\n${sql}\n`
  using own = writeSqlFolder({
    'risk/by_state.sql': model('state', 'select state, count(*) as deals from core.deal group by state'),
    'risk/largest.sql': model('state', "select 'any' as state, max(deals) as deals from risk.by_state"),
    'risk/drift.sql': model('changes', 'select count(*) as changes, 1 as deals from work.source_drift'),
    'risk/digits.sql': model(
      'digits',
      "select distinct regexp_extract(property_address, '[0-9]+') as digits, 1 as deals from core.deal",
    ),
  })
  await lab.sync(DAY_1, {config: {sqlDir: own.path}})
  const models = readReleaseModels(findCurrentRelease(lab.folder)?.dir ?? '') ?? []
  const said: unknown[] = []
  const log = {...createSilentLog(), info: (...words: unknown[]) => void said.push(words)}
  const kept = ['deal_life', 'deal_standing', 'funded_movement', 'position_span', 'month_move'].map(
    (name) => `work.${name}`,
  )
  const plan = await planCombined({models, kept: [...kept, 'work.source_drift']}, {log})
  const published = plan.models.filter(({is_published}) => is_published).map(({name}) => name)
  const marts = [
    ...['concentration', 'funded_rollforward', 'funding_curve', 'origination_monthly', 'pipeline_funnel'],
    ...['portfolio_breakdown', 'portfolio_monthly', 'portfolio_summary', 'position_daily', 'pull_through'],
    ...['status_transition', 'top_exposure', 'vintage'],
  ]
  expect(published.sort()).toEqual([...marts.map((name) => `mart.${name}`), 'risk.by_state', 'risk.largest'])
  expect(plan.inputs).toEqual(['seed.status', ...kept].sort())
  expect(JSON.stringify(said)).toContain('risk.digits: the function regexp_extract')
})
