import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import type {BatchResult} from '../export/batch.ts'
import type {BuildResult} from '../pipeline/build.ts'
import {buildPortfolio, exportRelease, type SyncResult, syncDeals} from '../pipeline.ts'
import type {World} from '../types.ts'
import type {Job, Step} from './job.ts'

/** What one step came to. */
export type StepResult =
  | {do: 'sync'; result: SyncResult}
  | {do: 'build'; result: BuildResult}
  | {do: 'export'; result: BatchResult[]}

/** What a job came to; `run --json` prints it. */
export interface JobResult {
  job: string
  outcome: 'done'
  steps: StepResult[]
}

/** What is run: a job, and the instant it was due at (ms since the epoch) unless somebody asked for it. */
export interface JobRequest {
  job: Job
  slot?: number | undefined
}

/** Runs the steps of a job in order; the first that fails ends it. */
export async function runJob(config: Config, request: JobRequest, world: World): Promise<JobResult> {
  const {job} = request
  const steps: StepResult[] = []
  for (const step of job.steps) {
    world.log.info({job: job.name, step: step.do}, 'step begins')
    steps.push(await runStep(config, step, request, world))
  }
  return {job: job.name, outcome: 'done', steps}
}

async function runStep(config: Config, step: Step, request: JobRequest, world: World): Promise<StepResult> {
  switch (step.do) {
    case 'sync':
      return {do: 'sync', result: await syncDeals(config, {}, world)}
    case 'build':
      return {do: 'build', result: await buildPortfolio(config, {}, world)}
    case 'export': {
      const {profiles, tables} = step
      const asOf = findAsOf(config, request, world)
      const result = await exportRelease(
        config,
        {profiles, ...(tables && {tables}), ...(asOf !== undefined && {asOf})},
        world,
      )
      return {do: 'export', result}
    }
  }
}

/**
 * The business date of the slot, when that is a day gone by: a run that catches up writes the files of its day. What a
 * walk saw counts for the day it was walked, whatever the slot.
 */
function findAsOf(config: Config, {slot}: JobRequest, {clock}: World): string | undefined {
  if (slot === undefined) return undefined
  const day = businessDateOf(slot, config)
  return day < businessDateOf(clock.now(), config) ? day : undefined
}
