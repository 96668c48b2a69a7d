import {isInBook, type Life} from './life.ts'
import {billionths, dollars, isOpen, listMonths, pooled, type Row, ratio, sum, weighted} from './tables.ts'
import type {Truth} from './truth.ts'

export const amountOf = (lives: readonly Life[]): bigint => sum(lives.map(({last}) => last.amount))
export const fundedOf = (lives: readonly Life[]): Life[] => lives.filter(({last}) => isInBook(last))
/** A share of a whole in percent; null where there is nothing to take it of. */
export const percent = (part: bigint, whole: bigint): number | null => {
  const share = ratio(part * 100n, whole)
  return share === null ? null : Math.round(share * 1e6) / 1e6
}
export const percentOf = (part: number, whole: number): number | null => percent(BigInt(part), BigInt(whole))

/** The tables about the whole portfolio and about its past, as the lives of deals have them. */
export function listMarts(lives: readonly Life[], truth: Truth, asOf: string): Record<string, Row[]> {
  const present = lives.filter(({last}) => last.change !== 'vanished')
  return {
    'mart.portfolio_breakdown': breakdownRows(present),
    'mart.concentration': concentrationRows(present),
    "mart.top_exposure where dimension = 'deal'": exposureRows(present),
    'mart.pipeline_funnel': funnelRows(lives, truth),
    'mart.pull_through': pullThroughRows(lives, truth, asOf),
    'mart.stage_duration': durationRows(lives, present),
    'mart.vintage_curve': vintageRows(lives, truth, asOf),
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

/** The bucket of a deal in each dimension. */
const BUCKETS: Record<string, (life: Life) => string> = {
  status: ({last}) => last.status,
  loan_program: ({last}) => last.program ?? 'unknown',
  state: stateOf,
  size_band: ({last}) => SIZES.find(([below]) => last.amount < below)?.[1] ?? '≥10m',
  ltv_band(life) {
    const {amount, value} = life.last
    if (billionths(life) === null) return 'unknown'
    return RATIOS.find(([upTo]) => amount * 100n <= value! * upTo)?.[1] ?? '>90'
  },
  created_month: ({createdOn}) => createdOn.slice(0, 7),
}

/** The state an address of a story names. */
export function stateOf({last}: Life): string {
  return /, ([A-Z]{2}) \d{5}$/.exec(last.address ?? '')?.[1] ?? 'unknown'
}

function breakdownRows(present: readonly Life[]): Row[] {
  const [amount, fundedAmount] = [amountOf(present), amountOf(fundedOf(present))]
  return Object.entries(BUCKETS).flatMap(([dimension, bucketOf]) =>
    [...Map.groupBy(present, bucketOf)].map(([bucket, lives]) => {
      const funded = fundedOf(lives)
      const open = lives.filter(isOpen)
      return {
        dimension,
        bucket,
        deals: String(lives.length),
        amount: dollars(amountOf(lives)),
        share_pct: percent(amountOf(lives), amount),
        open_deals: String(open.length),
        open_amount: dollars(amountOf(open)),
        ended_deals: String(lives.length - open.length),
        ended_amount: dollars(amountOf(lives) - amountOf(open)),
        funded_deals: String(funded.length),
        funded_amount: dollars(amountOf(funded)),
        funded_share_pct: percent(amountOf(funded), fundedAmount),
        wa_ltv: weighted(lives),
        pooled_ltv: pooled(lives),
      }
    }),
  )
}

function concentrationRows(present: readonly Life[]): Row[] {
  const dimensions = {deal: ({id}: Life) => id, loan_program: BUCKETS.loan_program!, state: stateOf}
  const shares = (lives: readonly Life[], bucketOf: (life: Life) => string) => {
    const amounts = [...Map.groupBy(lives, bucketOf).values()].map(amountOf).sort((a, b) => (a > b ? -1 : 1))
    const whole = sum(amounts)
    const top = (count: number) => percent(sum(amounts.slice(0, count)), whole)
    const squares = sum(amounts.map((amount) => amount * amount))
    return {top, hhi: ratio(squares * 10_000n, whole * whole)}
  }
  return Object.entries(dimensions).map(([dimension, bucketOf]) => {
    const [all, funded] = [shares(present, bucketOf), shares(fundedOf(present), bucketOf)]
    return {
      dimension,
      top_1_pct: all.top(1),
      top_5_pct: all.top(5),
      top_10_pct: all.top(10),
      hhi: all.hhi,
      funded_top_1_pct: funded.top(1),
      funded_top_5_pct: funded.top(5),
      funded_top_10_pct: funded.top(10),
      funded_hhi: funded.hhi,
    }
  })
}

function exposureRows(present: readonly Life[]): Row[] {
  const byAmount = (one: Life, other: Life) =>
    one.last.amount === other.last.amount
      ? one.id < other.id
        ? -1
        : 1
      : one.last.amount > other.last.amount
        ? -1
        : 1
  return fundedOf(present)
    .sort(byAmount)
    .slice(0, 25)
    .map(({id, last}, index) => ({rank: String(index + 1), deal_id: id, loan_amount: dollars(last.amount)}))
}

/** The farthest a deal got, of the statuses that lead to a funded loan or follow it. */
export function reachedOrder({spells}: Life, truth: Truth): number {
  const orders = spells
    .filter(({statusClass}) => ['pipeline', 'funded', 'ended_funded'].includes(statusClass))
    .map(({status}) => truth.reference.statuses[status]![1])
  return Math.max(-1, ...orders)
}

function funnelRows(lives: readonly Life[], truth: Truth): Row[] {
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
        reached_deals: String(reached.length),
        reached_amount: dollars(amountOf(reached)),
        conversion_pct: percentOf(reached.length, cohort.length),
      }
    }),
  )
}

