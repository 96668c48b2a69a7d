import {existsSync, readdirSync, readFileSync} from 'node:fs'
import {createRequire} from 'node:module'
import {basename, join, resolve} from 'node:path'
import type Yaml from 'yaml'
import {z} from 'zod'
import {findJournalProfile} from '../accounting/profiles.ts'
import {isTimeZone} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {explainError, type LoantapeError, messageOf, newError} from '../core/errors.ts'
import {describeIssues, isObject} from '../core/json.ts'
import {expectOneOf} from '../core/text.ts'
import {dialectSchema} from '../export/dialect.ts'
import {PROFILE_NAMES} from '../export/table-files.ts'
import {PUBLISH_TARGETS} from '../export/target.ts'
import {isFile, readWrittenText} from '../store/files.ts'
import {findCronProblem} from './slots.ts'

const folderShape = z.string().regex(/^[^\0]+$/, 'expected a folder')

/** docs/operations.md says what each does. */
export type Step = z.output<typeof stepSchema>
export type DigestStep = Extract<Step, {do: 'digest'}>
const stepSchema = z.discriminatedUnion('do', [
  z.strictObject({do: z.literal('sync')}),
  z.strictObject({do: z.literal('apply_events')}),
  z.strictObject({do: z.literal('build')}),
  z.strictObject({do: z.literal('ingest_rates')}),
  z
    .strictObject({
      do: z.literal('export'),
      profiles: z
        .array(
          z.string().refine((name) => PROFILE_NAMES.includes(name), {
            error: ({input}) => `'${input}': ${expectOneOf(String(input), PROFILE_NAMES)}`,
          }),
        )
        .min(1),
      /** Only these tables, such as `core.deal`. */
      tables: z.array(z.string()).min(1).optional(),
      dialect: dialectSchema.optional(),
      deliver: z.array(z.string()).min(1).optional(),
      period: z.literal('previous').optional(),
    })
    .refine(({profiles, dialect}) => dialect === undefined || profiles.includes('csv'), {
      path: ['dialect'],
      error: "expected 'csv' among the profiles",
    })
    .refine(({profiles, period}) => period || !profiles.some(findJournalProfile), {
      path: ['period'],
      error: "expected 'previous': a journal is that of a month",
    }),
  /** Close the previous month, on this business day of the month or later; before it the job ends successfully. */
  z.strictObject({
    do: z.literal('close_period'),
    businessDay: z.number().int().min(1).max(15),
    holidays: z.literal('us-federal').optional(),
  }),
  z.strictObject({do: z.literal('publish'), to: z.enum(PUBLISH_TARGETS)}),
  z.strictObject({do: z.literal('deliver'), targets: z.array(z.string()).min(1)}),
  z.strictObject({
    do: z.literal('backup'),
    to: folderShape,
    kept: z.number().int().min(1),
    deliver: z.array(z.string()).min(1).optional(),
  }),
  z.strictObject({do: z.literal('prune')}),
  z.strictObject({do: z.literal('restore_drill'), from: folderShape}),
  z.strictObject({
    do: z.literal('digest'),
    page: z.string().min(1).default('morning'),
    when: z.string().min(1).optional(),
    /** People to mail it to, with what viewers may see; by default it goes where alarms go, and shows everything. */
    to: z.array(z.email('expected a mail address')).min(1).optional(),
  }),
  /** Send new alarms and recoveries, even if another step failed. */
  z.strictObject({do: z.literal('notify')}),
])

/** One per file of `jobs/`. The job of an invalid file has a `fault` and is never due. */
export type Job = z.output<typeof jobSchema> & {fault?: LoantapeError}
const jobSchema = z
  .strictObject({
    /** By default the name of its file. */
    name: z
      .string()
      .regex(/^[a-z][a-z0-9-]*$/, 'expected lower-case words joined by hyphens')
      .refine((name) => name !== 'webhooks', "expected another name: 'webhooks' applies webhook events"),
    /** Cron with five fields, or six with seconds first. */
    schedule: z.string().superRefine((text, context) => {
      const message = findCronProblem(text)
      if (message !== undefined) context.addIssue({code: 'custom', message})
    }),
    /** By default the lender's. */
    timeZone: z.string().refine(isTimeZone, 'expected an IANA time zone'),
    /** Which slots missed while the scheduler was down still run, if within the grace. */
    catchUp: z.enum(['latest', 'each', 'none']).default('latest'),
    /** How late a slot may still start. */
    graceMinutes: z.number().nonnegative().default(360),
    /** The longest one attempt may take. Shorter than the grace of the nightly job, so that a hanging run does not cost a night. */
    timeoutMinutes: z.number().positive().default(240),
    /** `loantape run` still runs a disabled job. */
    enabled: z.boolean().default(true),
    steps: z.array(stepSchema).min(1),
  })
  .refine((job) => job.catchUp !== 'each' || job.steps.every((step) => step.do !== 'sync'), {
    path: ['catchUp'],
    error: `'each' with a sync step: a walk sees today only, so expected latest or none`,
  })

/** Queued while events wait, not by a schedule. */
export const webhookJob: Job = {
  name: 'webhooks',
  schedule: '',
  timeZone: 'UTC',
  catchUp: 'latest',
  graceMinutes: 1440,
  timeoutMinutes: 240,
  enabled: true,
  steps: [{do: 'apply_events'}],
}

