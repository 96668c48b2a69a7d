import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import {describeFirstSync} from '../../src/cli/doctor.ts'
import {parseConfig} from '../../src/core/config.ts'
import {createLab, type Lab, someDeals} from '../support/lab.ts'
import {changeLists} from '../support/set-up.ts'
import {readJson} from './outcome.ts'

let lab: Lab

beforeAll(async () => {
  lab = await createLab({deals: someDeals(100)})
})

afterAll(() => lab[Symbol.asyncDispose]())

async function examine(env: Record<string, string> = {}) {
  const ended = await lab.run(['doctor', '--json'], env)
  const {healthy, findings} = readJson(ended) as {
    healthy: boolean
    findings: {check: string; ok: boolean; words: string}[]
  }
  const wrong = findings.filter(({ok}) => !ok).map(({check, words}) => `${check}: ${words}`)
  expect([ended.code, healthy]).toEqual(wrong.length === 0 ? [0, true] : [1, false])
  return {wrong, source: findings.find(({check}) => check === 'source')?.words}
}

test('doctor estimates a first sync from one page until there is a history, and finds a sound folder healthy', async () => {
  const answers = `${lab.service.url} answers and accepts the key`
  expect(await examine()).toEqual({
    wrong: [],
    source: `${answers}; a first sync of 100 deals with details takes about 1 s at 5000 requests/s`,
  })
  changeLists(lab, '/deals', (deals) => {
    for (const deal of deals) Object.assign(deal, {property_value: null, loan_program: null})
  })
  const {source} = await examine()
  expect(source).toBe(`${answers}; a first sync of 100 deals takes about 1 s at 5000 requests/s`)
  lab.service.faults.clear()
  lab.service.store.insert(someDeals(101).slice(100))
  expect((await examine()).source).toMatch(
    /; a first sync takes about 1 s for every 1,000 deals with details/,
  )
  await lab.sync(new Date().toISOString())
  await lab.run(['export', 'csv'])
  expect(await examine()).toEqual({wrong: [], source: answers})
})

const PARTLY = '; LOANTAPE_DETAIL_BUDGET_MINUTES lets one run get those of 6,000 deals, later runs the rest'
const FAST = {LOANTAPE_STREAMS: 'deals,borrowers,documents', LOANTAPE_RATE_PER_SECOND: '20'}
const LISTS = {LOANTAPE_DETAIL: 'off', LOANTAPE_PAGE_SIZE: '1'}

test.each<[deals: number | undefined, env: Record<string, string>, words: string]>([
  [2500, {}, 'of 2,500 deals with details takes about 8 min at 5 requests/s'],
  [2500, FAST, 'of 2,500 deals with details, borrowers and documents takes about 6 min at 20 requests/s'],
  [2500, LISTS, 'of 2,500 deals takes about 8 min at 5 requests/s'],
  [1, {LOANTAPE_DETAIL: 'off'}, 'of 1 deal takes about 1 s at 5 requests/s'],
  // What does not fit into a run's budget is mentioned but not counted.
  [100_000, {}, `of 100,000 deals with details takes about 23 min at 5 requests/s${PARTLY}`],
  [2500, {LOANTAPE_DETAIL_BUDGET_MINUTES: '0'}, 'of 2,500 deals takes about 4 s at 5 requests/s'],
  [undefined, {}, `takes about 3 min for every 1,000 deals with details at 5 requests/s${PARTLY}`],
])('a first sync of %s deals with %j %s', (deals, env, words) => {
  expect(describeFirstSync(parseConfig(env, {readFile: () => ''}), deals)).toBe(`a first sync ${words}`)
})

test('doctor finds a target that a job names but nobody defined, and a base URL of another folder', async () => {
  const root = join(lab.folder.root, '../doctor')
  const [jobs, targets] = [join(root, 'jobs'), join(root, 'targets.json')]
  mkdirSync(jobs, {recursive: true})
  const steps = [{do: 'export', profiles: ['csv'], deliver: ['bank']}]
  const job = {name: 'bank', schedule: '0 5 * * *', timeZone: 'UTC', catchUp: 'none', graceMinutes: 5, steps}
  writeFileSync(join(jobs, 'bank.mjs'), `export default ${JSON.stringify(job)}`)
  writeFileSync(targets, JSON.stringify({share: {kind: 'folder', path: root}}))
  const env = {LOANTAPE_JOBS_DIR: jobs, LOANTAPE_BASE_URL: 'http://127.0.0.1:9'}
  const pinned = `source: Base URL 'http://127.0.0.1:9': this data folder belongs to '${lab.service.url}'. Use another folder with --data: each source has its own. Only if the same service has moved, with all its deals, run \`loantape sync --accept source\` once.`
  expect((await examine(env)).wrong).toEqual([
    expect.stringMatching(/^targets: .*LOANTAPE_TARGETS_FILE not set/),
    pinned,
  ])
  const named = {...env, LOANTAPE_TARGETS_FILE: targets}
  expect((await examine(named)).wrong).toEqual([
    expect.stringMatching(/^targets: Target 'bank' is not in '.*': expected one of share/),
    pinned,
  ])
  writeFileSync(targets, JSON.stringify({bank: {kind: 'folder', path: root}}))
  expect((await examine(named)).wrong).toEqual([pinned])
})
