import {isUnderWay, listLastAttempts, recordSlot} from '../state/job-runs.ts'
import type {StateDb} from '../state/state-db.ts'
import {listWaitingEvents} from '../state/webhook-events.ts'
import {WEBHOOK_JOB} from './job.ts'
import {LONGEST_PAUSE_MS} from './next-attempt.ts'

/** Events are looked at together: when none has come for this long, or the first has waited for that long. */
const QUIET_MS = 3_000
const LONGEST_WAIT_MS = 60_000

/** Queues a run for the events that wait, unless one is queued or under way, or has just failed. */
export function planEvents(stateDb: StateDb, now: number): void {
  const waiting = listWaitingEvents(stateDb)
  const [first, last] = [waiting[0], waiting.at(-1)]
  if (!first || !last) return
  const isQuiet = now - Date.parse(last.received_at) >= QUIET_MS
  if (!isQuiet && now - Date.parse(first.received_at) < LONGEST_WAIT_MS) return
  if (isUnderWay(stateDb, WEBHOOK_JOB) || hasJustFailed(stateDb, now)) return
  recordSlot(stateDb, {job: WEBHOOK_JOB, instant: now, state: 'queued', reason: null}, now)
}

/** What failed wants somebody to look; the events still wait, and would be run again at once and for ever. */
function hasJustFailed(stateDb: StateDb, now: number): boolean {
  const last = listLastAttempts(stateDb).find(({job}) => job === WEBHOOK_JOB)
  return last?.state === 'failed' && now - Date.parse(last.ended_at ?? '') < LONGEST_PAUSE_MS
}
