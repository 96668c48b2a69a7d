import {mkdirSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {afterAll, beforeAll, expect, test} from 'vitest'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {createSeenLab, type Lab} from '../support/lab.ts'
import {readJson} from './outcome.ts'

let lab: Lab

beforeAll(async () => {
  lab = await createSeenLab()
  await lab.run(['export', 'csv'])
})

afterAll(() => lab[Symbol.asyncDispose]())

/** What `doctor` finds wrong in a folder, as `check: words`. */
async function findWrong(folder: DataFolder, env: Record<string, string> = {}): Promise<string[]> {
  const ended = await lab.run(['doctor', '--json'], {LOANTAPE_DATA_DIR: folder.root, ...env})
  const {healthy, findings} = readJson(ended) as {
    healthy: boolean
    findings: {check: string; ok: boolean; words: string}[]
  }
  const wrong = findings.filter(({ok}) => !ok).map(({check, words}) => `${check}: ${words}`)
  expect(ended.code).toBe(healthy ? 0 : 1)
  expect(healthy).toBe(wrong.length === 0)
  return wrong
}

test.concurrent('a sound folder is healthy, and so is an empty one', async () => {
  expect(await findWrong(lab.folder)).toEqual([])
  const empty = join(lab.folder.root, '../doctor-empty')
  expect(await findWrong({...lab.folder, root: empty})).toEqual([])
})

test.concurrent('doctor finds a target that a job names but nobody defined', async () => {
  const root = join(lab.folder.root, '../doctor-targets')
  const [jobs, targets] = [join(root, 'jobs'), join(root, 'targets.json')]
  mkdirSync(jobs, {recursive: true})
  const steps = [{do: 'export', profiles: ['csv'], deliver: ['bank']}]
  const job = {name: 'bank', schedule: '0 5 * * *', timeZone: 'UTC', catchUp: 'none', graceMinutes: 5, steps}
  writeFileSync(join(jobs, 'bank.mjs'), `export default ${JSON.stringify(job)}`)
  writeFileSync(targets, JSON.stringify({share: {kind: 'folder', path: root}}))
  const env = {LOANTAPE_JOBS_DIR: jobs}
  expect(await findWrong(lab.folder, env)).toEqual([
    expect.stringMatching(/^targets: .*LOANTAPE_TARGETS_FILE not set/),
  ])
  expect(await findWrong(lab.folder, {...env, LOANTAPE_TARGETS_FILE: targets})).toEqual([
    expect.stringMatching(/^targets: Target 'bank' is not in '.*': expected one of share/),
  ])
  writeFileSync(targets, JSON.stringify({bank: {kind: 'folder', path: root}}))
  expect(await findWrong(lab.folder, {...env, LOANTAPE_TARGETS_FILE: targets})).toEqual([])
})

test.concurrent("doctor finds a base URL other than the folder's own", async () => {
  const other = {LOANTAPE_BASE_URL: 'http://127.0.0.1:9'}
  expect(await findWrong(lab.copyFolder('pinned'), other)).toEqual([
    `source: Base URL 'http://127.0.0.1:9': this data folder belongs to '${lab.service.url}'. Use another folder with --data: each source has its own. Only if the same service has moved, with all its deals, run \`loantape sync --accept source\` once.`,
  ])
})
