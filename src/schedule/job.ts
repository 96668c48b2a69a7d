import {execFile} from 'node:child_process'
import {existsSync, readdirSync, realpathSync, statSync} from 'node:fs'
import {join, resolve} from 'node:path'
import {pathToFileURL} from 'node:url'
import {z} from 'zod'
import {PROFILE_NAMES} from '../accounting/profiles.ts'
import {isTimeZone} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {type LoantapeError, newError} from '../core/errors.ts'
import {describeIssues, parseJson} from '../core/json.ts'
import {expectOneOf} from '../core/text.ts'
import {PUBLISH_TARGETS} from '../export/target.ts'
import {findCronProblems} from './slots.ts'

/** The name under which what webhooks bring is run. */
export const WEBHOOK_JOB = 'webhooks'

/** What webhooks bring is run like a slot: queued, one at a time, tried again. */
export const webhookJob: Job = {
  name: WEBHOOK_JOB,
  schedule: '',
  timeZone: 'UTC',
  catchUp: 'latest',
  graceMinutes: 1440,
  steps: [],
}

/** The job of this name among those that are scheduled; what webhooks bring is one of them. */
export function findJob(jobs: readonly Job[], name: string): Job | undefined {
  return name === WEBHOOK_JOB ? webhookJob : jobs.find((job) => job.name === name)
}

/** Writes batches as of the day of the slot. */
export type ExportStep = z.output<typeof exportStep>
const exportStep = z.strictObject({
  do: z.literal('export'),
  profiles: z
    .array(
      z.string().refine((name) => PROFILE_NAMES.includes(name), {
        error: ({input}) => `'${input}': ${expectOneOf(String(input), PROFILE_NAMES)}`,
      }),
    )
    .min(1),
  /** Only these, such as `core.deal`. */
  tables: z.array(z.string()).min(1).optional(),
  /** Send them to these targets of LOANTAPE_TARGETS_FILE. */
  deliver: z.array(z.string()).min(1).optional(),
  /** Of the month before the slot's: its end for tables, its journal for journals. */
  period: z.literal('previous').optional(),
})

/** One step of a job: plain data. */
export type Step = z.output<typeof stepSchema>
const stepSchema = z.discriminatedUnion('do', [
  /** Walk, apply, build, check, release. */
  z.strictObject({do: z.literal('sync')}),
  /** Build and check a release without walking. */
  z.strictObject({do: z.literal('build')}),
  /** Read the reference rates of LOANTAPE_RATES_FILE; does nothing without. */
  z.strictObject({do: z.literal('ingest_rates')}),
  exportStep,
  /** Close the month before on this business day of a month; on every other day the job ends here. */
  z.strictObject({
    do: z.literal('close_period'),
    businessDay: z.number().int().min(1).max(15),
    holidays: z.literal('us-federal').optional(),
  }),
  /** Copy the current release to where others query it. */
  z.strictObject({do: z.literal('publish'), to: z.enum(PUBLISH_TARGETS)}),
  /** Send every batch this run has written to targets of LOANTAPE_TARGETS_FILE. */
  z.strictObject({do: z.literal('deliver'), targets: z.array(z.string()).min(1)}),
  /** Back up below this folder, named after the instant, and keep so many. */
  z.strictObject({do: z.literal('backup'), to: z.string().min(1), kept: z.number().int().min(1)}),
  /**
   * Tell people what has changed since they were last told, also after a step that failed; with `digest` after a run that released
   * something also the figures of the day, once for each day.
   */
  z.strictObject({do: z.literal('notify'), digest: z.boolean().optional()}),
])

/** A scheduled job: plain data, one per file of `jobs/`. */
export type Job = z.output<typeof jobSchema>
const jobSchema = z
  .strictObject({
    name: z
      .string()
      .regex(/^[a-z][a-z0-9-]*$/, 'expected lower-case words joined by hyphens')
      .refine((name) => name !== WEBHOOK_JOB, `'${WEBHOOK_JOB}' is taken by what webhooks bring`),
    /** Cron, five fields, or six with seconds first. */
    schedule: z.string().superRefine((text, context) => {
      for (const message of findCronProblems(text)) context.addIssue({code: 'custom', message})
    }),
    /** IANA time zone of the schedule. */
    timeZone: z.string().refine(isTimeZone, 'expected an IANA time zone'),
    /** Which of the slots missed while the scheduler was down still run, of those within the grace. */
    catchUp: z.enum(['latest', 'each', 'none']),
    /** How late a slot may still start. */
    graceMinutes: z.number().nonnegative(),
    /** How long one attempt may take before it is ended; 240 by default. */
    timeoutMinutes: z.number().positive().optional(),
    /** `false`: no slot of it is ever due; `loantape run` still runs it. */
    enabled: z.boolean().optional(),
    steps: z.array(stepSchema).min(1),
  })
  .refine((job) => job.catchUp !== 'each' || job.steps.every((step) => step.do !== 'sync'), {
    path: ['catchUp'],
    error: `'each' with a sync step: a walk sees today only, so expected latest or none`,
  })

