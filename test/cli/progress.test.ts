import {afterEach, beforeEach, expect, test, vi} from 'vitest'
import {createProgressLine, createProgressLog, repeatProgress} from '../../src/cli/context.ts'
import {createLog} from '../../src/core/log.ts'
import type {Progress} from '../../src/core/types.ts'

const clock = {now: () => Date.now()}

beforeEach(() => {
  vi.useFakeTimers({now: Date.parse('2026-02-02T12:00:00Z')})
})

afterEach(() => {
  vi.useRealTimers()
})

/** A one-line terminal with a progress line on it. */
function openTerminal(columns = 80) {
  const written: string[] = []
  const terminal = {columns, write: (text: string) => written.push(text)}
  const progress = repeatProgress(createProgressLine(terminal, clock))
  return {
    ...progress,
    /** What is on screen now: the last text written, without its cursor and erase codes. */
    shown: () => written.at(-1)?.replace(/^\r/, '').replace('\x1b[K', ''),
    /** How many writes there were since the last call. */
    countWrites: () => written.splice(0).length,
  }
}

/** A source that makes nobody wait. */
function createSource(): {waitedMs: number; waitingSince: number | null} {
  return {waitedMs: 0, waitingSince: null}
}

const details: Progress = {step: 'details', unit: 'details', done: 0, total: 2500}

/** Reports `perSecond` more units for each of the given seconds. */
function go(report: (progress: Progress) => void, from: Progress, perSecond: number, seconds: number): void {
  report(from)
  for (let unit = 1; unit <= perSecond * seconds; unit += 1) {
    vi.advanceTimersByTime(1000 / perSecond)
    report({...from, done: (from.done ?? 0) + unit})
  }
}

test('a step shows its own unit, elapsed time, rate and time left', () => {
  const {report, shown} = openTerminal()
  go(report, details, 5, 20)
  vi.advanceTimersByTime(500)
  expect(shown()).toMatch(/^details {7}100 of 2,500 {3}0:20 {3}(4\.[89]|5\.0)\/s {2}8:[0-2]\d left$/)
})

test('pages are counted, an unknown total shows no time left, and the next step starts from zero', () => {
  const {report, shown} = openTerminal()
  go(report, {step: 'walking', unit: 'deals', done: 0, total: null, pages: 1}, 100, 2)
  vi.advanceTimersByTime(500)
  expect(shown()).toBe('walking     200 deals     1 page   0:02    80/s')
  report({step: 'models', unit: 'models', done: 0, total: 43})
  expect(shown()).toBe('models       0 of 43   0:00')
})

test('the rate covers the last seconds, so work a run found done and a slow start do not count', () => {
  const {report, shown} = openTerminal()
  go(report, {...details, done: 1000}, 1, 60)
  go(report, {...details, done: 1060}, 10, 12)
  vi.advanceTimersByTime(500)
  expect(shown()).toMatch(/ {2}(9\.[5-9]|10)\/s {2}2:1\d left$/)
})

test('the line is redrawn at least once a second, even if nothing moves, and at most ten times a second', () => {
  const {report, shown, countWrites} = openTerminal()
  go(report, details, 200, 5)
  expect(countWrites()).toBeLessThanOrEqual(62)
  report({step: 'models', unit: 'models', done: 12, total: 43})
  const seen = Array.from({length: 70}, () => {
    vi.advanceTimersByTime(1000)
    const line = shown()
    expect(countWrites()).toBeGreaterThanOrEqual(1)
    return line
  })
  expect(seen.at(-1)).toBe('models      12 of 43   1:10')
})

test('waiting for the rate limit is shown while it lasts and does not affect the rate after it', () => {
  const {report, shown} = openTerminal()
  const source = createSource()
  go(report, {...details, source}, 5, 5)
  source.waitingSince = Date.now()
  vi.advanceTimersByTime(1500)
  expect(shown()).not.toMatch(/waiting/)
  vi.advanceTimersByTime(28_500)
  expect(shown()).toBe('details        25 of 2,500   0:35  waiting: rate limit')
  source.waitingSince = null
  vi.advanceTimersByTime(1000)
  expect(shown()).toBe('details        25 of 2,500   0:36')
  go(report, {...details, done: 25, source}, 10, 3)
  vi.advanceTimersByTime(500)
  expect(shown()).toMatch(/^details +55 of 2,500 {3}0:39 {3}6\.\d\/s {2}6:\d\d left$/)
})

test.each([20, 40, 60, 80])('a %i-column terminal never wraps and shows what matters most', (columns) => {
  const {report, shown} = openTerminal(columns)
  const source = createSource()
  go(report, {step: 'walking', unit: 'deals', done: 0, total: 1_000_000, pages: 1000, source}, 500, 30)
  expect(shown()?.length).toBeLessThan(columns)
  expect(shown()).toMatch(/^walking/)
  source.waitingSince = Date.now()
  vi.advanceTimersByTime(2500)
  expect(shown()?.length).toBeLessThan(columns)
  if (columns >= 40) expect(shown()).toMatch(/0:32.* waiting: rate limit$/)
})

test('nothing is drawn after the end, and a hidden line comes back', () => {
  const {report, hide, end, shown, countWrites} = openTerminal()
  report(details)
  hide()
  expect(shown()).toBe('')
  vi.advanceTimersByTime(500)
  expect(shown()).toMatch(/^details/)
  end()
  expect(shown()).toBe('')
  countWrites()
  vi.advanceTimersByTime(60_000)
  expect(countWrites()).toBe(0)
  report({step: 'models', unit: 'models', done: 0, total: 43})
  expect(shown()).toMatch(/^models/)
  end()
})

test('off a terminal the same facts are logged at most every 5 seconds, even if nothing moves', () => {
  const lines: Record<string, unknown>[] = []
  const log = createLog({level: 'info'}, {write: (text) => lines.push(JSON.parse(text))})
  const {report, end} = repeatProgress(createProgressLog(log, clock))
  go(report, {...details, source: {waitedMs: 700, waitingSince: null}}, 5, 6)
  report({step: 'models', unit: 'models', done: 3, total: 43})
  vi.advanceTimersByTime(14_000)
  end()
  vi.advanceTimersByTime(60_000)
  const times = lines.map(({time}) => Date.parse(String(time)))
  for (const [index, time] of times.slice(1).entries()) expect(time - (times[index] ?? 0)).toBe(5000)
  expect(lines).toHaveLength(5)
  expect(lines[1]).toMatchObject({step: 'details', unit: 'details', done: 24, total: 2500, waited_ms: 700})
  expect(lines[4]).toMatchObject({step: 'models', unit: 'models', done: 3, total: 43, msg: 'progress'})
})
