import {isInBook, type Life} from './life.ts'
import {amountOf, fundedOf, percent, percentOf, reachedOrder, stateOf} from './marts.ts'
import {listStays} from './stays.ts'
import {billionths, isFirstOfDay, type Row} from './tables.ts'
import type {Facts} from './truth.ts'

/** How far the numbers can be trusted, in the metrics that follow from the lives of deals. */
export function listQualities(lives: readonly Life[], truth: Facts, asOf: string): Record<string, Row[]> {
  const present = lives.filter(({last}) => last.change !== 'vanished')
  const funded = fundedOf(present)
  const first = truth.walks[0]!.on
  const row = (name: string, concerned: number, whole: number, isCoverage = false) => ({
    ...named(name),
    value: percentOf(isCoverage ? whole - concerned : concerned, whole),
    deals: String(concerned),
  })
  const count = (of: readonly Life[], is: (life: Life) => boolean) => of.filter(is).length
  const valued = present.filter(({last}) => last.value !== null && last.value > 0n)
  const stays = lives.flatMap((life) => listStays(life, truth, asOf))
  const walk = truth.walks.findLast(({on}) => on <= asOf)!
  const rows = [
    {
      ...named('coverage property_value'),
      value: percent(amountOf(valued), amountOf(present)),
      deals: String(present.length - valued.length),
    },
    row(
      'ltv_above_10 property_value',
      count(valued, (life) => billionths(life) === null),
      present.length,
    ),
    row(
      'ltv_above_1_5 property_value',
      count(valued, (life) => (billionths(life) ?? 0n) > 1_500_000_000n),
      present.length,
    ),
    row('censored_stage_began_unseen', stays.filter(({days}) => days === null).length, stays.length),
    ...(isFirstOfDay(walk, truth.walks) ? [row('quarantined', walk.quarantined, walk.records)] : []),
    row(
      'coverage loan_program',
      count(present, ({last}) => last.program === null),
      present.length,
      true,
    ),
    row(
      'unparsed property_address',
      count(present, ({last}) => stateOf(last) === 'unknown'),
      present.length,
    ),
    row(
      'unclassified status',
      count(present, ({last}) => last.statusClass === 'unclassified'),
      present.length,
    ),
    row(
      'missing',
      count(present, ({isMissing}) => isMissing),
      present.length,
    ),
    row(
      'censored_funded_at_first_sight',
      count(funded, ({versions}) => isInBook(versions[0]!)),
      funded.length,
    ),
    row(
      'censored_created_before_first_walk',
      count(lives, ({createdOn}) => createdOn < first),
      lives.length,
    ),
    row(
      'no_funnel_stage',
      count(lives, (life) => reachedOrder(life, truth) < 0),
      lives.length,
    ),
  ]
  const names = rows.map(({metric, field}) => `('${metric}', '${field ?? ''}')`).join(', ')
  return {[`mart.data_quality where scope = 'deals' and (metric, coalesce(field, '')) in (${names})`]: rows}
}

/** A metric, and its field after a blank. */
function named(name: string): {scope: string; metric: string; field: string | null; found: null} {
  const [metric = '', field = null] = name.split(' ')
  return {scope: 'deals', metric, field, found: null}
}