const BUILT_IN_JOBS = join(import.meta.dirname, '../../jobs')

/**
 * Reads every job file: the built-in ones and the user's own, which replace those of the same name.
 *
 * @throws ConfigError `JOB_INVALID` naming file and field
 */
export async function readJobs(config: Config): Promise<Job[]> {
  const folders = [BUILT_IN_JOBS, ...(config.jobsDir === undefined ? [] : [resolve(config.jobsDir)])]
  const jobs = new Map<string, Job>()
  for (const folder of folders) {
    if (!existsSync(folder)) throw jobError(folder, 'the folder is not there')
    const files = readdirSync(folder).filter((file) => /\.(ts|js|mjs)$/.test(file))
    const contents =
      folder === BUILT_IN_JOBS
        ? await importBuiltIn(files)
        : await readOwn(realpathSync(folder), files.sort())
    for (const [index, file] of files.entries()) {
      const job = parseJob(join(folder, file), contents[index])
      jobs.set(job.name, job)
    }
  }
  return [...jobs.values()]
}

/** What a file exports, or what is wrong with it. */
type Content = z.output<typeof contentSchema>
const contentSchema = z.union([z.object({value: z.unknown()}), z.object({problem: z.string()})])

function importBuiltIn(files: readonly string[]): Promise<Content[]> {
  const importOne = async (file: string) => {
    const {href} = pathToFileURL(join(BUILT_IN_JOBS, file))
    return {value: z.object({default: z.unknown()}).parse(await import(href)).default}
  }
  return Promise.all(files.map(importOne))
}

const READ_MS = 5_000

/** Says of each module what it exports, a line for each. */
const READER = `for (const url of process.argv.slice(1)) {
  const said = await import(url).then((read) => ({value: read.default ?? null}), ({message}) => ({problem: message}))
  process.stdout.write(JSON.stringify(said) + '\\n')
}`

/** What was read, by folder, as long as its files are as they were: a fleet asks again all the time. */
const contentsByFolder = new Map<string, {state: string; contents: Content[]}>()

/**
 * Reads job files of people's own in a process that sees nothing but their folder, neither settings nor other files: a module can do
 * what it likes, and in a fleet it is another lender's.
 */
async function readOwn(folder: string, files: readonly string[]): Promise<Content[]> {
  const paths = files.map((file) => join(folder, file))
  const state = JSON.stringify(paths.map((path) => [path, statSync(path).mtimeMs, statSync(path).size]))
  const known = contentsByFolder.get(folder)
  if (known?.state === state) return known.contents
  const args = ['--permission', `--allow-fs-read=${folder}`, '--input-type=module', '--eval', READER]
  const urls = paths.map((path) => pathToFileURL(path).href)
  const printed = await new Promise<{stdout: string; isLate: boolean}>((done) => {
    const limits = {timeout: READ_MS, killSignal: 'SIGKILL' as const, maxBuffer: 1024 * 1024}
    execFile(process.execPath, [...args, ...urls], {...limits, env: {}}, (error, stdout) =>
      done({stdout, isLate: error?.killed ?? false}),
    )
  })
  const said = printed.stdout
    .split('\n')
    .flatMap((line) => contentSchema.safeParse(parseJson(line)).data ?? [])
  const nothing = printed.isLate
    ? `it could not be read within ${READ_MS / 1000} seconds`
    : 'it ended the process that read it'
  const contents = files.map((_, index) => said[index] ?? {problem: nothing})
  if (said.length >= files.length) contentsByFolder.set(folder, {state, contents})
  return contents
}

function parseJob(file: string, content: Content = {problem: 'it says nothing'}): Job {
  if ('problem' in content) throw jobError(file, content.problem)
  const parsed = jobSchema.safeParse(content.value)
  if (parsed.success) return parsed.data
  throw jobError(file, describeIssues(parsed.error, '(job)').join('; '))
}

function jobError(file: string, problem: string): LoantapeError {
  return newError('JOB_INVALID', `Job '${file}': ${problem}.`)
}

/** What may be run here, by name. */
export const namesOf = (jobs: readonly Job[]): string[] => [...jobs.map(({name}) => name), WEBHOOK_JOB]

/** The profiles that enabled jobs export. */
export function listExportedProfiles(jobs: readonly Job[]): string[] {
  const steps = jobs.filter(isEnabled).flatMap((job) => job.steps)
  return [...new Set(steps.flatMap((step) => (step.do === 'export' ? step.profiles : [])))]
}

/** Whether the slots of a job come due. */
export function isEnabled({enabled = true}: Job): boolean {
  return enabled
}

/**
 * The job of this name.
 *
 * @throws ConfigError `UNKNOWN_NAME` naming those there are
 */
export async function requireJob(config: Config, name: string): Promise<Job> {
  const jobs = await readJobs(config)
  const job = jobs.find((known) => known.name === name)
  if (job) return job
  const names = jobs.map((known) => known.name)
  throw newError('UNKNOWN_NAME', `Job '${name}' on the command line: ${expectOneOf(name, names)}.`)
}
