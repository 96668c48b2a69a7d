import {businessDateOf} from '../clock.ts'
import type {Config} from '../config.ts'
import type {DeliveryResult} from '../delivery/deliver.ts'
import type {BatchResult} from '../export/batch.ts'
import {type BackupResult, backUpDated} from '../pipeline/backup.ts'
import {type BuildResult, buildRelease} from '../pipeline/build.ts'
import {deliverBatches} from '../pipeline/deliver.ts'
import {exportRelease} from '../pipeline/export.ts'
import {publishRelease} from '../pipeline/publish.ts'
import {ingestRates, type RatesResult} from '../pipeline/rates.ts'
import {type SyncResult, syncDeals} from '../pipeline.ts'
import type {PublishResult} from '../postgres/publish.ts'
import type {World} from '../types.ts'
import {type CloseResult, closePreviousMonth, previousMonthOf} from './close-step.ts'
import type {ExportStep, Job, Step} from './job.ts'

/** What one step came to. */
export type StepResult =
  | {do: 'sync'; result: SyncResult}
  | {do: 'build'; result: BuildResult}
  | {do: 'ingest_rates'; result: RatesResult}
  | {do: 'export'; result: BatchResult[]; deliveries?: DeliveryResult[]}
  | {do: 'publish'; result: PublishResult}
  | {do: 'deliver'; result: DeliveryResult[]}
  | {do: 'close_period'; result: CloseResult}
  | {do: 'backup'; result: BackupResult}

/** What a job came to; `run --json` prints it. */
export interface JobResult {
  job: string
  /** `not_due`: a step found that this is not the day, and ended the job. */
  outcome: 'done' | 'not_due'
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
    if (step.do === 'notify') continue
    world.log.info({job: job.name, step: step.do}, 'step begins')
    const done = await runStep(config, {step, before: steps}, request, world)
    steps.push(done)
    if (done.do === 'close_period' && done.result.outcome === 'not_due') {
      return {job: job.name, outcome: 'not_due', steps}
    }
  }
  return {job: job.name, outcome: 'done', steps}
}

async function runStep(
  config: Config,
  {step, before}: {step: Exclude<Step, {do: 'notify'}>; before: readonly StepResult[]},
  request: JobRequest,
  world: World,
): Promise<StepResult> {
  const {job, slot = world.clock.now()} = request
  switch (step.do) {
    case 'sync':
      return {do: 'sync', result: await syncDeals(config, {}, world)}
    case 'build':
      return {do: 'build', result: await buildRelease(config, {}, world)}
    case 'ingest_rates':
      return {do: 'ingest_rates', result: await ingestRates(config, world)}
    case 'close_period':
      return {
        do: 'close_period',
        result: await closePreviousMonth(config, {job, step, instant: slot}, world),
      }
    case 'backup':
      return {do: 'backup', result: await backUpDated(config, step, world)}
    case 'publish':
      return {do: 'publish', result: await publishRelease(config, {}, world)}
    case 'deliver': {
      const batches = before.flatMap((done) =>
        done.do === 'export' ? done.result.filter(({outcome}) => outcome !== 'empty') : [],
      )
      return {do: 'deliver', result: await deliverBatches(config, {batches, targets: step.targets}, world)}
    }
    case 'export': {
      const result = await runExport(config, step, request, world)
      if (!step.deliver) return {do: 'export', result}
      const deliveries = await deliverBatches(config, {batches: result, targets: step.deliver}, world)
      return {do: 'export', result, deliveries}
    }
  }
}

function runExport(
  config: Config,
  {profiles, tables, period}: ExportStep,
  {job, slot}: JobRequest,
  world: World,
): Promise<BatchResult[]> {
  const asked = {profiles, ...(tables && {tables})}
  if (period === 'previous') {
    return exportRelease(config, {...asked, period: previousMonthOf(slot ?? world.clock.now(), job)}, world)
  }
  const asOf = findAsOf(config, slot, world)
  return exportRelease(config, {...asked, ...(asOf !== undefined && {asOf})}, world)
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
