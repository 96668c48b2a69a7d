import {addDays} from '../../../src/core/clock.ts'
import {ENDINGS, isInBook, type Life, listLives, type Version} from './life.ts'
import {agingRows, listStays, stageRows} from './stays.ts'
import {
  amountOf,
  amountsOf,
  billionths,
  fundedOf,
  isFirstOfDay,
  isOpen,
  listDays,
  listMonths,
  listPresent,
  type Row,
  ratio,
  ratiosOf,
  standingOn,
  sum,
  totalsOf,
  weighted,
} from './tables.ts'
import type {Facts} from './truth.ts'

const percent = (part: bigint, whole: bigint): number | null => {
  const share = ratio(part * 100n, whole)
  return share === null ? null : Math.round(share * 1e6) / 1e6
}
const percentOf = (part: number, whole: number): number | null => percent(BigInt(part), BigInt(whole))

export function listMarts(lives: readonly Life[], truth: Facts, asOf: string): Record<string, Row[]> {
  const present = listPresent(lives)
  return {
    'mart.portfolio_breakdown': breakdownRows(present),
    'mart.portfolio_monthly': monthlyRows(truth, asOf),
    'mart.concentration': concentrationRows(present),
    "mart.top_exposure where dimension = 'deal'": exposureRows(present),
    'mart.pipeline_funnel': funnelRows(lives, truth),
    'mart.pull_through': pullThroughRows(lives, truth, asOf),
    'mart.stage_duration': stageRows(lives, truth, asOf),
    'mart.status_transition': transitionRows(lives, truth, asOf),
    'mart.pipeline_aging': agingRows(present, lives, truth, asOf),
    'mart.funding_curve': curveRows(lives, truth, asOf),
    'mart.vintage': vintageRows(lives, truth, asOf),
  }
}

const SIZES: [bigint, string][] = [
  [25_000_000n, '<250k'],
  [50_000_000n, '250–500k'],
  [100_000_000n, '500k–1m'],
  [250_000_000n, '1–2.5m'],
  [500_000_000n, '2.5–5m'],
  [1_000_000_000n, '5–10m'],
]
const RATIOS: [bigint, string][] = [
  [50n, '≤50'],
  [60n, '50–60'],
  [65n, '60–65'],
  [70n, '65–70'],
  [75n, '70–75'],
  [80n, '75–80'],
  [85n, '80–85'],
  [90n, '85–90'],
]

const BUCKETS: Record<string, (life: Pick<Life, 'last' | 'createdOn'>) => string> = {
  status: ({last}) => last.status,
  loan_program: ({last}) => last.program ?? 'unknown',
  state: ({last}) => stateOf(last),
  size_band: ({last}) => SIZES.find(([below]) => last.amount < below)?.[1] ?? '≥10m',
  ltv_band(life) {
    const {amount, value} = life.last
    if (billionths(life) === null) return 'unknown'
    return RATIOS.find(([upTo]) => amount * 100n <= value! * upTo)?.[1] ?? '>90'
  },
  created_month: ({createdOn}) => createdOn.slice(0, 7),
}

/** Returns the state that an address names; `ZZ` is none. */
export function stateOf({address}: Pick<Version, 'address'>): string {
  const state = /, ([A-Z]{2}) \d{5}$/.exec(address ?? '')?.[1]
  return state === undefined || state === 'ZZ' ? 'unknown' : state
}

function listBuckets(lives: readonly Life[], dimensions: Record<string, (life: Life) => string>) {
  return Object.entries(dimensions).flatMap(([dimension, bucketOf]) =>
    [...Map.groupBy(lives, bucketOf)].map(([bucket, those]) => ({dimension, bucket, those})),
  )
}

function breakdownRows(present: readonly Life[]): Row[] {
  const [amount, fundedAmount] = [amountOf(present), amountOf(fundedOf(present))]
  return listBuckets(present, BUCKETS).map(({dimension, bucket, those}) => {
    const [open, funded] = [those.filter(isOpen), fundedOf(those)]
    return {
      dimension,
      bucket,
      ...totalsOf('', those),
      share_pct: percent(amountOf(those), amount),
      ...totalsOf('open_', open),
      ...totalsOf(
        'ended_',
        those.filter((life) => !isOpen(life)),
      ),
      ...totalsOf('funded_', funded),
      funded_share_pct: percent(amountOf(funded), fundedAmount),
      ...ratiosOf('open_', open),
      ...ratiosOf('funded_', funded),
    }
  })
}

function endOf(month: string, asOf: string): string {
  return listDays(`${month}-01`, asOf).findLast((day) => day.startsWith(month))!
}

function monthlyRows(truth: Facts, asOf: string): Row[] {
  return listMonths(truth, asOf).flatMap((month) => {
    const day = endOf(month, asOf)
    const open = listPresent(listLives(truth, day)).filter(isOpen)
    const dimensions = {...BUCKETS, status_class: ({last}: Life) => last.statusClass}
    return listBuckets(open, dimensions).map(({dimension, bucket, those}) => ({
      month_end: day,
      dimension,
      bucket,
      ...totalsOf('open_', those),
      open_wa_ltv: weighted(those),
      ...totalsOf('funded_', fundedOf(those)),
      funded_wa_ltv: weighted(fundedOf(those)),
    }))
  })
}

