import {expect, test} from 'vitest'
import {createSilentLog} from '../../src/core/log.ts'
import {planCombined} from '../../src/export/clickhouse-combined.ts'
import {findCurrentRelease, readReleaseModels} from '../../src/store/release.ts'
import {writeSqlFolder} from '../build/folder.ts'
import {createLab, DAY_1, someDeals} from '../support/lab.ts'

test("every mart about more than one deal has a total over all lenders, and so has one's own mart where possible", async () => {
  await using lab = await createLab({tables: 'all'})
  lab.service.store.insert(someDeals(3))
  using own = writeSqlFolder({
    'risk/by_state.sql': `-- Deals by state.\n-- grain: state\n--\n-- state: as in core.deal\n-- deals: how many\nselect state, count(*) as deals from core.deal group by state\n`,
    'risk/largest.sql': `-- The state with most deals.\n-- grain: deals\n--\n-- deals: how many\nselect max(deals) as deals from risk.by_state\n`,
    'risk/drift.sql': `-- Deals, and what their sources changed.\n-- grain: deals\n--\n-- deals: how many\n-- changes: how many\nselect count(*) as deals, (select count(*) from work.source_drift) as changes from core.deal\n`,
    'risk/digits.sql': `-- Digits of addresses.\n-- grain: digits\n--\n-- digits: the first\nselect distinct regexp_extract(property_address, '[0-9]+') as digits from core.deal\n`,
  })
  await lab.sync(DAY_1, {config: {sqlDir: own.path}})
  const models = readReleaseModels(findCurrentRelease(lab.folder)?.dir ?? '') ?? []
  const said: unknown[] = []
  const log = {...createSilentLog(), info: (...words: unknown[]) => void said.push(words)}
  const kept = [
    'work.deal_life',
    'work.deal_standing',
    'work.funded_movement',
    'work.position_span',
    'work.month_move',
  ]
  const plan = await planCombined({models, kept: [...kept, 'work.source_drift']}, {log})
  expect(
    plan.models
      .filter(({is_published}) => is_published)
      .map(({name}) => name)
      .sort(),
  ).toEqual([
    'mart.concentration',
    'mart.funded_rollforward',
    'mart.funding_curve',
    'mart.origination_monthly',
    'mart.pipeline_funnel',
    'mart.portfolio_breakdown',
    'mart.portfolio_monthly',
    'mart.portfolio_summary',
    'mart.position_daily',
    'mart.pull_through',
    'mart.status_transition',
    'mart.top_exposure',
    'mart.vintage',
    'risk.by_state',
    'risk.largest',
  ])
  expect(plan.inputs).toEqual(['seed.status', ...kept].sort())
  expect(JSON.stringify(said)).toContain('risk.digits: the function regexp_extract')
})
