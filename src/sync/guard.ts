import type {Stream} from '../contract/stream.ts'
import {newError} from '../core/errors.ts'
import {formatCents} from '../core/money.ts'
import type {Movement} from './movement.ts'
import type {ChangePlan} from './plan-changes.ts'

/** What an operator can accept. */
export const ACCEPTABLE = ['shrink', 'change', 'growth', 'envelope', 'source'] as const

/** One of {@link ACCEPTABLE}. */
export type Acceptance = (typeof ACCEPTABLE)[number]

/** Percentages of the known records. */
interface GuardLimits {
  shrinkLimitPct: number
  changeLimitPct: number
  growthLimitPct: number
}

/** A plan and its movement since the last applied walk. */
export type MeasuredPlan = ChangePlan & {moved: Movement}

const CODES = {shrink: 'GUARD_SHRINK', growth: 'GUARD_GROWTH', change: 'GUARD_CHANGE'} as const

/** Fewer records than this never trip a guard: a small portfolio moves in large steps. */
const IGNORED_RECORDS = 3

/** No known portfolio is larger: a first walk that reads more is considered endless. */
const LARGEST_FIRST = 10_000_000

/** How far to read beyond the growth limit: unreadable and returning records do not count as growth. */
const ENDLESS_MARGIN = {factor: 1.1, records: 1000}

/** The same threshold for everyday changes, which are rarely wrong: new records and status steps. */
const IGNORED_STEPS = 10

/** A larger share of the pipeline never enters a settled status between two walks. */
const ENTERED_LIMIT_PCT = 50

/**
 * Refuses a plan that removes, changes or adds more of the portfolio than a day can explain; an empty list is never
 * explained. Changes from looks since the last walk count as part of this plan.
 *
 * @throws GuardError `GUARD_SHRINK`, `GUARD_GROWTH` or `GUARD_CHANGE`
 */
export function guardChanges(
  plan: MeasuredPlan,
  limits: GuardLimits,
  accepted: ReadonlySet<Acceptance>,
  stream: Stream,
): void {
  const isForeign = accepted.has('source') || countListed(plan) === plan.counts.created
  const guards = [
    {accept: 'shrink', findings: findShrink(plan, limits, stream), ask: 'whether they were deleted'},
    {accept: 'growth', findings: findGrowth(plan, limits, stream), ask: 'whether that is right'},
    {accept: 'change', findings: findChanges(plan, limits, stream), ask: 'whether that is right'},
  ] as const
  for (const {accept, findings, ask} of guards) {
    if (findings.length === 0 || accepted.has(accept)) continue
    const isElsewhere = accept === 'shrink' && isForeign
    throw newError(CODES[accept], `Refused: ${findings.join('; ')}.`, {
      next: isElsewhere
        ? 'If this is another service, give it a folder of its own with --data. Otherwise ask the service where they are.'
        : `Ask the service ${ask}. If so, run \`loantape sync --accept ${accept}\`.`,
    })
  }
}

/**
 * How many records a list may show before it is considered endless: more than {@link guardChanges} would let through.
 *
 * @param known records present before
 */
export function mostListed(
  known: number,
  {growthLimitPct}: Pick<GuardLimits, 'growthLimitPct'>,
  accepted: ReadonlySet<Acceptance>,
): number {
  if (accepted.has('growth')) return LARGEST_FIRST * 10
  if (known === 0) return LARGEST_FIRST
  const {factor, records} = ENDLESS_MARGIN
  return Math.floor((known * (1 + growthLimitPct / 100) + IGNORED_STEPS) * factor) + records
}

function countListed({counts}: ChangePlan): number {
  return counts.created + counts.updated + counts.restored + counts.unchanged
}

function findShrink(plan: ChangePlan, {shrinkLimitPct}: GuardLimits, {plural}: Stream): string[] {
  const {known, newlyAbsent, counts} = plan
  if (countListed(plan) === 0 && counts.missing + counts.vanished > IGNORED_RECORDS) {
    return [`the walk lists no ${plural}, although ${known} are known`]
  }
  if (newlyAbsent <= IGNORED_RECORDS || newlyAbsent * 100 <= known * shrinkLimitPct) return []
  return [`${newlyAbsent} of ${known} known ${plural} are absent, more than ${shrinkLimitPct} %`]
}

/** A child's lists are read where something happened, so many new children are normal. */
function findGrowth(
  {moved: {before, after}}: MeasuredPlan,
  {growthLimitPct}: GuardLimits,
  {plural, parent}: Stream,
): string[] {
  if (before.records === 0 || parent) return []
  const findings: string[] = []
  const grown = after.records - before.records
  const more = `more than ${growthLimitPct} % more`
  if (grown > IGNORED_STEPS && grown * 100 > before.records * growthLimitPct) {
    findings.push(`${after.records} ${plural} where there were ${before.records}, ${more}`)
  }
  const grownCents = after.amountCents - before.amountCents
  const limit = before.amountCents * BigInt(Math.round(growthLimitPct * 100))
  if (before.records > IGNORED_STEPS && grownCents * 10_000n > limit) {
    const [now, then] = [after, before].map(({amountCents}) => formatCents(amountCents))
    findings.push(`an amount of ${now} where there were ${then}, ${more}`)
  }
  return findings
}

function findChanges({moved}: MeasuredPlan, {changeLimitPct}: GuardLimits, stream: Stream): string[] {
  const {before, amounts, left, entered, columns} = moved
  const {plural, settled, amountColumn} = stream
  const findings: string[] = []
  const judge = (records: number, ignored: number, what: string) => {
    if (records <= ignored || records * 100 <= before.records * changeLimitPct) return
    findings.push(`${records} of ${before.records} known ${plural} ${what}, more than ${changeLimitPct} %`)
  }
  judge(amounts, IGNORED_RECORDS, `change their ${amountColumn}`)
  judge(left, IGNORED_RECORDS, `leave ${settled?.values[0]}`)
  if (entered > IGNORED_STEPS && entered * 100 > before.pipeline * ENTERED_LIMIT_PCT) {
    findings.push(
      `${entered} ${plural} become ${settled?.values[0]}, more than half of the ${before.pipeline} in the pipeline`,
    )
  }
  for (const [column, records] of Object.entries(columns)) {
    const isStep = column === settled?.column
    judge(records, isStep ? IGNORED_STEPS : IGNORED_RECORDS, `change their ${column}`)
  }
  return findings
}
