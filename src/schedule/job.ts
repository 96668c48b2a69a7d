import {existsSync, readdirSync, statSync} from 'node:fs'
import {join, resolve} from 'node:path'
import {pathToFileURL} from 'node:url'
import {z} from 'zod'
import {PROFILE_NAMES} from '../accounting/journal-profiles.ts'
import {isTimeZone} from '../clock.ts'
import type {Config} from '../config.ts'
import {type LoantapeError, messageOf, newError} from '../errors.ts'
import {describeIssues} from '../json.ts'
import {expectOneOf} from '../nearest.ts'
import {PUBLISH_TARGETS} from '../release-target.ts'
import {findCronProblems} from './cron.ts'

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
    for (const file of files.sort()) {
      const job = await readJob(join(folder, file))
      jobs.set(job.name, job)
    }
  }
  return [...jobs.values()]
}

const moduleSchema = z.object({default: z.unknown()})

async function readJob(file: string): Promise<Job> {
  let content: unknown
  try {
    // As it is now: Node would hand out what it read of a file of this name before.
    const {href} = pathToFileURL(file)
    content = moduleSchema.parse(
      await withinTime(import(`${href}?t=${Math.trunc(statSync(file).mtimeMs)}`)),
    ).default
  } catch (error) {
    throw jobError(file, messageOf(error), error)
  }
  const parsed = jobSchema.safeParse(content)
  if (parsed.success) return parsed.data
  throw jobError(file, describeIssues(parsed.error, '(job)').join('; '))
}

const READ_MS = 5_000

/** A file that waits for something is no plain data, and would keep everybody waiting. */
async function withinTime<T>(reading: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const timeout = new Promise<never>((_resolve, reject) => {
    const late = new Error(`it could not be read within ${READ_MS / 1000} seconds`)
    timer = setTimeout(reject, READ_MS, late)
  })
  try {
    return await Promise.race([reading, timeout])
  } finally {
    clearTimeout(timer)
  }
}

function jobError(file: string, problem: string, cause?: unknown): LoantapeError {
  return newError('JOB_INVALID', `Job '${file}': ${problem}.`, {cause})
}

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
 * @throws ConfigError `JOB_UNKNOWN` naming those there are
 */
export async function requireJob(config: Config, name: string): Promise<Job> {
  const jobs = await readJobs(config)
  const job = jobs.find((known) => known.name === name)
  if (job) return job
  const names = jobs.map((known) => known.name)
  throw newError('JOB_UNKNOWN', `Job '${name}' on the command line: ${expectOneOf(name, names)}.`)
}
