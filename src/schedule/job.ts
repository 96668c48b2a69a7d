import {execFile} from 'node:child_process'
import {existsSync, readdirSync, realpathSync, statSync} from 'node:fs'
import {join, resolve} from 'node:path'
import {pathToFileURL} from 'node:url'
import {z} from 'zod'
import {isTimeZone} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {type LoantapeError, newError} from '../core/errors.ts'
import {describeIssues, parseJson} from '../core/json.ts'
import {expectOneOf} from '../core/text.ts'
import {PROFILE_NAMES} from '../export/table-files.ts'
import {PUBLISH_TARGETS} from '../export/target.ts'
import {findCronProblem} from './slots.ts'

/** The name under which webhook events are applied. */
export const WEBHOOK_JOB = 'webhooks'

/** One step of a job: plain data. */
export type Step = z.output<typeof stepSchema>
const stepSchema = z.discriminatedUnion('do', [
  /** Walk, apply, build, check, release. */
  z.strictObject({do: z.literal('sync')}),
  /** Build and check a release without walking. */
  z.strictObject({do: z.literal('build')}),
  /** Read the reference rates of LOANTAPE_RATES_FILE; does nothing if it is not set. */
  z.strictObject({do: z.literal('ingest_rates')}),
  /** Write batches as of the day of the slot. */
  z.strictObject({
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
    /** Of the month before the slot's: tables as of its end, journals of that month. */
    period: z.literal('previous').optional(),
  }),
  /** Close the previous month, from this business day of the month on; before that day the job ends successfully. */
  z.strictObject({
    do: z.literal('close_period'),
    businessDay: z.number().int().min(1).max(15),
    holidays: z.literal('us-federal').optional(),
  }),
  /** Copy the current release to where others query it. */
  z.strictObject({do: z.literal('publish'), to: z.enum(PUBLISH_TARGETS)}),
  /** Send every batch this run has written to targets of LOANTAPE_TARGETS_FILE. */
  z.strictObject({do: z.literal('deliver'), targets: z.array(z.string()).min(1)}),
  /** Back up into a subfolder of `to`, named after the instant; the latest `kept` backups stay. */
  z.strictObject({do: z.literal('backup'), to: z.string().min(1), kept: z.number().int().min(1)}),
  /** Send new alarms and recoveries, also when another step failed; with `digest`, the day's figures once a day. */
  z.strictObject({do: z.literal('notify'), digest: z.boolean().optional()}),
])

/** A scheduled job: plain data, one per file of `jobs/`. */
export type Job = z.output<typeof jobSchema>
const jobSchema = z
  .strictObject({
    name: z
      .string()
      .regex(/^[a-z][a-z0-9-]*$/, 'expected lower-case words joined by hyphens')
      .refine(
        (name) => name !== WEBHOOK_JOB,
        `expected another name: '${WEBHOOK_JOB}' applies webhook events`,
      ),
    /** Cron, five fields, or six with seconds first. */
    schedule: z.string().superRefine((text, context) => {
      const message = findCronProblem(text)
      if (message !== undefined) context.addIssue({code: 'custom', message})
    }),
    /** IANA time zone of the schedule. */
    timeZone: z.string().refine(isTimeZone, 'expected an IANA time zone'),
    /** Which slots missed while the scheduler was down still run, if within the grace. */
    catchUp: z.enum(['latest', 'each', 'none']),
    /** How late a slot may still start. */
    graceMinutes: z.number().nonnegative(),
    /** How long one attempt may take before it is ended; 240 by default. */
    timeoutMinutes: z.number().positive().optional(),
    /** `false`: its slots never come due; `loantape run` still runs it. */
    enabled: z.boolean().optional(),
    steps: z.array(stepSchema).min(1),
  })
  .refine((job) => job.catchUp !== 'each' || job.steps.every((step) => step.do !== 'sync'), {
    path: ['catchUp'],
    error: `'each' with a sync step: a walk sees today only, so expected latest or none`,
  })

/** Webhook events are applied by a run like any other: queued, one at a time, retried. */
export const webhookJob: Job = {
  name: WEBHOOK_JOB,
  schedule: '',
  timeZone: 'UTC',
  catchUp: 'latest',
  graceMinutes: 1440,
  steps: [],
}

/** The job of this name; {@link WEBHOOK_JOB} is always there. */
export function findJob(jobs: readonly Job[], name: string): Job | undefined {
  return [webhookJob, ...jobs].find((job) => job.name === name)
}

/**
 * The job of this name among the job files.
 *
 * @throws ConfigError `UNKNOWN_NAME` with the known names
 */
export async function requireJob(config: Config, name: string): Promise<Job> {
  const jobs = await readJobs(config)
  const job = jobs.find((known) => known.name === name)
  if (job) return job
  const names = jobs.map((known) => known.name)
  throw newError('UNKNOWN_NAME', `Job '${name}' on the command line: ${expectOneOf(name, names)}.`)
}

