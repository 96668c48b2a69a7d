import {existsSync, readdirSync} from 'node:fs'
import {join, resolve} from 'node:path'
import {pathToFileURL} from 'node:url'
import {z} from 'zod'
import {isTimeZone} from '../clock.ts'
import type {Config} from '../config.ts'
import {ConfigError, messageOf} from '../errors.ts'

/** One step of a job. */
export type Step = {do: 'sync'} | {do: 'build'} | ExportStep | {do: 'publish'; to: 'postgres'}

/** Writes batches of the current release, then sends them to targets. */
export interface ExportStep {
  do: 'export'
  profiles: string[]
  /** Names of targets in LOANTAPE_TARGETS_FILE. */
  deliver?: string[] | undefined
}

/** A scheduled job: plain data, one per file of `jobs/`. */
export interface Job {
  name: string
  /** Cron, five fields, or six with seconds first. */
  schedule: string
  /** IANA time zone of the schedule. */
  timeZone: string
  /** What happens to slots missed while the scheduler was down. */
  catchUp: 'latest' | 'each' | 'none'
  /** How late a slot may still start. */
  graceMinutes: number
  steps: Step[]
}

const stepSchema = z.discriminatedUnion('do', [
  z.strictObject({do: z.literal('sync')}),
  z.strictObject({do: z.literal('build')}),
  z.strictObject({
    do: z.literal('export'),
    profiles: z.array(z.string()).min(1),
    deliver: z.array(z.string()).optional(),
  }),
  z.strictObject({do: z.literal('publish'), to: z.literal('postgres')}),
])

const jobSchema: z.ZodType<Job> = z.strictObject({
  name: z.string().regex(/^[a-z][a-z0-9-]*$/, 'expected lower-case words joined by hyphens'),
  schedule: z.string().regex(/^\S+( \S+){4,5}$/, 'expected five cron fields, or six with seconds'),
  timeZone: z.string().refine(isTimeZone, 'expected an IANA time zone'),
  catchUp: z.enum(['latest', 'each', 'none']),
  graceMinutes: z.number().nonnegative(),
  steps: z.array(stepSchema).min(1),
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
    content = moduleSchema.parse(await import(pathToFileURL(file).href)).default
  } catch (error) {
    throw jobError(file, messageOf(error), error)
  }
  const parsed = jobSchema.safeParse(content)
  if (parsed.success) return parsed.data
  const problems = parsed.error.issues.map((issue) => `${issue.path.join('.') || '(job)'}: ${issue.message}`)
  throw jobError(file, problems.join('; '))
}

function jobError(file: string, problem: string, cause?: unknown): ConfigError {
  return new ConfigError({
    code: 'JOB_INVALID',
    problem: `Job '${file}': ${problem}.`,
    kept: 'Nothing was started.',
    next: 'Mend the file; jobs/nightly.ts shows the form.',
    cause,
  })
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
  throw new ConfigError({
    code: 'JOB_UNKNOWN',
    problem: `Job '${name}' on the command line: expected one of ${jobs.map((known) => known.name).join(', ')}.`,
    kept: 'Nothing was started.',
  })
}
