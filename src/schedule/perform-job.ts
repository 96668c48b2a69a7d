import {pingDeadMan, tellPeople} from '../alarm/tell.ts'
import type {Config} from '../config.ts'
import {openLedger} from '../ledger/ledger.ts'
import type {World} from '../types.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {type Claim, executeRun} from './execute-run.ts'
import type {Job} from './job.ts'
import {type JobResult, runJob} from './run-job.ts'

/** Runs a job, records how it ended, and tells whoever waits for word of it. */
export async function performJob(
  config: Config,
  request: {job: Job; claim?: Claim | undefined},
  world: World,
): Promise<JobResult> {
  const {job} = request
  try {
    const result = await executeRun(config, request, world, (slot) => runJob(config, {job, slot}, world))
    if (job.steps.some((step) => step.do === 'sync')) await pingDeadMan(config, world)
    return result
  } finally {
    if (job.steps.some((step) => step.do === 'notify')) {
      using ledger = openLedger(dataFolderAt(config.dataDir).ledger)
      await tellPeople(ledger, config, world)
    }
  }
}
