import {expect, test} from 'vitest'
import {decideRetry} from '../../src/schedule/scheduler.ts'
import {aJob} from '../support/jobs.ts'

const MINUTE = 60_000
const SLOT = Date.parse('2026-06-01T06:30:00Z')
const job = aJob({graceMinutes: 90})
const runOf = (attempt: number) => ({slot: new Date(SLOT).toISOString(), attempt})
const minutesUntilRetry = (exitCode: number, attempt: number, minutesLate: number): number | null => {
  const now = SLOT + minutesLate * MINUTE
  const at = decideRetry(job, runOf(attempt), {exit_code: exitCode, error_code: 'SOURCE_FAILING'}, now)
  return at === null ? null : (at - now) / MINUTE
}

test('a source that does not answer is retried after growing pauses, within the grace', () => {
  expect([1, 2, 3, 4, 5, 6, 7].map((attempt) => minutesUntilRetry(6, attempt, 0))).toEqual([
    1, 2, 4, 8, 16, 30, 30,
  ])
  expect(minutesUntilRetry(6, 6, 60)).toBe(30)
  expect(minutesUntilRetry(6, 6, 61)).toBeNull()
})

test('a locked warehouse is waited for, at least an hour whatever the grace', () => {
  expect(minutesUntilRetry(4, 9, 80)).toBe(1)
  const strict = {...job, graceMinutes: 0}
  const end = {exit_code: 4, error_code: 'RUN_IN_PROGRESS'}
  expect(decideRetry(strict, runOf(1), end, SLOT + 59 * MINUTE)).toBe(SLOT + 60 * MINUTE)
  expect(decideRetry(strict, runOf(1), end, SLOT + 60 * MINUTE)).toBeNull()
})

test('what needs a person, was asked for by hand, or has no job any more is not retried', () => {
  for (const exitCode of [1, 2, 3, 5, 7, 8]) expect(minutesUntilRetry(exitCode, 1, 0)).toBeNull()
  const end = {exit_code: 6, error_code: 'SOURCE_FAILING'}
  expect(decideRetry(job, {slot: null, attempt: 1}, end, SLOT)).toBeNull()
  expect(decideRetry(undefined, runOf(1), end, SLOT)).toBeNull()
})
