import {expect, test} from 'vitest'
import {createCli} from '../../src/cli/context.ts'
import {runProgram} from '../../src/cli/program.ts'
import type {Progress} from '../../src/core/types.ts'
import {findLockHolder} from '../../src/store/runs.ts'
import {openStateDb} from '../../src/store/state-db.ts'
import {FEW_TABLES} from '../support/data.ts'
import {createLab, DAY_1, DAY_2, type Lab, someDeals} from '../support/lab.ts'

/** Syncs all streams, slowly enough to see each step. */
const ALL = {LOANTAPE_STREAMS: 'deals,borrowers,documents', LOANTAPE_PAGE_SIZE: '10'}

/**
 * Runs a command line whose stderr is a terminal.
 *
 * @returns its output in order, with the stream of each piece
 */
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
  cli.createWorld = (config) => ({...createWorld(config), select: FEW_TABLES})
  const code = await runProgram(cli, args)
  const lines = written
    .filter(({to}) => to === 'stderr')
    .map(({text}) => text.replace(/^\r/, '').replace('\x1b[K', ''))
  return {code, written, lines}
}

test('a command on a terminal shows one step after the other, nothing too wide, and nothing after its result', async () => {
  await using lab = await createLab({deals: someDeals(12)})
  lab.env.LOANTAPE_LOG_LEVEL = 'info'
  const {code, written, lines: all} = await watch(lab, ['sync'], 40)
  expect(code).toBe(0)
  const isLog = (text: string) => text.startsWith('{')
  const lines = all.filter((line) => !isLog(line))
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThan(40)
  const steps = lines
    .map((line) => line.split(' ')[0])
    .filter((step, index, drawn) => step && step !== drawn[index - 1])
  expect([...new Set(steps)].join(' ')).toBe(
    'opening walking certifying details applying borrowers documents preparing compiling models checks tables publishing',
  )
  for (const line of lines) if (!line.startsWith('walking')) expect(line).not.toMatch(/pages|deals/)
  expect(lines).toContainEqual(expect.stringMatching(/^models +\d+:\d\d {2}0 of \d+$/))
  const [last, before] = written.filter(({text}) => !isLog(text)).toReversed()
  expect(last).toMatchObject({to: 'stdout', text: expect.stringContaining('Released')})
  expect(before).toEqual({to: 'stderr', text: '\r\x1b[K'})

  for (const [command, shown] of Object.entries({
    'build --select core.deal': 'preparing compiling models checks tables publishing',
    rebuild: 'reading rebuilding comparing',
    verify: 'tapes warehouse release batches',
    'export csv parquet': 'csv parquet',
  })) {
    const {lines} = await watch(lab, command.split(' '))
    const steps = lines.filter((line) => !isLog(line)).map((line) => line.split(' ')[0])
    expect([...new Set(steps)].join(' ').trim(), command).toBe(shown)
  }
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
