import {mkdirSync, rmSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beforeEach, expect, test} from 'vitest'
import {parseConfig} from '../../src/core/config.ts'
import {listFaults, readJobs, requireJob} from '../../src/schedule/job.ts'
import {failureOf} from '../support/lab.ts'
import {useFolder} from '../support/set-up.ts'

const {root} = useFolder().folder
const jobsDir = join(root, 'jobs')
beforeEach(() => mkdirSync(jobsDir))

const builtIn = parseConfig({}, {readFile: () => ''})
const withOwn = () => ({...builtIn, jobsDir})

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

const write = (file: string, text: string | Buffer) => writeFileSync(join(jobsDir, file), text)
const refusalOf = (work: () => unknown) => failureOf((async () => work())())

/** Returns the fault of the one wrong file; all other jobs must be read. */
function requireFault() {
  const jobs = readJobs(withOwn())
  const [fault, ...others] = listFaults(jobs)
  if (!fault || others.length > 0) throw new Error(`${others.length} faults`)
  expect(jobs.filter((job) => job.fault).map(({enabled, steps}) => [enabled, steps])).toEqual([[false, []]])
  return fault
}

test("the user's own jobs join the built-in ones or replace them by name", () => {
  expect(requireJob(builtIn, 'nightly')).toMatchObject({
    timeZone: 'America/New_York',
    steps: [
      {do: 'sync'},
      {do: 'export', profiles: ['csv', 'parquet']},
      {do: 'prune'},
      {do: 'digest', page: 'morning'},
      {do: 'notify'},
    ],
  })
  write('README.md', '# Jobs\n')
  write('mine.yml', JSON.stringify(aJob({name: 'nightly'})))
  write('own.yaml', JSON.stringify(aJob({name: 'own'})))
  const jobs = readJobs(withOwn())
  expect(jobs.map(({name}) => name)).toEqual([...readJobs(builtIn).map(({name}) => name), 'own'])
  expect(jobs.find(({name}) => name === 'nightly')).toMatchObject({schedule: '0 7 1 * *'})
  expect(jobs.at(-1)).toEqual(aJob({name: 'own', timeoutMinutes: 240, enabled: true}))
})

test("a job is named as its file, and due by the lender's clocks, with the usual grace", () => {
  const {name: _name, catchUp: _catchUp, graceMinutes: _grace, timeZone: _zone, ...shortest} = aJob()
  write('my-night.yml', JSON.stringify(shortest))
  const usual = {catchUp: 'latest', graceMinutes: 360, timeoutMinutes: 240, enabled: true}
  const inGuam = {...withOwn(), timeZone: 'Pacific/Guam'}
  expect(requireJob(inGuam, 'my-night')).toEqual({
    name: 'my-night',
    ...shortest,
    timeZone: 'Pacific/Guam',
    ...usual,
  })
  expect(requireJob(inGuam, 'nightly').timeZone).toBe('Pacific/Guam')
  rmSync(join(jobsDir, 'my-night.yml'))
  write('My night.yaml', JSON.stringify(shortest))
  expect(requireFault().message).toContain('My night.yaml')
  rmSync(join(jobsDir, 'My night.yaml'))
  write('webhooks.yaml', JSON.stringify(shortest))
  expect(requireFault().message).toContain("expected another name: 'webhooks'")
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
  [['steps.0.period', "'previous'"], {steps: [{...EXPORT, profiles: ['csv', 'xero']}]}],
  [['every'], {steps: [{do: 'digest', page: 'morning', every: 'day'}]}],
  [['steps.0.to.0', 'mail address'], {steps: [{do: 'digest', page: 'morning', to: ['ann']}]}],
])('a bad %s is refused with file and field', async (fields, wrong) => {
  write('bad.yaml', JSON.stringify(aJob(wrong)))
  const refusal = requireFault()
  expect(refusal).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  for (const words of [join(jobsDir, 'bad.yaml'), ...fields]) expect(refusal.message).toContain(words)
  expect(refusal.message, 'words of libraries').not.toMatch(
    /Invalid (input|option|discr)|Too small|CronPattern/,
  )
  // Lists each existing profile once.
  if (fields.includes('steps.0.profiles.0')) expect(refusal.message.match(/quickbooks/g)).toHaveLength(1)
})

test.each([
  ['does not parse', 'name: own\nsteps: [\n', /at line 3, column 1/],
  ['has a schedule without quotes', 'schedule: * * * * *', /alias/i],
  ['holds nothing', '# later\n', /\(job\)/],
  ['holds two jobs', 'name: a\n---\nname: b\n', /multiple documents/],
  ['holds two schedules', 'schedule: 1\nschedule: 2\n', /unique/],
  ['has a schedule that reads as an alias', 'schedule: */5 * * * *', /alias.* put in quotes/],
  ['calls for code', `name: !!js/function 'x'\n`, /js\/function/],
  ['is no UTF-8', Buffer.from('to: B\xfcro', 'latin1'), /byte 0xFC at 1:6: expected UTF-8/],
  ['is long', `${'#'.repeat(17_000)}\n`, /at most 16384 characters, received 17001/],
  [
    'swells',
    `a: &a [x]\n${[...'bcdefghij'].map((name, index) => `${name}: &${name} [${`*${'abcdefghij'[index]}, `.repeat(9)}]`).join('\n')}`,
    /alias/i,
  ],
])('a file that %s is refused by name', async (_, text, words) => {
  write('broken.yaml', text)
  const refusal = requireFault()
  expect(refusal).toMatchObject({code: 'JOB_INVALID', exitCode: 2})
  expect(refusal.message).toContain('broken.yaml')
  expect(refusal.message).toMatch(words)
})

test('nothing that looks like a job is left out in silence', async () => {
  const refusal = () => requireFault().message
  write('.x.yaml', '?')
  readJobs(withOwn())
  write('old.mjs', 'export default {}')
  expect(refusal()).toContain(`Job '${join(jobsDir, 'old.mjs')}': expected YAML`)
  rmSync(join(jobsDir, 'old.mjs'))
  mkdirSync(join(jobsDir, 'x.yaml'))
  expect(refusal()).toContain('x.yaml')
  rmSync(join(jobsDir, 'x.yaml'), {recursive: true})
  for (const file of ['x.yaml', 'x.yml']) write(file, JSON.stringify(aJob()))
  expect(refusal()).toContain(`x.yml': 'month-end' is also the name of the job in x.yaml`)
})

test('a wrong file takes down the job it holds, ours of that name too, and no other', async () => {
  write('mine.yaml', 'name: nightly\nsteps: [\n')
  expect(requireFault().message).toContain('mine.yaml')
  await expect(refusalOf(() => requireJob(withOwn(), 'nightly'))).resolves.toMatchObject({
    code: 'JOB_INVALID',
  })
  write('mine.yaml', 'name: webhooks\n')
  expect(readJobs(withOwn()).at(-1)).toMatchObject({name: 'mine.yaml'})
  write('mine.yaml', JSON.stringify(aJob({name: 'nightly', catchUp: 'never'})))
  expect(requireJob(withOwn(), 'month-end').steps).toHaveLength(3)
  const refusals = ['nightly', 'nothing'].map((name) => refusalOf(() => requireJob(withOwn(), name)))
  for (const {code, message} of await Promise.all(refusals)) {
    expect(code).toBe('JOB_INVALID')
    expect(message).toContain('mine.yaml')
  }
})

test('a missing folder is refused by name', async () => {
  const nowhere = await refusalOf(() => readJobs({...builtIn, jobsDir: '/nowhere/at/all'}))
  expect(nowhere.message).toContain(`/nowhere/at/all`)
})