/** {@link webhookJob} always exists. */
export function findJob(jobs: readonly Job[], name: string): Job | undefined {
  return [webhookJob, ...jobs].find((job) => job.name === name)
}

/** @throws ConfigError `UNKNOWN_NAME` with the names of the jobs; `JOB_INVALID` */
export function requireJob(config: Pick<Config, 'jobsDir' | 'timeZone'>, name: string): Job {
  const jobs = readJobs(config)
  const job = findJob(jobs, name)
  // The job of this name may be in one of the invalid files.
  const [fault] = listFaults(job ? [job] : jobs)
  if (fault) throw fault
  if (job) return job
  const names = jobs.map((known) => known.name)
  const {jobsDir} = config
  throw newError('UNKNOWN_NAME', `Job '${name}': ${expectOneOf(name, names)}.`, {
    next: jobsDir ? `Yours are in '${jobsDir}'.` : 'Name the folder of yours in LOANTAPE_JOBS_DIR.',
  })
}

export function listExportedProfiles(jobs: readonly Job[]): string[] {
  const steps = jobs.filter(({enabled}) => enabled).flatMap((job) => job.steps)
  return [...new Set(steps.flatMap((step) => (step.do === 'export' ? step.profiles : [])))]
}

export const listFaults = (jobs: readonly Pick<Job, 'fault'>[]): LoantapeError[] =>
  jobs.flatMap(({fault}) => fault ?? [])

/**
 * Reads the built-in jobs, and the user's own, which replace those of the same name. A wrong file takes no other job down: its
 * fault names file and field. @throws ConfigError `JOB_INVALID` without the folder
 */
export function readJobs({jobsDir, timeZone}: Pick<Config, 'jobsDir' | 'timeZone'>): Job[] {
  const builtIn = join(import.meta.dirname, '../../jobs')
  const folders = [builtIn, ...(jobsDir === undefined ? [] : [resolve(jobsDir)])]
  const jobs = new Map<string, Job>()
  for (const folder of folders) {
    if (!existsSync(folder)) throw jobError(folder, 'no such folder')
    const ofFolder = new Map<string, string>()
    for (const name of readdirSync(folder).filter(isJobFile).sort()) {
      const file = join(folder, name)
      const job = readJob(file, timeZone)
      const other = ofFolder.get(job.name)
      const isTwice = other !== undefined && `'${job.name}' is also the name of the job in ${other}`
      ofFolder.set(job.name, name)
      jobs.set(job.name, isTwice ? brokenAs(job.name, jobError(file, isTwice)) : job)
    }
  }
  return [...jobs.values()]
}

/** Files in other formats match too, so that they are refused instead of ignored. */
const isJobFile = (name: string) => /^[^.].*\.(ya?ml|[cm]?[jt]s)$/i.test(name)

function readJob(file: string, timeZone: string): Job {
  try {
    const isYaml = /\.ya?ml$/.test(file) && isFile(file)
    if (!isYaml) throw jobError(file, 'expected YAML in a file whose name ends in .yaml')
    const given = parseYaml(file)
    const parsed = jobSchema.safeParse(isObject(given) ? {name: stemOf(file), timeZone, ...given} : given)
    if (parsed.success) return parsed.data
    throw jobError(file, describeIssues(parsed.error, '(job)').join('; '))
  } catch (error) {
    return brokenAs(nameIn(file), explainError(error))
  }
}

const stemOf = (file: string) => basename(file).replace(/\.\w+$/, '')

/** Guesses the name of the job in an invalid file, so that no other job of that name takes its place. */
function nameIn(file: string): string {
  const text = isFile(file) ? readFileSync(file, 'latin1') : ''
  const [, name = stemOf(file)] = /(?:^|[{,]\s*)["']?name["']?\s*:\s*["']?([a-z][a-z0-9-]*)/m.exec(text) ?? []
  return name === webhookJob.name ? basename(file) : name
}

const brokenAs = (name: string, fault: LoantapeError): Job => ({
  ...webhookJob,
  name,
  enabled: false,
  steps: [],
  fault,
})

/** Most characters of a job file: the server reads jobs while others wait. */
const LONGEST = 16_384

function parseYaml(file: string): unknown {
  // Loaded here, since it would slow the start of every command.
  const {parseDocument}: typeof Yaml = createRequire(import.meta.url)('yaml')
  const text = readWrittenText(file, (problem) => jobError(file, problem))
  try {
    if (text.length > LONGEST)
      throw new Error(`expected at most ${LONGEST} characters, received ${text.length}`)
    const yaml = parseDocument(text, {schema: 'core'})
    const [problem] = [...yaml.errors, ...yaml.warnings]
    if (problem) throw problem
    return yaml.toJS({maxAliasCount: 0})
  } catch (error) {
    const [problem = ''] = messageOf(error).split('\n')
    const hint = /alias/i.test(problem) ? '; a text that begins with * is put in quotes' : ''
    throw jobError(file, problem.replace(/[.:]$|; please use .*/, '') + hint)
  }
}

function jobError(file: string, problem: string): LoantapeError {
  return newError('JOB_INVALID', `Job '${file}': ${problem}.`)
}
