import type {Command} from 'commander'
import {requireJob} from '../schedule/job.ts'
import {runJob, type StepResult} from '../schedule/run-job.ts'
import type {Cli, CommonOptions} from './context.ts'
import {renderBatch, renderDelivery} from './export.ts'
import {renderPublished} from './publish.ts'
import {renderSync} from './sync.ts'

/** `loantape run`. */
export function addRun(program: Command, cli: Cli): void {
  program
    .command('run')
    .description('run one job of jobs/ now')
    .argument('<job>', 'such as nightly')
    .action(async (name: string, _options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const config = cli.readConfig(options)
      const job = await requireJob(config, name)
      const result = await runJob(config, job, cli.createWorld(config))
      cli.printResult(options, result, ({steps}) => steps.map(renderStep).join('\n'))
    })
}

function renderStep(step: StepResult): string {
  if (step.do === 'sync') return renderSync(step.result)
  if (step.do === 'build') return `Release ${step.result.release_id}: ${step.result.outcome}.`
  if (step.do === 'publish') return renderPublished(step.result)
  return [...step.result.map(renderBatch), ...(step.deliveries ?? []).map(renderDelivery)].join('\n')
}