function concentrationRows(present: readonly Life[]): Row[] {
  const dimensions = {deal: ({id}: Life) => id, loan_program: BUCKETS.loan_program!, state: BUCKETS.state!}
  const shares = (prefix: string, lives: readonly Life[], bucketOf: (life: Life) => string) => {
    const amounts = [...Map.groupBy(lives, bucketOf).values()].map(amountOf).sort((a, b) => (a > b ? -1 : 1))
    const whole = sum(amounts)
    const tops = [1, 5, 10].map((count) => [
      `${prefix}_top_${count}_pct`,
      percent(sum(amounts.slice(0, count)), whole),
    ])
    const squares = sum(amounts.map((amount) => amount * amount))
    return {...Object.fromEntries(tops), [`${prefix}_hhi`]: ratio(squares * 10_000n, whole * whole)}
  }
  return Object.entries(dimensions).map(([dimension, bucketOf]) => ({
    dimension,
    ...shares('open', present.filter(isOpen), bucketOf),
    ...shares('funded', fundedOf(present), bucketOf),
  }))
}

function exposureRows(present: readonly Life[]): Row[] {
  const byAmount = (one: Life, other: Life) =>
    Number(other.last.amount - one.last.amount) || (one.id < other.id ? -1 : 1)
  return fundedOf(present)
    .sort(byAmount)
    .slice(0, 25)
    .map(({id, last}, index) => ({rank: index + 1, deal_id: id, loan_amount: last.amount}))
}

/** Returns the highest order that a deal reached among the statuses that lead to a funded loan or follow it; -1 if none. */
function reachedOrder({spells}: Life, truth: Facts): number {
  const orders = spells
    .filter(({statusClass}) => ['pipeline', 'funded', 'ended_funded'].includes(statusClass))
    .map(({status}) => truth.reference.statuses[status]![1])
  return Math.max(-1, ...orders)
}

function funnelRows(lives: readonly Life[], truth: Facts): Row[] {
  const seen = new Set(lives.flatMap(({versions}) => versions.map(({status}) => status)))
  const stages = [...seen].flatMap((status) => {
    const [statusClass, order] = truth.reference.statuses[status] ?? []
    return statusClass === 'pipeline' || statusClass === 'funded' ? [{status, order: order!}] : []
  })
  return [...Map.groupBy(lives, BUCKETS.created_month!)].flatMap(([cohort_month, cohort]) =>
    stages.map(({status, order}) => {
      const reached = cohort.filter((life) => reachedOrder(life, truth) >= order)
      return {
        cohort_month,
        status,
        ...totalsOf('reached_', reached),
        conversion_pct: percentOf(reached.length, cohort.length),
      }
    }),
  )
}

function firstFundedOn({spells}: Life): string | undefined {
  return spells.find(({statusClass}) => statusClass === 'funded' || statusClass === 'ended_funded')?.on
}

/** Returns when a never-funded deal left the pipeline, and its amount before; undefined if it is in, or was out from the start. */
function falloutOf(life: Life): {on: string; amount: bigint} | undefined {
  const isIn = ({change, statusClass}: Version) =>
    change !== 'vanished' && (statusClass === 'pipeline' || statusClass === 'unclassified')
  const lastIn = life.versions.findLastIndex(isIn)
  const fell = life.versions[lastIn + 1]
  if (!fell || firstFundedOn(life) || (lastIn < 0 && life.spells[0]!.after === null)) return undefined
  return {on: fell.on, amount: (life.versions[lastIn] ?? fell).amount}
}

function pullThroughRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const programOf = ({last}: Life) => last.program ?? 'unknown'
  const last = asOf.slice(0, 7)
  // A source may give a creation date in a future month.
  const later = lives.map(({createdOn}) => createdOn.slice(0, 7)).filter((month) => month > last)
  return [...listMonths(truth, asOf), ...new Set(later)].flatMap((month) =>
    ['(all)', ...new Set(lives.map(programOf))].map((loan_program) => {
      const own = lives.filter((life) => loan_program === '(all)' || programOf(life) === loan_program)
      const cohort = own.filter(({createdOn}) => createdOn.startsWith(month))
      const entered = sum(cohort.map(({versions}) => versions[0]!.amount))
      const funded = own
        .flatMap(({movements}) => movements)
        .filter(({term, month: of}) => term === 'originated' && of === month)
      const fallen = own.flatMap((life) => falloutOf(life) ?? []).filter(({on}) => on.startsWith(month))
      const later = cohort.filter(firstFundedOn).length
      // A month that began before the first walk is only partly known.
      const isKnown = `${month}-01` >= truth.walks[0]!.on && month <= last
      const shares = (name: string, share: string, of: readonly {amount: bigint}[]) => ({
        [name]: of.length,
        [`${name}_amount`]: amountsOf(of),
        [`${share}_pct`]: isKnown ? percentOf(of.length, cohort.length) : null,
        [`${share}_amount_pct`]: isKnown ? percent(amountsOf(of), entered) : null,
      })
      return {
        month,
        loan_program,
        entered: cohort.length,
        entered_amount: entered,
        ...shares('funded', 'pull_through', funded),
        ...shares('fallout', 'fallout', fallen),
        cohort_funded: later,
        cohort_pull_through_pct: isKnown ? percentOf(later, cohort.length) : null,
      }
    }),
  )
}

