import {expect, test} from 'vitest'
import {createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import type {Progress} from '../../src/core/types.ts'
import {findLockHolder} from '../../src/store/lock.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {COMPILED, FEW_TABLES} from '../support/data.ts'
import {createLab, type Lab, someDeals} from '../support/lab.ts'

/** Everything a sync asks for, so slowly that each step is seen. */
const ALL = {LOANTAPE_STREAMS: 'deals,borrowers,documents', LOANTAPE_PAGE_SIZE: '10'}

/** Runs a command line whose stderr is a terminal; what was written where, in its order. */
async function watch(lab: Lab, args: readonly string[], columns = 80) {
  const written: {to: 'stdout' | 'stderr'; text: string}[] = []
  const write = (to: 'stdout' | 'stderr') => (text: string) => written.push({to, text})
  const cli = createCli({
    env: {...lab.env, ...ALL},
    stdout: {write: write('stdout')},
    stderr: {write: write('stderr'), isTTY: true, columns},
    onStop: () => undefined,
  })
  const {createWorld} = cli
  cli.createWorld = (config) => ({...createWorld(config), plans: COMPILED, select: FEW_TABLES})
  const code = await runProgram(cli, args)
  const lines = written
    .filter(({to}) => to === 'stderr')
    .map(({text}) => text.replace(/^\r/, '').replace('\x1b[K', ''))
  return {code, written, lines}
}

test('a sync on a terminal shows one step after the other, and nothing after its result', async () => {
  await using lab = await createLab()
  lab.service.store.insert(someDeals(12))
  const {code, written, lines} = await watch(lab, ['sync'])
  expect(code).toBe(0)
  const steps = lines.map((line) => line.split(' ')[0]).filter((step, index, all) => step !== all[index - 1])
  expect(steps).toEqual([
    'opening',
    'walking',
    'certifying',
    'details',
    'applying',
    'borrowers',
    'certifying',
    'applying',
    'documents',
    'certifying',
    'applying',
    'preparing',
    'compiling',
    'models',
    'checks',
    'tables',
    'publishing',
    '',
  ])
  for (const line of lines) {
    if (!line.startsWith('walking')) expect(line).not.toMatch(/pages|deals/)
    if (/^(\w+ing|) /.test(line) && !line.startsWith('walking')) expect(line).toMatch(/^\w+ +\d+:\d\d$/)
  }
  expect(lines).toContainEqual(expect.stringMatching(/^models +0 of \d+ +\d+:\d\d$/))
  const [last, before] = written.toReversed()
  expect(last).toMatchObject({to: 'stdout', text: expect.stringContaining('Released')})
  expect(before).toEqual({to: 'stderr', text: '\r\x1b[K'})
  await new Promise((resolve) => setTimeout(resolve, 700))
  expect(written.at(-1)).toBe(last)
})

test('a log line on a terminal stands alone, and no line is wider than the terminal', async () => {
  await using lab = await createLab()
  lab.service.store.insert(someDeals(12))
  lab.env.LOANTAPE_LOG_LEVEL = 'info'
  const {written, lines} = await watch(lab, ['sync'], 40)
  for (const [index, {text}] of written.entries()) {
    const before = written[index - 1]?.text ?? ''
    if (text.startsWith('{') && !before.endsWith('}\n')) expect(before).toBe('\r\x1b[K')
  }
  const drawn = lines.filter((line) => !line.startsWith('{'))
  expect(Math.max(...drawn.map((line) => line.length))).toBeLessThan(40)
  expect(written.filter(({text}) => text.startsWith('{')).length).toBeGreaterThan(0)
})

test('a build, a rebuild, a verify and an export say what they are at', async () => {
  await using lab = await createLab()
  lab.service.store.insert(someDeals(12))
  await watch(lab, ['sync'])
  const stepsOf = async (...args: string[]) => {
    const {code, lines} = await watch(lab, args)
    expect(code).toBe(0)
    return [...new Set(lines.map((line) => line.split(' ')[0]))].join(' ').trim()
  }
  expect(await stepsOf('build', '--select', 'core.deal')).toBe(
    'preparing compiling models checks tables publishing',
  )
  expect(await stepsOf('rebuild')).toBe('reading rebuilding comparing')
  expect(await stepsOf('verify')).toBe('tapes warehouse release batches')
  expect(await stepsOf('export', 'csv', 'parquet')).toBe('csv parquet')
})

test('another process is told the step and what it counts', async () => {
  await using lab = await createLab()
  lab.service.store.insert(someDeals(12))
  await lab.sync('2026-02-02T23:30:00-05:00')
  lab.service.store.update('deal_000001', {status: 'underwriting'})
  const told = new Set<string | undefined>()
  using stateDb = openStateDb(lab.folder.stateDb)
  let ahead = 0
  const world = lab.createWorld('2026-02-03T23:30:00-05:00')
  const realClock = {...world.realClock, now: () => Date.now() + ahead}
  const onProgress = () => {
    told.add(findLockHolder(stateDb, {...world, realClock})?.progress)
    ahead += 1000
  }
  await lab.sync('2026-02-03T23:30:00-05:00', {world: {realClock, onProgress}})
  const words = [...told].join('\n')
  expect(words).toMatch(/^walking: 12 of 12 deals$/m)
  expect(words).toMatch(/^details: 1 of \d+$/m)
  expect(words).toMatch(/^applying$/m)
  expect(words).toMatch(/^models: 1 of \d+$/m)
})

test('details and lists are told of with every answer', async () => {
  await using lab = await createLab()
  lab.service.store.insert(someDeals(12))
  const told: Progress[] = []
  await lab.sync(new Date().toISOString(), {
    config: {streams: 'deals,documents'},
    world: {onProgress: ({source: _source, ...progress}) => told.push(progress)},
  })
  const everyOne = Array.from({length: 13}, (_, done) => done)
  const doneOf = (step: string) => told.filter((one) => one.step === step).map(({done}) => done)
  expect(doneOf('details')).toEqual(everyOne)
  expect(doneOf('documents')).toEqual(everyOne)
  expect(told).toContainEqual({step: 'details', unit: 'details', done: 12, total: 12})
  expect(told).toContainEqual({step: 'documents', unit: 'lists', done: 12, total: 12})
  expect(told).toContainEqual({step: 'walking', unit: 'deals', done: 12, total: null, pages: 1})
})
