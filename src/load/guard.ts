import type {Stream} from '../contract/stream.ts'
import {GuardError} from '../errors.ts'
import type {ChangePlan} from './plan-changes.ts'

/** What a run may be told to accept. */
export type Acceptance = 'shrink' | 'change' | 'envelope' | 'source'

/** Percentages of the known records, each from 0 to 100. */
export interface GuardLimits {
  shrinkLimitPct: number
  changeLimitPct: number
}

/** A guard never looks at fewer records than this: a small portfolio moves in large steps. */
const IGNORED_RECORDS = 3

const KEPT = 'Nothing was applied; warehouse and current release are as before, and the certificate is kept.'

/**
 * Refuses a walk that would take away, or change, more of the portfolio than a day can explain; an empty list
 * is never explained.
 *
 * @throws GuardError `GUARD_SHRINK` or `GUARD_CHANGE`
 */
export function guardChanges(
  plan: ChangePlan,
  limits: GuardLimits,
  accepted: ReadonlySet<Acceptance>,
  {plural}: Pick<Stream, 'plural'>,
): void {
  const {known, newlyAbsent, unsettled, counts} = plan
  const exceeds = (records: number, limitPct: number) =>
    records > IGNORED_RECORDS && records * 100 > known * limitPct
  const listed = counts.created + counts.updated + counts.restored + counts.unchanged
  const isEmptied = listed === 0 && counts.missing + counts.vanished > IGNORED_RECORDS
  const isForeign = accepted.has('source') || listed === counts.created
  const next = isForeign
    ? 'Is that another service? Then give it a folder of its own with --data. Else ask it where they are.'
    : 'Ask the service whether they were deleted. If so, run `loantape sync --accept shrink`.'
  if (!accepted.has('shrink') && isEmptied) {
    throw new GuardError({
      code: 'GUARD_SHRINK',
      problem: `Walk refused: it lists no ${plural}, and ${known} are known.`,
      kept: KEPT,
      next,
    })
  }
  if (!accepted.has('shrink') && exceeds(newlyAbsent, limits.shrinkLimitPct)) {
    throw new GuardError({
      code: 'GUARD_SHRINK',
      problem: `Walk refused: ${newlyAbsent} of ${known} known ${plural} are absent, more than ${limits.shrinkLimitPct} %.`,
      kept: KEPT,
      next,
    })
  }
  if (!accepted.has('change') && exceeds(unsettled, limits.changeLimitPct)) {
    throw new GuardError({
      code: 'GUARD_CHANGE',
      problem: `Walk refused: ${unsettled} of ${known} known ${plural} change their amount or leave funded, more than ${limits.changeLimitPct} %.`,
      kept: KEPT,
      next: 'Ask the service whether that is right. If so, run `loantape sync --accept change`.',
    })
  }
}
