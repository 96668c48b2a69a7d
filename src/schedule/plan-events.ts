import {listJobRuns, listLastAttempts, recordSlot} from '../ledger/job-runs.ts'
import type {Ledger} from '../ledger/ledger.ts'
import {listWaitingEvents} from '../ledger/webhook-events.ts'
import {WEBHOOK_JOB} from './job.ts'
import {LONGEST_PAUSE_MS} from './retry.ts'

/** Events are looked at together: when none has come for this long, or the first has waited for that long. */
const QUIET_MS = 3_000
const LONGEST_WAIT_MS = 60_000

/** Queues a run for the events that wait, unless one is queued or under way, or has just failed. */
export function planEvents(ledger: Ledger, now: number): void {
  const waiting = listWaitingEvents(ledger)
  const [first, last] = [waiting[0], waiting.at(-1)]
  if (!first || !last) return
  const isQuiet = now - Date.parse(last.received_at) >= QUIET_MS
  if (!isQuiet && now - Date.parse(first.received_at) < LONGEST_WAIT_MS) return
  const isPlanned = (['queued', 'running'] as const)
    .flatMap((state) => listJobRuns(ledger, state))
    .some(({job}) => job === WEBHOOK_JOB)
  if (isPlanned || hasJustFailed(ledger, now)) return
  recordSlot(ledger, {job: WEBHOOK_JOB, instant: now, state: 'queued', reason: null}, now)
}

/** What failed wants somebody to look; the events still wait, and would be run again at once and for ever. */
function hasJustFailed(ledger: Ledger, now: number): boolean {
  const last = listLastAttempts(ledger).find(({job}) => job === WEBHOOK_JOB)
  return last?.state === 'failed' && now - Date.parse(last.ended_at ?? '') < LONGEST_PAUSE_MS
}
