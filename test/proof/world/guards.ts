import type {Sync} from './story.ts'
import type {Plan} from './truth.ts'

/** The outcome of a run, as far as needed to say how it must end. */
export interface Judged {
  event: Sync
  /** What was known of clocks when it began. */
  before: {startedAt: number; endedAt: number}
  /** The expected result of settling the walk; undefined if the run did not get there. */
  plan: Plan | undefined
  /** Whether a walk was applied, possibly that of the run before. */
  isApplied: boolean
  /** Whether the clock went back during the walk. */
  isStepped: boolean
}

const RETRIES = 2
const SHRINK_PCT = 5
const CHANGE_PCT = 20
/** A clock that goes back by less is being corrected. */
const SMALL_STEP_MS = 1000

/** The error codes with which a run may end that was not killed; empty text is success. */
export function listExpected({event, before, plan, isApplied, isStepped}: Judged): string[] {
  const {ahead} = event
  const now = Date.parse(event.at) + (ahead?.page === 1 ? ahead.hours * 3_600_000 : 0)
  if (now + SMALL_STEP_MS <= before.startedAt) return ['CLOCK_BACKWARDS']
  if (now + SMALL_STEP_MS <= before.endedAt) return ['CLOCK_STEPPED']
  // A list may fail before the clock has gone back.
  const early = plan ? [] : listEnds({event, plan, isApplied}).filter((code) => code !== '')
  if (isStepped) return ['CLOCK_STEPPED', ...early]
  const ends = listEnds({event, plan, isApplied})
  return event.diskKib === undefined ? ends : [...new Set([...ends, '', 'DISK_FULL', 'DISK_FAULT'])]
}

/** How a run ends with a sound clock and disk. */
function listEnds({event, plan, isApplied}: Pick<Judged, 'event' | 'plan' | 'isApplied'>): string[] {
  const {faults = []} = event
  if (!plan) {
    const isBroken = faults.some(({is}) => is === 'bytes')
    const failures = faults.filter((fault) => 'times' in fault && fault.is !== '429')
    const timesOf = (page: number) =>
      failures.reduce((sum, one) => sum + ('times' in one && one.page === page ? one.times : 0), 0)
    const isFailing = failures.some((fault) => 'times' in fault && timesOf(fault.page) > RETRIES)
    const loops = faults.some(({is}) => is === 'stuck' || is === 'endless')
    const codes = [
      ...(isFailing ? ['SOURCE_FAILING', 'SOURCE_UNREACHABLE'] : []),
      ...(loops ? ['SOURCE_CURSOR_LOOP'] : []),
      ...(isBroken ? ['SOURCE_NOT_UTF8'] : []),
    ]
    return codes.length > 0 && !isApplied ? codes : ['', ...codes]
  }
  const refusals = listRefusals(plan, event.accept)
  return refusals.length > 0 ? refusals : ['']
}

/** The codes with which a walk must be refused; none if it must be applied. */
export function listRefusals(plan: Plan | undefined, accept: readonly string[] = []): string[] {
  if (!plan) return []
  if (plan.quarantined > 3 && plan.quarantined * 20 > plan.records) return ['SOURCE_QUARANTINE']
  return Object.entries(judge(plan))
    .filter(([guard, isRefused]) => isRefused && !accept.includes(guard))
    .map(([guard]) => `GUARD_${guard.toUpperCase()}`)
}

/** Which guards must refuse a walk. */
function judge(plan: Plan): Record<'shrink' | 'growth' | 'change', boolean> {
  const exceeds = (count: number, ignored: number, pct: number, whole = plan.known) =>
    count > ignored && count * 100 > whole * pct
  const {status = 0, ...fields} = plan.fields
  return {
    shrink: exceeds(plan.newlyAbsent, 3, SHRINK_PCT) || (plan.listed === 0 && plan.absent > 3),
    growth:
      plan.known > 0 &&
      (exceeds(plan.present - plan.known, 10, 100) ||
        (plan.known > 10 && plan.amountAfter > 2n * plan.amountBefore)),
    change:
      [plan.amounts, plan.left, ...Object.values(fields)].some((count) => exceeds(count, 3, CHANGE_PCT)) ||
      exceeds(status, 10, CHANGE_PCT) ||
      exceeds(plan.entered, 10, 50, plan.pipeline),
  }
}
