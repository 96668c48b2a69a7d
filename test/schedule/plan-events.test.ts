import {afterEach, beforeEach, expect, test} from 'vitest'
import {WEBHOOK_JOB} from '../../src/schedule/job.ts'
import {beginRun, endRun, listQueuedRuns} from '../../src/schedule/job-runs.ts'
import {claimRun, planEvents} from '../../src/schedule/scheduler.ts'
import {openStateDb, type StateDb} from '../../src/store/state-db.ts'
import {storeEvent} from '../../src/sync/webhook-events.ts'

const SECOND = 1000
const MINUTE = 60 * SECOND
const START = Date.parse('2026-06-01T00:00:00Z')

let stateDb: StateDb

beforeEach(() => {
  stateDb = openStateDb(':memory:')
})

afterEach(() => stateDb[Symbol.dispose]())

const receive = (eventId: string, at: number) =>
  storeEvent(stateDb, {eventId, type: 'deal.updated', dealId: 'deal_1'}, at)

/** Whether a run is queued after looking at `at`. */
function isQueued(at: number): boolean {
  planEvents(stateDb, at)
  return listQueuedRuns(stateDb).length > 0
}

function runTo(exitCode: number, at: number): void {
  const run = claimRun(stateDb, at)
  const end = {exitCode, errorCode: exitCode === 0 ? null : 'GUARD_SHRINK', error: null, summary: null}
  endRun(stateDb, run!, {...end, retryAt: null}, at)
}

test('events are run together once none has come for a while, or the first has waited long', () => {
  receive('evt_1', START)
  expect(isQueued(START + 2 * SECOND)).toBe(false)
  expect(isQueued(START + 3 * SECOND)).toBe(true)
  runTo(0, START + 4 * SECOND)
  stateDb.db.exec('delete from webhook_event')
  for (let second = 0; second <= 60; second += 2) receive(`evt_of_${second}`, START + second * SECOND)
  expect(isQueued(START + 59 * SECOND)).toBe(false)
  expect(isQueued(START + 60 * SECOND)).toBe(true)
})

test('events whose run failed are not retried again and again: the next run is half an hour later', () => {
  receive('evt_1', START)
  expect(isQueued(START + 5 * SECOND)).toBe(true)
  runTo(8, START + 10 * SECOND)
  expect(isQueued(START + 11 * SECOND)).toBe(false)
  receive('evt_2', START + MINUTE)
  expect(isQueued(START + 29 * MINUTE)).toBe(false)
  expect(isQueued(START + 31 * MINUTE)).toBe(true)
})

test('a manually requested run that succeeds ends the pause', () => {
  receive('evt_1', START)
  isQueued(START + 5 * SECOND)
  runTo(8, START + 10 * SECOND)
  const asked = beginRun(stateDb, WEBHOOK_JOB, START + MINUTE)
  const well = {exitCode: 0, errorCode: null, error: null, summary: null, retryAt: null}
  endRun(stateDb, asked, well, START + 2 * MINUTE)
  expect(isQueued(START + 3 * MINUTE)).toBe(true)
})
