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

/** A job as a file of `jobs/` contains it. */
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

test("the user's own jobs join the built-in ones, and files that are not modules are skipped", async () => {
  writeFileSync(join(jobsDir, 'README.md'), '# Jobs\n')
  expect(await requireJob(builtIn, 'nightly')).toMatchObject({
    timeZone: 'America/New_York',
    steps: [{do: 'sync'}, {do: 'export', profiles: ['csv', 'parquet']}, {do: 'notify'}],
  })
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

test('a job file may have types, and values from a neighboring file', async () => {
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

const EXPORT = {do: 'export', profiles: ['cvs']}

test.each<[fields: string[], wrong: Record<string, unknown>]>([
  [
    ['name', 'schedule', 'timeZone', 'catchUp', 'graceMinutes', 'timeoutMinutes', 'steps.0.do', 'retries'],
    {
      ...{
        name: 'Month End',
        schedule: 'nightly',
        timeZone: 'Mars/Base',
        catchUp: 'sometimes',
        graceMinutes: -1,
      },
      ...{timeoutMinutes: 0, steps: [{do: 'delete'}], retries: 3},
    },
  ],
  [['minute', 'steps.0.profiles.0'], {schedule: '61 7 1 * *', steps: [EXPORT]}],
  [['schedule', 'steps.1.profiles'], {schedule: '0 7 1 *', steps: [{do: 'sync'}, {...EXPORT, profiles: []}]}],
  [['steps'], {steps: []}],
  [['catchUp'], {catchUp: 'each', steps: [{do: 'sync'}]}],
])('a bad %s is refused with file and field', async (fields, wrong) => {
  writeJob('bad.mjs', aJob(wrong))
  const refusal = await failureOf(readJobs(withOwn()))
  expect(refusal).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  for (const words of [join(jobsDir, 'bad.mjs'), ...fields]) expect(refusal.message).toContain(words)
  // The profiles that exist, each once.
  if (fields.includes('steps.0.profiles.0')) expect(refusal.message.match(/quickbooks/g)).toHaveLength(1)
})

const GOOD = `export default ${JSON.stringify(aJob())}`

test.each([
  ['does not parse', 'export default {'],
  ['throws', `throw new Error('no database here')`],
  ['exports nothing', 'const job = 1'],
  ['ends the process', 'process.exit(0)'],
  ['reads an outside file', `import {readFileSync} from 'node:fs'\nreadFileSync('/etc/hostname')\n${GOOD}`],
  [
    'reads an outside file through a link',
    `import {readFileSync} from 'node:fs'\nthrow new Error(readFileSync(new URL('./link.txt', import.meta.url), 'utf8'))`,
  ],
  ['kills its reader', `process.kill(process.ppid, 'SIGKILL')\n${GOOD}`],
  ['asks this machine', `export default await fetch('http://127.0.0.1:1/').then(() => null)`],
  ['opens a connection', `import {connect} from 'node:net'\nconnect(1)\n${GOOD}`],
  ['reaches a stream', `console._stdout.destroy()\n${GOOD}`],
  ['changes what its reader uses', `Object.prototype.toJSON = () => 1\n${GOOD}`],
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

test('a job file sees no setting of its reader', async () => {
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

test('an unknown job is refused with the known ones, and a missing folder by name', async () => {
  const nowhere = await failureOf(readJobs({...builtIn, jobsDir: '/nowhere/at/all'}))
  expect(nowhere.message).toContain(`/nowhere/at/all`)
  const refusal = await failureOf(requireJob(builtIn, 'weekly'))
  expect(refusal).toMatchObject({code: 'UNKNOWN_NAME', exitCode: 2})
  expect(refusal.message).toMatch(/Job 'weekly' on the command line: expected one of .*nightly/)
})
