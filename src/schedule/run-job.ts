import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import type {BatchResult} from '../export/batch.ts'
import {backUpDated} from '../pipeline/backup.ts'
import {buildRelease} from '../pipeline/build.ts'
import {compareBuildsWhereDue} from '../pipeline/compare-builds.ts'
import {deliverBatches} from '../pipeline/deliver.ts'
import {exportRelease} from '../pipeline/export.ts'
import {publishRelease} from '../pipeline/publish.ts'
import {ingestRates} from '../pipeline/rates.ts'
import {syncDeals} from '../pipeline.ts'
import type {World} from '../types.ts'
import {closePreviousMonth, previousMonthOf} from './close-step.ts'
import type {ExportStep, Job, Step} from './job.ts'

/** What a job came to; `run --json` prints it. */
export interface JobResult {
  job: string
  /** `not_due`: a step found that this is not the day, and ended the job. */
  outcome: 'done' | 'not_due'
  steps: StepResult[]
}

/** What is run: a job, and the instant it was due at (ms since the epoch) unless somebody asked for it. */
interface JobRequest {
  job: Job
  slot?: number | undefined
}

/** Runs the steps of a job in order; the first that fails ends it. */
export async function runJob(config: Config, request: JobRequest, world: World): Promise<JobResult> {
  const {job} = request
  const steps: StepResult[] = []
  for (const step of job.steps) {
    if (step.do === 'notify') continue
    world.log.info({job: job.name, step: step.do}, 'step begins')
    world.onProgress({step: step.do})
    const batches = steps.flatMap((done) => (done.do === 'export' ? done.result : []))
    const done = await runStep(config, {step, batches}, request, world)
    steps.push(done)
    if (done.do === 'sync' || done.do === 'build') await compareBuildsWhereDue(config, world)
    if (done.do === 'close_period' && done.result.outcome === 'not_due') {
      return {job: job.name, outcome: 'not_due', steps}
    }
  }
  return {job: job.name, outcome: 'done', steps}
}

/** What one step came to. */
export type StepResult = Awaited<ReturnType<typeof runStep>>

async function runStep(
  config: Config,
  {step, batches}: {step: Exclude<Step, {do: 'notify'}>; batches: readonly BatchResult[]},
  request: JobRequest,
  world: World,
) {
  const {job, slot = world.clock.now()} = request
  switch (step.do) {
    case 'sync':
      return {do: step.do, result: await syncDeals(config, {}, world)}
    case 'build':
      return {do: step.do, result: await buildRelease(config, {}, world)}
    case 'ingest_rates':
      return {do: step.do, result: await ingestRates(config, world)}
    case 'close_period':
      return {do: step.do, result: await closePreviousMonth(config, {job, step, instant: slot}, world)}
    case 'backup':
      return {do: step.do, result: await backUpDated(config, step, world)}
    case 'publish':
      return {do: step.do, result: await publishRelease(config, {to: step.to}, world)}
    case 'deliver':
      return {do: step.do, result: await deliverBatches(config, {batches, targets: step.targets}, world)}
    case 'export': {
      const result = await runExport(config, step, request, world)
      if (!step.deliver) return {do: step.do, result}
      const deliveries = await deliverBatches(config, {batches: result, targets: step.deliver}, world)
      return {do: step.do, result, deliveries}
    }
  }
}

function runExport(
  config: Config,
  {profiles, tables, period}: ExportStep,
  {job, slot}: JobRequest,
  world: World,
): Promise<BatchResult[]> {
  const moment =
    period === 'previous'
      ? {period: previousMonthOf(slot ?? world.clock.now(), job)}
      : {asOf: findAsOf(config, slot, world)}
  return exportRelease(config, {profiles, tables, ...moment}, world)
}

/**
 * The business date of the slot, when that is a day gone by: a run that catches up writes the files of its day. What a
 * walk saw counts for the day it was walked, whatever the slot.
 */
function findAsOf(config: Config, slot: number | undefined, {clock}: World): string | undefined {
  if (slot === undefined) return undefined
  const day = businessDateOf(slot, config)
  return day < businessDateOf(clock.now(), config) ? day : undefined
}
