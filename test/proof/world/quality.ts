import {isInBook, type Life} from './life.ts'
import {percent, percentOf, reachedOrder, stateOf} from './marts.ts'
import {listStays} from './stays.ts'
import {amountOf, billionths, fundedOf, isFirstOfDay, listPresent, type Row} from './tables.ts'
import type {Facts} from './truth.ts'

/** How far the numbers can be trusted, in the metrics that follow from the lives of deals. */
export function listQualities(lives: readonly Life[], truth: Facts, asOf: string): Record<string, Row[]> {
  const present = listPresent(lives)
  const first = truth.walks[0]!.on
  const valued = present.filter(({last}) => last.value !== null && last.value > 0n)
  const stays = lives.flatMap((life) => listStays(life, truth, asOf))
  const walk = truth.walks.findLast(({on}) => on <= asOf)!
  /** A metric, and its field after a blank. */
  const row = (name: string, deals: number, value: number | null): Row => {
    const [metric = '', field = null] = name.split(' ')
    return {scope: 'deals', metric, field, found: null, value, deals}
  }
  const share = (name: string, deals: number, whole: number) => row(name, deals, percentOf(deals, whole))
  const shareOf = (name: string, of: readonly Life[], is: (life: Life) => boolean, whole = of) =>
    share(name, of.filter(is).length, whole.length)
  const without = present.filter(({last}) => last.program === null).length
  const rows = [
    row(
      'coverage property_value',
      present.length - valued.length,
      percent(amountOf(valued), amountOf(present)),
    ),
    row('coverage loan_program', without, percentOf(present.length - without, present.length)),
    shareOf('ltv_above_10 property_value', valued, (life) => billionths(life) === null, present),
    shareOf(
      'ltv_above_1_5 property_value',
      valued,
      (life) => (billionths(life) ?? 0n) > 15n * 10n ** 8n,
      present,
    ),
    share('censored_stage_began_unseen', stays.filter(({days}) => days === null).length, stays.length),
    ...(isFirstOfDay(walk, truth.walks) ? [share('quarantined', walk.quarantined, walk.records)] : []),
    shareOf('unparsed property_address', present, ({last}) => stateOf(last) === 'unknown'),
    shareOf('unclassified status', present, ({last}) => last.statusClass === 'unclassified'),
    shareOf('missing', present, ({isMissing}) => isMissing),
    shareOf('censored_funded_at_first_sight', fundedOf(present), ({versions}) => isInBook(versions[0]!)),
    shareOf('censored_created_before_first_walk', lives, ({createdOn}) => createdOn < first),
    shareOf('no_funnel_stage', lives, (life) => reachedOrder(life, truth) < 0),
  ]
  const names = rows.map(({metric, field}) => `('${metric}', '${field ?? ''}')`).join(', ')
  return {[`mart.data_quality where scope = 'deals' and (metric, coalesce(field, '')) in (${names})`]: rows}
}