const OUTCOMES = ['funded', ...ENDINGS, 'reversed', 'vanished']

/** Returns the outcomes of the loans first funded in a month, at the end of that month and of each later month that has ended. */
function vintageRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const loans = lives.flatMap((life) => {
    const origination = life.movements.find(({term}) => term === 'originated')
    return origination ? [{life, month: origination.month, amount: origination.amount}] : []
  })
  return [...Map.groupBy(loans, ({month}) => month)].flatMap(([cohort_month, cohort]) => {
    if (`${cohort_month}-01` < truth.walks[0]!.on) return []
    const whole = amountsOf(cohort)
    const ofCohort = {cohort_month, cohort_deals: cohort.length, cohort_amount: whole}
    const hasEnded = (month: string) => !addDays(asOf, 1).startsWith(month)
    const ages = listMonths(truth, asOf).filter((month) => month >= cohort_month && hasEnded(month))
    return ages.flatMap((month, age) => {
      const standing = cohort.map(({life}) => {
        const version = life.versions.findLast(({on}) => on.slice(0, 7) <= month)!
        if (isInBook(version)) return {outcome: 'funded', amount: version.amount}
        const left = life.movements.findLast((one) => one.month <= month && OUTCOMES.includes(one.term))!
        return {outcome: left.term, amount: left.amount}
      })
      return OUTCOMES.map((outcome) => {
        const same = standing.filter((one) => one.outcome === outcome)
        const amount = amountsOf(same)
        const share_pct = percent(amount, whole)
        return {...ofCohort, months_on_book: age, outcome, deals: same.length, amount, share_pct}
      })
    })
  })
}

function transitionRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const first = truth.walks[0]!.on
  return listMonths(truth, asOf).flatMap((month) => {
    const isFirst = month === first.slice(0, 7)
    const start = isFirst ? first : addDays(`${month}-01`, -1)
    const days = [start, ...listDays(isFirst ? first : `${month}-01`, endOf(month, asOf))]
    const ways = lives.flatMap((life) => {
      const stood = days.map((day) => standingOn(life, day))
      const last = stood.findLast((version) => version !== undefined)
      const [from, to] = [stood[0], stood.at(-1)]
      return last
        ? [{from: from?.status, to: to?.status, before: from?.amount ?? 0n, amount: last.amount}]
        : []
    })
    const isPartial = isFirst || addDays(asOf, 1).startsWith(month)
    return [...Map.groupBy(ways, ({from, to}) => JSON.stringify([from ?? null, to ?? null])).values()].map(
      (same) => {
        const {from, to} = same[0]!
        const began = ways.filter((way) => way.from === from)
        const before = (some: typeof ways) => sum(some.map((way) => way.before))
        return {
          month,
          from_status: from ?? '(new)',
          to_status: to ?? '(gone)',
          deals: same.length,
          amount: amountsOf(same),
          roll_rate_pct: from === undefined ? null : percentOf(same.length, began.length),
          roll_rate_amount_pct: from === undefined ? null : percent(before(same), before(began)),
          is_partial: isPartial,
        }
      },
    )
  })
}

const monthNumber = (date: string) => Number(date.slice(0, 4)) * 12 + Number(date.slice(5, 7))

function curveRows(lives: readonly Life[], truth: Facts, asOf: string): Row[] {
  const first = truth.walks[0]!.on
  const isMonthEnd = new Date(Date.parse(asOf) + 86_400_000).getUTCDate() === 1
  const complete = monthNumber(asOf) - (isMonthEnd ? 0 : 1)
  return [...Map.groupBy(lives, BUCKETS.created_month!)].flatMap(([cohort_month, cohort]) => {
    if (`${cohort_month}-01` < first) return []
    const start = monthNumber(cohort_month)
    return Array.from({length: Math.max(0, complete - start + 1)}, (_, age) => {
      const isFunded = (life: Life) => monthNumber(firstFundedOn(life) ?? '9999-12') <= start + age
      const funded_pct = percentOf(cohort.filter(isFunded).length, cohort.length)
      return {cohort_month, age_months: age, deals: cohort.length, funded_pct}
    })
  })
}

export function listQualities(lives: readonly Life[], truth: Facts, asOf: string): Record<string, Row[]> {
  const present = listPresent(lives)
  const first = truth.walks[0]!.on
  const valued = present.filter(({last}) => last.value !== null && last.value > 0n)
  const stays = lives.flatMap((life) => listStays(life, truth, asOf))
  const walk = truth.walks.findLast(({on}) => on <= asOf)!
  /** Makes a row; `name` is the metric and, after a space, its field. */
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