/** The business date on which a deal was first seen funded, or past it. */
function firstFundedOn({spells}: Life): string | undefined {
  return spells.find(({statusClass}) => statusClass === 'funded' || statusClass === 'ended_funded')?.on
}

function pullThroughRows(lives: readonly Life[], truth: Truth, asOf: string): Row[] {
  return listMonths(truth, asOf).map((month) => {
    const cohort = lives.filter(({createdOn}) => createdOn.startsWith(month))
    const isFunded = ({movements}: Life) =>
      movements.some(({term, month: of}) => term === 'originated' && of === month)
    const [funded, later] = [lives.filter(isFunded).length, cohort.filter(firstFundedOn).length]
    return {
      month,
      entered: String(cohort.length),
      funded: String(funded),
      pull_through_pct: percentOf(funded, cohort.length),
      cohort_funded: String(later),
      cohort_pull_through_pct: percentOf(later, cohort.length),
    }
  })
}

/** Calendar days that each change of status ended; of spells that were seen to begin only. */
function listDurations({spells}: Life): {status: string; days: number}[] {
  return spells.slice(1).flatMap((spell, index) => {
    const before = spells[index]!
    if (index === 0 && before.after === null) return []
    const days = Math.round((Date.parse(spell.on) - Date.parse(before.on)) / 86_400_000)
    return [{status: before.status, days}]
  })
}

function durationRows(lives: readonly Life[], present: readonly Life[]): Row[] {
  const statuses = new Set(lives.flatMap(({versions}) => versions.map(({status}) => status)))
  const durations = lives.flatMap(listDurations)
  return [...statuses].map((status) => {
    const days = durations
      .filter((one) => one.status === status)
      .map((one) => one.days)
      .sort((a, b) => a - b)
    const count = days.length
    return {
      status,
      completed: String(count),
      median_days: count === 0 ? null : (days[(count - 1) >> 1]! + days[count >> 1]!) / 2,
      p90_days: count === 0 ? null : String(days[Math.ceil(count * 0.9) - 1]),
      still_open: String(present.filter(({last}) => last.status === status).length),
    }
  })
}

const monthNumber = (date: string) => Number(date.slice(0, 4)) * 12 + Number(date.slice(5, 7))

function vintageRows(lives: readonly Life[], truth: Truth, asOf: string): Row[] {
  const first = truth.walks[0]!.on
  const isMonthEnd = new Date(Date.parse(asOf) + 86_400_000).getUTCDate() === 1
  const complete = monthNumber(asOf) - (isMonthEnd ? 0 : 1)
  return [...Map.groupBy(lives, BUCKETS.created_month!)].flatMap(([cohort_month, cohort]) => {
    if (`${cohort_month}-01` < first) return []
    const start = monthNumber(cohort_month)
    return Array.from({length: Math.max(0, complete - start + 1)}, (_, age) => {
      const isFunded = (life: Life) => monthNumber(firstFundedOn(life) ?? '9999-12') <= start + age
      const funded = cohort.filter(isFunded).length
      return {
        cohort_month,
        age_months: String(age),
        deals: String(cohort.length),
        funded_pct: percentOf(funded, cohort.length),
      }
    })
  })
}
