import {expect, onTestFinished, test, vi} from 'vitest'
import {createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import {parseConfig} from '../../src/core/config.ts'
import type {Progress} from '../../src/core/types.ts'
import {findLockHolder} from '../../src/store/runs.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {FEW_TABLES} from '../support/data.ts'
import {createLab, DAY_1, DAY_2, type Lab, someDeals} from '../support/lab.ts'

/** Runs on a terminal, or without one, and records what is written to stderr. */
function runOn({isTTY = true} = {}) {
  vi.useFakeTimers({now: Date.parse('2026-02-02T12:00:00Z')})
  onTestFinished(() => void vi.useRealTimers())
  const written: string[] = []
  const stderr = {isTTY, columns: 80, write: (text: string) => written.push(text)}
  const cli = createCli({env: {}, stdout: {write: () => undefined}, stderr, onStop: () => undefined})
  const {onProgress, log} = cli.createWorld(parseConfig({}, {readFile: () => ''}))
  return {
    report: onProgress,
    log,
    written,
    end: () => cli.print('done'),
    /** What is on screen now: the last text written, without its cursor and erase codes. */
    shown: () => written.at(-1)?.replace(/^\r/, '').replace('\x1b[K', ''),
  }
}

const details: Progress = {step: 'details', unit: 'details', done: 0, total: 2500}
const models: Progress = {step: 'models', unit: 'models', done: 12, total: 43}

/** Reports `perSecond` more units for each of the given seconds. */
function go(report: (progress: Progress) => void, from: Progress, perSecond: number, seconds: number): void {
  report(from)
  for (let unit = 1; unit <= perSecond * seconds; unit += 1) {
    vi.advanceTimersByTime(1000 / perSecond)
    report({...from, done: (from.done ?? 0) + unit})
  }
}

test('a step shows elapsed time, its own unit, time left, rate and pages, and the next one starts from zero', () => {
  const {report, shown} = runOn()
  go(report, details, 5, 20)
  vi.advanceTimersByTime(500)
  expect(shown()).toMatch(/^details {6}0:20 {2}100 of 2,500 {2}8:[0-2]\d left {2}(4\.[89]|5\.0)\/s$/)
  // The clock is set back.
  vi.setSystemTime(Date.now() - 3_600_000)
  vi.advanceTimersByTime(1000)
  expect(shown()).toMatch(/^details {6}0:21 {2}100 of 2,500 /)
  go(report, {step: 'walking', unit: 'deals', done: 0, total: null, pages: 1}, 100, 2)
  vi.advanceTimersByTime(500)
  expect(shown()).toBe('walking      0:02  200 deals  80/s  1 page')
  report(models)
  expect(shown()).toBe('models       0:00  12 of 43')
})

test('the rate covers the last seconds, so work a run found done and a slow start do not count', () => {
  const {report, shown} = runOn()
  go(report, {...details, done: 1000}, 1, 60)
  go(report, {...details, done: 1060}, 10, 12)
  vi.advanceTimersByTime(500)
  expect(shown()).toMatch(/ {2}2:1\d left {2}(9\.[5-9]|10)\/s$/)
})

test('waiting for the rate limit is shown while it lasts and does not affect the rate after it', () => {
  const {report, shown} = runOn()
  const source: {waitedMs: number; waitingSince: number | null} = {waitedMs: 0, waitingSince: null}
  go(report, {...details, source}, 5, 5)
  source.waitingSince = Date.now()
  vi.advanceTimersByTime(1500)
  expect(shown()).not.toMatch(/waiting/)
  vi.advanceTimersByTime(28_500)
  expect(shown()).toBe('details      0:35  waiting: rate limit  25 of 2,500')
  source.waitingSince = null
  vi.advanceTimersByTime(1000)
  expect(shown()).toBe('details      0:36  25 of 2,500')
  go(report, {...details, done: 25, source}, 10, 3)
  vi.advanceTimersByTime(500)
  expect(shown()).toMatch(/^details {6}0:39 {2}55 of 2,500 {2}6:\d\d left {2}6\.\d\/s$/)
})

test('log lines stand on their own, the line comes back after them, and nothing is drawn after the end', () => {
  const {report, log, end, shown, written} = runOn()
  report(details)
  log.warn({}, 'a problem')
  expect(written.slice(-2)).toEqual(['\r\x1b[K', expect.stringMatching(/a problem/)])
  vi.advanceTimersByTime(500)
  expect(shown()).toMatch(/^details/)
  end()
  expect(shown()).toBe('')
  written.length = 0
  vi.advanceTimersByTime(60_000)
  expect(written).toEqual([])
})

test('off a terminal the same facts, and a wait for the rate limit, are logged at most every 5 seconds, even if nothing moves', () => {
  const {report, end, written} = runOn({isTTY: false})
  const source: {waitedMs: number; waitingSince: number | null} = {waitedMs: 700, waitingSince: null}
  go(report, {...details, source}, 5, 6)
  source.waitingSince = Date.now()
  vi.advanceTimersByTime(5000)
  source.waitingSince = null
  report({...models, done: 3})
  vi.advanceTimersByTime(9000)
  end()
  vi.advanceTimersByTime(60_000)
  const lines = written.map((text) => JSON.parse(text))
  const [first = 0, ...later] = lines.map(({time}) => Date.parse(String(time)))
  expect(later.map((time) => time - first)).toEqual([5000, 10_000, 15_000, 20_000])
  expect(lines[1]).toMatchObject({step: 'details', unit: 'details', done: 24, total: 2500, waited_ms: 700})
  expect(lines.map(({reason}) => reason)).toEqual([
    undefined,
    undefined,
    'waiting: rate limit',
    undefined,
    undefined,
  ])
  expect(lines[4]).toMatchObject({step: 'models', unit: 'models', done: 3, total: 43, msg: 'progress'})
})

/**
 * Runs a command line whose stderr is a terminal.
 *
 * @returns its output in order, with the stream of each piece
 */
async function watch(lab: Lab, line: string) {
  const written: {to: 'stdout' | 'stderr'; text: string}[] = []
  const write = (to: 'stdout' | 'stderr') => (text: string) => written.push({to, text})
  const cli = createCli({
    env: {
      ...lab.env,
      LOANTAPE_LOG_LEVEL: 'info',
      LOANTAPE_STREAMS: 'deals,borrowers,documents',
      LOANTAPE_PAGE_SIZE: '10',
    },
    stdout: {write: write('stdout')},
    stderr: {write: write('stderr'), isTTY: true, columns: 40},
    onStop: () => undefined,
  })
  const {createWorld} = cli
  cli.createWorld = (config) => ({...createWorld(config), select: FEW_TABLES})
  const code = await runProgram(cli, line.split(' '))
  const isLog = ({text}: {text: string}) => text.startsWith('{')
  const shown = written.filter((one) => !isLog(one))
  const lines = shown
    .filter(({to}) => to === 'stderr')
    .map(({text}) => text.replace(/^\r/, '').replace('\x1b[K', ''))
  const drawn = lines.map((line) => line.split(' ')[0]).filter((step) => step)
  return {code, shown, lines, steps: [...new Set(drawn)].join(' ')}
}

test('a command on a terminal shows one step after the other, nothing too wide, and nothing after its result', async () => {
  await using lab = await createLab({deals: someDeals(12)})
  const {code, shown, lines, steps} = await watch(lab, 'sync')
  expect(code).toBe(0)
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(40)
  expect(steps).toBe(
    'opening walking certifying details applying borrowers documents preparing compiling models checks tables publishing',
  )
  for (const line of lines) if (!line.startsWith('walking')) expect(line).not.toMatch(/pages|deals/)
  expect(lines).toContainEqual(expect.stringMatching(/^models +\d+:\d\d {2}0 of \d+$/))
  const [last, before] = shown.toReversed()
  expect(last).toMatchObject({to: 'stdout', text: expect.stringContaining('Released')})
  expect(before).toEqual({to: 'stderr', text: '\r\x1b[K'})

  for (const [line, seen] of Object.entries({
    rebuild: 'reading rebuilding comparing',
    verify: 'tapes warehouse release batches',
    'export csv parquet': 'csv parquet',
  }))
    expect((await watch(lab, line)).steps, line).toBe(seen)
})

test('another process sees the step and its counts, details and lists with every answer', async () => {
  await using lab = await createLab({deals: someDeals(12)})
  await lab.walk(DAY_1)
  lab.service.store.update('deal_000001', {status: 'underwriting'})
  using stateDb = openStateDb(lab.folder.stateDb)
  let ahead = 0
  const world = lab.createWorld(DAY_2)
  const realClock = {...world.realClock, now: () => Date.now() + ahead}
  const told = new Set<string | undefined>()
  const each: Progress[] = []
  const onProgress = ({source: _source, ...progress}: Progress) => {
    each.push(progress)
    told.add(findLockHolder(stateDb, {...world, realClock})?.progress)
    ahead += 1000
  }
  const config = {streams: 'deals,documents'}
  await lab.sync(DAY_2, {config, world: {realClock, onProgress}})
  const words = [...told].join('\n')
  for (const shown of [
    /^walking: 12 of 12 deals$/m,
    /^details: 1 of \d+$/m,
    /^applying$/m,
    /^models: 1 of \d+$/m,
  ])
    expect(words).toMatch(shown)
  expect(each.filter(({step}) => step === 'documents').map(({done}) => done)).toEqual([...Array(13).keys()])
  expect(each).toContainEqual({step: 'documents', unit: 'lists', done: 12, total: 12})
  expect(each).toContainEqual({step: 'walking', unit: 'deals', done: 12, total: 12, pages: 1})
})
