import {type Command, Option} from 'commander'
import {ConfigError} from '../errors.ts'
import type {Claim} from '../schedule/execute-run.ts'
import {requireJob} from '../schedule/job.ts'
import {performJob} from '../schedule/perform-job.ts'
import type {StepResult} from '../schedule/run-job.ts'
import type {Cli, CommonOptions} from './context.ts'
import {renderBatch, renderDelivery} from './export.ts'
import {renderPublished} from './publish.ts'
import {renderSync} from './sync.ts'

interface RunOptions extends CommonOptions {
  claim?: Claim
}

/** `loantape run`. */
export function addRun(program: Command, cli: Cli): void {
  program
    .command('run')
    .description('run one job of jobs/ now')
    .argument('<job>', 'such as nightly')
    .addOption(new Option('--claim <run.attempt>', 'given by the scheduler').argParser(parseClaim).hideHelp())
    .action(async (name: string, _options, command: Command) => {
      const options = command.optsWithGlobals<RunOptions>()
      const config = cli.readConfig(options)
      const job = await requireJob(config, name)
      const world = cli.createWorld(config)
      const result = await performJob(config, {job, claim: options.claim}, world)
      cli.printResult(options, result, ({steps}) => steps.map(renderStep).join('\n'))
    })
}

function parseClaim(text: string): Claim {
  const [, jobRunId, attempt] = /^(\d+)\.(\d+)$/.exec(text) ?? []
  if (jobRunId !== undefined) return {jobRunId: Number(jobRunId), attempt: Number(attempt)}
  throw new ConfigError({
    code: 'USAGE_CLAIM',
    problem: `Value '${text}' in --claim: expected what the scheduler gives.`,
    kept: 'Nothing was started.',
  })
}

function renderStep(step: StepResult): string {
  if (step.do === 'sync') return renderSync(step.result)
  if (step.do === 'close_period') {
    const {period, outcome} = step.result
    return outcome === 'not_due' ? `Period ${period}: not due today.` : `Period ${period}: ${outcome}.`
  }
  if (step.do === 'build') return `Release ${step.result.release_id}: ${step.result.outcome}.`
  if (step.do === 'publish') return renderPublished(step.result)
  return [...step.result.map(renderBatch), ...(step.deliveries ?? []).map(renderDelivery)].join('\n')
}
