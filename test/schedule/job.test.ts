import {mkdirSync, symlinkSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {parseConfig} from '../../src/core/config.ts'
import {readJobs, requireJob} from '../../src/schedule/job.ts'
import {failureOf} from '../support/lab.ts'
import {useFolder} from '../support/set-up.ts'

const {root} = useFolder().folder
const jobsDir = join(root, 'jobs')
beforeEach(() => mkdirSync(jobsDir))

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

const write = (file: string, text: string) => writeFileSync(join(jobsDir, file), text)
const writeJob = (file: string, job: unknown) => write(file, `export default ${JSON.stringify(job)}\n`)

test("the user's own jobs join the built-in ones or replace them by name, and are read again when they change", async () => {
  expect(await requireJob(builtIn, 'nightly')).toMatchObject({
    timeZone: 'America/New_York',
    steps: [{do: 'sync'}, {do: 'export', profiles: ['csv', 'parquet']}, {do: 'notify'}],
  })
  write('README.md', '# Jobs\n')
  writeJob('mine.mjs', aJob({name: 'nightly'}))
  writeJob('own.ts', aJob({name: 'own'}))
  write('steps.json', '[{"do": "sync"}]')
  const typed = aJob({name: 'typed', catchUp: 'latest'})
  write(
    'typed.ts',
    `import type {Job} from 'loantape'
     import steps from './steps.json' with {type: 'json'}
     const own: Record<string, unknown> = ${JSON.stringify(typed)}
     export default {...own, steps} as unknown`,
  )
  const jobs = await readJobs(withOwn())
  expect(jobs.map(({name}) => name)).toEqual([...(await namesOf(builtIn)), 'own', 'typed'])
  expect(jobs.find(({name}) => name === 'nightly')).toMatchObject({schedule: '0 7 1 * *'})
  expect(jobs.slice(-2)).toEqual([aJob({name: 'own'}), {...typed, steps: [{do: 'sync'}]}])
  writeJob('own.ts', aJob({name: 'another'}))
  expect(await namesOf(withOwn())).toContain('another')
})

const EXPORT = {do: 'export', profiles: ['cvs']}

test.each<[fields: string[], wrong: Record<string, unknown>]>([
  [
    ['name', 'schedule', 'timeZone', 'catchUp', 'graceMinutes', 'timeoutMinutes', 'steps.0.do', 'retries'],
    {
      ...{name: 'Month End', schedule: 'nightly', timeZone: 'Mars/Base', catchUp: 'sometimes'},
      ...{graceMinutes: -1, timeoutMinutes: 0, steps: [{do: 'delete'}], retries: 3},
    },
  ],
  [
    ['minute', 'steps.0.profiles.0', 'steps.1.profiles'],
    {schedule: '61 7 1 * *', steps: [EXPORT, {...EXPORT, profiles: []}]},
  ],
  [['schedule', 'steps'], {schedule: '0 7 1 *', steps: []}],
  [['catchUp'], {catchUp: 'each', steps: [{do: 'sync'}]}],
])('a bad %s is refused with file and field', async (fields, wrong) => {
  writeJob('bad.mjs', aJob(wrong))
  const refusal = await failureOf(readJobs(withOwn()))
  expect(refusal).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  for (const words of [join(jobsDir, 'bad.mjs'), ...fields]) expect(refusal.message).toContain(words)
  // The profiles that exist, each once.
  if (fields.includes('steps.0.profiles.0')) expect(refusal.message.match(/quickbooks/g)).toHaveLength(1)
})

test.each([
  ['does not parse', 'export default {'],
  ['throws', `throw new Error('no database here')`],
  ['exports nothing', 'const job = 1'],
  ['ends the process', 'process.exit(0)'],
])('a file that %s is refused by name', async (_, text) => {
  write('broken.mjs', text)
  const refusal = await failureOf(readJobs(withOwn()))
  expect(refusal).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  expect(refusal.message).toContain('broken.mjs')
})

test('a job file reaches no setting, file, program, network or stream of its reader', async () => {
  writeFileSync(join(root, 'secret.json'), '"of another"')
  symlinkSync(join(root, 'secret.json'), join(jobsDir, 'link.json'))
  process.env.LOANTAPE_TEST_SECRET = 'of the fleet'
  const attempts = [
    `import('node:fs')`,
    `import('node:child_process')`,
    `import('node:net')`,
    `import('node:module')`,
    `import('../secret.json', {with: {type: 'json'}})`,
    `import('./link.json', {with: {type: 'json'}})`,
    `fetch('http://127.0.0.1:1/').catch(() => 'asked')`,
    `process.env.LOANTAPE_TEST_SECRET`,
    `process.kill(process.ppid, 0)`,
    `console._stdout.destroy()`,
    `globalThis.process.env`,
    `(Object.prototype.toJSON = () => 1)`,
    `new Function('return process')()`,
  ]
  write(
    'curious.mjs',
    `const reached = []
     ${attempts.map((code, index) => `try { await ${code}; reached.push(${index}) } catch {}`).join('\n')}
     export default {...${JSON.stringify(aJob())}, name: ['reached', ...reached].join('-')}`,
  )
  try {
    expect((await namesOf(withOwn())).at(-1)).toBe('reached')
  } finally {
    delete process.env.LOANTAPE_TEST_SECRET
  }
})

test('an unknown job is refused with the known ones, and a missing folder by name', async () => {
  const nowhere = await failureOf(readJobs({...builtIn, jobsDir: '/nowhere/at/all'}))
  expect(nowhere.message).toContain(`/nowhere/at/all`)
  const refusal = await failureOf(requireJob(builtIn, 'weekly'))
  expect(refusal).toMatchObject({code: 'UNKNOWN_NAME', exitCode: 2})
  expect(refusal.message).toMatch(/Job 'weekly' on the command line: expected one of .*nightly/)
})
