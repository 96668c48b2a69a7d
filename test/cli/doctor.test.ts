import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {expect, test} from 'vitest'
import {describeFirstSync} from '../../src/cli/doctor.ts'
import {parseConfig} from '../../src/core/config.ts'
import {someDeals} from '../support/lab.ts'
import {changeLists, useLab} from '../support/set-up.ts'
import {readJson} from './outcome.ts'

const lab = await useLab({deals: someDeals(100)})

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
  const estimate = '; a first sync takes about 1 s for every 1,000 deals'
  expect(await examine()).toEqual({
    wrong: [],
    source: `${answers}${estimate} with details at 5000 requests/s${partly('6,000,000')}`,
  })
  changeLists(lab, '/deals', (deals) => {
    for (const deal of deals) Object.assign(deal, {property_value: null, loan_program: null})
  })
  const {source} = await examine()
  expect(source).toBe(`${answers}${estimate} at 5000 requests/s`)
  lab.service.faults.clear()
  await lab.sync(new Date().toISOString())
  await lab.run(['export', 'csv'])
  expect(await examine()).toEqual({wrong: [], source: answers})
})

const partly = (deals: string) =>
  `; LOANTAPE_DETAIL_BUDGET_MINUTES lets one run get those of ${deals} deals, later runs the rest`
const FAST = {LOANTAPE_STREAMS: 'deals,borrowers,documents', LOANTAPE_RATE_PER_SECOND: '20'}
const LISTS = {LOANTAPE_DETAIL: 'off', LOANTAPE_PAGE_SIZE: '1'}

test.each<[env: Record<string, string>, time: string, words: string]>([
  [{}, '3 min', ` with details at 5 requests/s${partly('6,000')}`],
  [FAST, '2 min', ` with details, borrowers and documents at 20 requests/s${partly('8,000')}`],
  [LISTS, '3 min', ' at 5 requests/s'],
  [{LOANTAPE_DETAIL_BUDGET_MINUTES: '0'}, '1 s', ' at 5 requests/s'],
])('a first sync with %j takes about %s', (env, time, words) => {
  expect(describeFirstSync(parseConfig(env, {readFile: () => ''}))).toBe(
    `a first sync takes about ${time} for every 1,000 deals${words}`,
  )
})

test('doctor finds a target that a job names but nobody defined, and a base URL of another folder', async () => {
  const root = join(lab.folder.root, '../doctor')
  const [jobs, targets] = [join(root, 'jobs'), join(root, 'targets.json')]
  mkdirSync(jobs, {recursive: true})
  const steps = [{do: 'export', profiles: ['csv'], deliver: ['bank']}]
  const job = {name: 'bank', schedule: '0 5 * * *', timeZone: 'UTC', catchUp: 'none', graceMinutes: 5, steps}
  writeFileSync(join(jobs, 'bank.yaml'), JSON.stringify(job))
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
