import {expect, test} from 'vitest'
import type {Counted} from '../../src/build/build-models.ts'
import {aDrift, aVersion, aWalk, type History, type Row} from '../../src/build/case-rows.ts'
import {query} from './history.ts'

const deals = (...rows: Row[]) => rows.map((row, index) => aVersion({deal_id: `deal_${index}`, ...row}))

/** The metrics that begin with a word, each as `value deals` by metric, field and what was found. */
async function metrics(
  history: History,
  word: string,
  counted?: Partial<Counted>,
): Promise<Record<string, string>> {
  const name = `concat_ws(' ', metric, field, found)`
  const rows = await query(
    history,
    `select ${name} as name, value, deals from mart.data_quality where ${name} like '${word}%' order by name`,
    counted,
  )
  return Object.fromEntries(
    rows
      .map((row) => Object.values(row as object))
      .map(([name, value, count]) => [name, `${value} ${count}`]),
  )
}

test('an empty portfolio lacks nothing: every metric stands there, without a share', async () => {
  expect(await metrics({walks: [aWalk()]}, '')).toEqual({
    censored_created_before_first_walk: 'null 0',
    censored_funded_at_first_sight: 'null 0',
    censored_funding_curve: 'null 0',
    censored_inexact_funding_date: 'null 0',
    censored_stage_began_unseen: 'null 0',
    censored_vintage: 'null 0',
    'coverage loan_program': 'null 0',
    'coverage property_value': 'null 0',
    'coverage value_confirmed_on': 'null 0',
    'ltv_above_10 property_value': 'null 0',
    'ltv_above_1_5 property_value': 'null 0',
    missing: 'null 0',
    no_funnel_stage: 'null 0',
    quarantined: 'null 0',
    'unclassified status': 'null 0',
    'unparsed property_address': 'null 0',
  })
})

test('a history without a walk still builds', async () => {
  expect(Object.keys(await metrics({}, ''))).toHaveLength(16)
})

test('metrics are unique and in order', async () => {
  const drift = [aDrift({path: 'a'}), aDrift({kind: 'missing_field', path: 'a'}), aDrift({path: 'b'})]
  const rows = await query(
    {walks: [aWalk({records: 9})], drift},
    `select concat_ws(' ', scope, metric, field, found) as name from mart.data_quality`,
  )
  const names = rows.map((row) => (row as {name: string}).name)
  expect(names).toEqual([...new Set(names)].sort())
  expect(names).toHaveLength(19)
})

test('the largest amounts overflow no share', async () => {
  const largest = '9999999999999999.99'
  const versions = deals(...Array.from({length: 12}, () => ({loan_amount: largest, property_value: '1'})))
  expect(await metrics({versions}, 'coverage property')).toEqual({'coverage property_value': '100 0'})
})

test('counts addresses that do not parse and deals that are missing, not those that vanished', async () => {
  const versions = [
    ...deals({}, {property_address: 'somewhere'}, {property_address: null}, {property_address: 'nowhere'}),
    aVersion({deal_id: 'deal_0', day: '2026-03-03', kind: 'missing'}),
    aVersion({deal_id: 'deal_3', day: '2026-03-03', kind: 'vanished'}),
  ]
  expect(await metrics({versions}, 'unparsed')).toEqual({'unparsed property_address': '66.666667 2'})
  expect(await metrics({versions}, 'missing')).toEqual({missing: '33.333333 1'})
})

test('quarantine and drift are those of the last walk that counts', async () => {
  const history = {
    walks: [
      aWalk({day: '2026-03-02', records: 50, quarantined: 1}),
      aWalk({day: '2026-03-03', records: 200, quarantined: 3}),
      aWalk({day: '2026-03-04', state: 'refused', recorded_at: null, records: 9, quarantined: 9}),
    ],
    drift: [
      aDrift({day: '2026-03-02', path: 'old', records: 5}),
      aDrift({day: '2026-03-03', path: 'borrower.name', records: 100}),
      aDrift({day: '2026-03-03', kind: 'missing_field', path: 'loan_program', records: 1}),
      aDrift({day: '2026-03-03', kind: 'unknown_value', path: 'status', value: 'on hold', records: 2}),
      aDrift({day: '2026-03-04', path: 'refused'}),
    ],
  }
  expect(await metrics(history, 'quarantined')).toEqual({quarantined: '1.5 3'})
  expect(await metrics(history, 'drift')).toEqual({
    'drift_missing_field loan_program': '0.5 1',
    'drift_new_field borrower.name': '50 100',
    'drift_unknown_value status on hold': '1 2',
  })
  const counted = {asOf: '2026-03-02'}
  expect(await metrics(history, 'quarantined', counted)).toEqual({quarantined: '2 1'})
  expect(await metrics(history, 'drift', counted)).toEqual({'drift_new_field old': '10 5'})
  expect(await metrics(history, 'drift', {knownAt: '2026-03-03 00:00:00'})).toEqual({
    'drift_new_field old': '10 5',
  })
})
