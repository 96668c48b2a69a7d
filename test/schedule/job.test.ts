import {mkdtempSync, rmSync, symlinkSync, writeFileSync} from 'node:fs'
import {tmpdir} from 'node:os'
import {join} from 'node:path'
import {afterEach, beforeEach, expect, test} from 'vitest'
import {parseConfig} from '../../src/core/config.ts'
import {readJobs, requireJob} from '../../src/schedule/job.ts'
import {failureOf} from '../support/lab.ts'

let jobsDir: string
let aside: string

beforeEach(() => {
  jobsDir = mkdtempSync(join(tmpdir(), 'loantape-jobs-'))
  aside = mkdtempSync(join(tmpdir(), 'loantape-aside-'))
})

afterEach(() => {
  for (const dir of [jobsDir, aside]) rmSync(dir, {recursive: true, force: true})
})

const builtIn = parseConfig({}, {readFile: () => ''})
const withOwn = () => ({...builtIn, jobsDir})

/** A job as a file of `jobs/` holds it. */
function aJob(fields: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    name: 'month-end',
    schedule: '0 7 1 * *',
    timeZone: 'America/New_York',
    catchUp: 'each',
    graceMinutes: 60,
    steps: [{do: 'build'}, {do: 'export', profiles: ['csv']}],
    ...fields,
  }
}

const namesOf = async (config: typeof builtIn) => (await readJobs(config)).map(({name}) => name)

const writeJob = (file: string, job: unknown) =>
  writeFileSync(join(jobsDir, file), `export default ${JSON.stringify(job)}\n`)

test('the built-in nightly job syncs and exports', async () => {
  expect(await requireJob(builtIn, 'nightly')).toMatchObject({
    timeZone: 'America/New_York',
    steps: [{do: 'sync'}, {do: 'export', profiles: ['csv', 'parquet']}, {do: 'notify'}],
  })
})

test("the user's own jobs stand beside the built-in ones", async () => {
  writeJob('own.ts', aJob({name: 'own'}))
  const jobs = await readJobs(withOwn())
  expect(jobs.map(({name}) => name)).toEqual([...(await namesOf(builtIn)), 'own'])
  expect(jobs.at(-1)).toEqual(aJob({name: 'own'}))
})

test('a job of the same name replaces the built-in one', async () => {
  writeJob('mine.mjs', aJob({name: 'nightly'}))
  expect(await namesOf(withOwn())).toEqual(await namesOf(builtIn))
  expect(await requireJob(withOwn(), 'nightly')).toMatchObject({schedule: '0 7 1 * *'})
})

test('a job file may have types, and values from a file beside it', async () => {
  writeFileSync(join(jobsDir, 'steps.json'), '[{"do": "sync"}]')
  writeFileSync(
    join(jobsDir, 'own.ts'),
    `import type {Job} from 'loantape'
     import steps from './steps.json' with {type: 'json'}
     const own: Record<string, unknown> = ${JSON.stringify(aJob({name: 'own', catchUp: 'latest'}))}
     export default {...own, steps} as unknown`,
  )
  expect((await readJobs(withOwn())).at(-1)).toMatchObject({name: 'own', steps: [{do: 'sync'}]})
})

test('files that are no modules are passed over', async () => {
  writeFileSync(join(jobsDir, 'README.md'), '# Jobs\n')
  expect(await namesOf(withOwn())).toEqual(await namesOf(builtIn))
})

test.each<[string, Record<string, unknown>]>([
  ['name', {name: 'Month End'}],
  ['schedule', {schedule: 'nightly'}],
  ['schedule', {schedule: '0 7 1 *'}],
  ['minute', {schedule: '61 7 1 * *'}],
  ['catchUp', {catchUp: 'each', steps: [{do: 'sync'}]}],
  ['steps.0.profiles.0', {steps: [{do: 'export', profiles: ['cvs']}]}],
  ['timeZone', {timeZone: 'Mars/Base'}],
  ['catchUp', {catchUp: 'sometimes'}],
  ['graceMinutes', {graceMinutes: -1}],
  ['timeoutMinutes', {timeoutMinutes: 0}],
  ['steps', {steps: []}],
  ['steps.0.do', {steps: [{do: 'delete'}]}],
  ['steps.1.profiles', {steps: [{do: 'sync'}, {do: 'export', profiles: []}]}],
  ['retries', {retries: 3}],
])('a bad %s is refused with file and field', async (field, fields) => {
  writeJob('bad.mjs', aJob(fields))
  const refusal = await failureOf(readJobs(withOwn()))
  expect(refusal).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  expect(refusal.message).toContain(join(jobsDir, 'bad.mjs'))
  expect(refusal.message).toContain(field)
})

