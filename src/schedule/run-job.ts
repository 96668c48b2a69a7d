import type {Config} from '../config.ts'
import type {DeliveryResult} from '../delivery/deliver.ts'
import type {BatchResult} from '../export/batch.ts'
import type {BuildResult} from '../pipeline/build.ts'
import {deliverBatches} from '../pipeline/deliver.ts'
import {publishRelease} from '../pipeline/publish.ts'
import {buildPortfolio, exportRelease, type SyncResult, syncDeals} from '../pipeline.ts'
import type {PublishResult} from '../postgres/publish.ts'
import type {World} from '../types.ts'
import type {Job, Step} from './job.ts'

/** What one step came to. */
export type StepResult =
  | {do: 'sync'; result: SyncResult}
  | {do: 'build'; result: BuildResult}
  | {do: 'export'; result: BatchResult[]; deliveries?: DeliveryResult[]}
  | {do: 'publish'; result: PublishResult}

/** What a job came to; `run --json` prints it. */
export interface JobResult {
  job: string
  outcome: 'done'
  steps: StepResult[]
}

/** Runs the steps of a job in order; the first that fails ends it. */
export async function runJob(config: Config, job: Job, world: World): Promise<JobResult> {
  const steps: StepResult[] = []
  for (const step of job.steps) {
    world.log.info({job: job.name, step: step.do}, 'step begins')
    steps.push(await runStep(config, step, world))
  }
  return {job: job.name, outcome: 'done', steps}
}

async function runStep(config: Config, step: Step, world: World): Promise<StepResult> {
  if (step.do === 'sync') return {do: 'sync', result: await syncDeals(config, {}, world)}
  if (step.do === 'build') return {do: 'build', result: await buildPortfolio(config, {}, world)}
  if (step.do === 'publish') return {do: 'publish', result: await publishRelease(config, {}, world)}
  const result = await exportRelease(config, {profiles: step.profiles}, world)
  if (!step.deliver) return {do: 'export', result}
  const deliveries = await deliverBatches(config, {batches: result, targets: step.deliver}, world)
  return {do: 'export', result, deliveries}
}