/** Whether the slots of a job come due. */
export const isEnabled = ({enabled = true}: Job): boolean => enabled

/** The profiles that enabled jobs export. */
export function listExportedProfiles(jobs: readonly Job[]): string[] {
  const steps = jobs.filter(isEnabled).flatMap((job) => job.steps)
  return [...new Set(steps.flatMap((step) => (step.do === 'export' ? step.profiles : [])))]
}

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
    if (!existsSync(folder)) throw jobError(folder, 'no such folder')
    const files = readdirSync(folder).filter((file) => /\.(ts|js|mjs)$/.test(file))
    const modules =
      folder === BUILT_IN_JOBS
        ? await importBuiltIn(files)
        : await readOwn(realpathSync(folder), files.sort())
    for (const [index, file] of files.entries()) {
      const job = parseJob(join(folder, file), modules[index])
      jobs.set(job.name, job)
    }
  }
  return [...jobs.values()]
}

function parseJob(file: string, module: JobModule = {problem: 'it exports nothing'}): Job {
  if ('problem' in module) throw jobError(file, module.problem)
  const parsed = jobSchema.safeParse(module.default)
  if (parsed.success) return parsed.data
  throw jobError(file, describeIssues(parsed.error, '(job)').join('; '))
}

function jobError(file: string, problem: string): LoantapeError {
  return newError('JOB_INVALID', `Job '${file}': ${problem}.`)
}

/** What a job file exports, or why it could not be read. */
type JobModule = z.output<typeof moduleSchema>
const moduleSchema = z.union([z.object({default: z.unknown()}), z.object({problem: z.string()})])

function importBuiltIn(files: readonly string[]): Promise<JobModule[]> {
  const urls = files.map((file) => pathToFileURL(join(BUILT_IN_JOBS, file)).href)
  return Promise.all(urls.map(async (url) => moduleSchema.parse(await import(url))))
}

/** A busy machine takes seconds to start a process. */
const READ_MS = 30_000

/** The globals that a module may use: those of the language, none of the machine. */
const LANGUAGE = `
  globalThis undefined NaN Infinity Object Function Boolean Symbol Math JSON Number BigInt String
  RegExp Date Intl Array Map Set WeakMap WeakSet Promise Reflect Proxy Iterator Error TypeError
  RangeError SyntaxError ReferenceError EvalError URIError AggregateError parseInt parseFloat isNaN
  isFinite
`

/** Prints a line for each module. A module can import only files beside it and cannot reach the process that reads it. */
const READER = `import {registerHooks, stripTypeScriptTypes} from 'node:module'
const [{stdout, argv}, kept] = [process, new Set(${JSON.stringify(LANGUAGE.trim().split(/\s+/))})]
registerHooks({resolve(name, context, next) {
  if (/^(file:|[.]{0,2}[/])/.test(name)) return next(name, context)
  throw new Error("import of '" + name + "': expected nothing but files beside it")
}})
// Loads it before the globals it needs are deleted.
stripTypeScriptTypes('')
for (const name of Reflect.ownKeys(globalThis)) if (!kept.has(name)) delete globalThis[name]
for (const url of argv.slice(1)) {
  const line = await import(url).then((read) => ({default: read.default ?? null}), ({message}) => ({problem: message}))
  stdout.write(JSON.stringify(line) + '\\n')
}`

/** Modules by folder, valid until a file changes: a fleet reads its jobs every few seconds. */
const modulesByFolder = new Map<string, {state: string; modules: JobModule[]}>()

/**
 * Reads a user's job files in a process that sees only their folder, no settings, no other files and no network: a module can run
 * any code, and in a fleet it belongs to another lender.
 */
async function readOwn(folder: string, files: readonly string[]): Promise<JobModule[]> {
  const paths = files.map((file) => join(folder, file))
  const state = JSON.stringify(paths.map((path) => [path, statSync(path).mtimeMs, statSync(path).size]))
  const known = modulesByFolder.get(folder)
  if (known?.state === state) return known.modules
  const limits = ['--permission', `--allow-fs-read=${folder}`, '--frozen-intrinsics']
  const args = [...limits, '--input-type=module', '--eval', READER]
  const urls = paths.map((path) => pathToFileURL(path).href)
  const printed = await new Promise<{stdout: string; isLate: boolean}>((done) => {
    const options = {timeout: READ_MS, killSignal: 'SIGKILL' as const, maxBuffer: 1024 * 1024, env: {}}
    execFile(process.execPath, [...args, ...urls], options, (error, stdout) =>
      done({stdout, isLate: error?.killed ?? false}),
    )
  })
  const lines = printed.stdout
    .split('\n')
    .flatMap((line) => moduleSchema.safeParse(parseJson(line)).data ?? [])
  const problem = printed.isLate
    ? `it could not be read within ${READ_MS / 1000} seconds`
    : 'it ended the process that read it'
  const modules = files.map((_, index) => lines[index] ?? {problem})
  if (lines.length >= files.length) modulesByFolder.set(folder, {state, modules})
  return modules
}