test('an unknown profile is refused with those there are, each named once', async () => {
  writeJob('bad.mjs', aJob({steps: [{do: 'export', profiles: ['cvs']}]}))
  const {message} = await failureOf(readJobs(withOwn()))
  expect(message.match(/quickbooks/g)).toHaveLength(1)
})

test.each([
  ['does not parse', 'export default {'],
  ['throws', `throw new Error('no database here')`],
  ['exports nothing', 'const job = 1'],
  ['ends the process', 'process.exit(0)'],
  [
    'reads a file elsewhere',
    `import {readFileSync} from 'node:fs'\nreadFileSync('/etc/hostname')\nexport default ${JSON.stringify(aJob())}`,
  ],
  [
    'reads a file elsewhere through a link',
    `import {readFileSync} from 'node:fs'\nthrow new Error(readFileSync(new URL('./link.txt', import.meta.url), 'utf8'))`,
  ],
  [
    'kills whoever reads it',
    `process.kill(process.ppid, 'SIGKILL')\nexport default ${JSON.stringify(aJob())}`,
  ],
  ['asks this machine', `export default await fetch('http://127.0.0.1:1/').then(() => null)`],
  [
    'opens a connection',
    `import {connect} from 'node:net'\nconnect(1)\nexport default ${JSON.stringify(aJob())}`,
  ],
  ['reaches a stream', `console._stdout.destroy()\nexport default ${JSON.stringify(aJob())}`],
  [
    'changes what its reader uses',
    `Object.prototype.toJSON = () => 1\nexport default ${JSON.stringify(aJob())}`,
  ],
  ['starts a program', `import {execFileSync} from 'node:child_process'\nexecFileSync('true')`],
])('a file that %s is refused by name', async (_, text) => {
  writeFileSync(join(aside, 'secret.txt'), 'of another')
  symlinkSync(join(aside, 'secret.txt'), join(jobsDir, 'link.txt'))
  writeFileSync(join(jobsDir, 'broken.mjs'), text)
  const refusal = await failureOf(readJobs(withOwn()))
  expect(refusal).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  expect(refusal.message).toContain('broken.mjs')
  expect(refusal.message).not.toContain('of another')
})

test('a job file sees no setting of whoever reads it', async () => {
  process.env.LOANTAPE_TEST_SECRET = 'of the fleet'
  const text = `const job = ${JSON.stringify(aJob({name: 'own'}))}
    export default {...job, name: globalThis.process?.env.LOANTAPE_TEST_SECRET ? 'seen' : 'unseen'}`
  writeFileSync(join(jobsDir, 'curious.mjs'), text)
  try {
    expect(await namesOf(withOwn())).toContain('unseen')
  } finally {
    delete process.env.LOANTAPE_TEST_SECRET
  }
})

test('a job file that changes is read again', async () => {
  writeJob('own.mjs', aJob({name: 'first'}))
  expect(await namesOf(withOwn())).toContain('first')
  writeJob('own.mjs', aJob({name: 'another'}))
  expect(await namesOf(withOwn())).toContain('another')
})

test('a folder that is not there is refused by name', async () => {
  const refusal = await failureOf(readJobs({...builtIn, jobsDir: '/nowhere/at/all'}))
  expect(refusal.message).toContain(`/nowhere/at/all`)
})

test('an unknown job is refused with those there are', async () => {
  const refusal = await failureOf(requireJob(builtIn, 'weekly'))
  expect(refusal).toMatchObject({code: 'UNKNOWN_NAME', exitCode: 2})
  expect(refusal.message).toMatch(/Job 'weekly' on the command line: expected one of .*nightly/)
})
