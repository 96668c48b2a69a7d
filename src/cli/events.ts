import type {Command} from 'commander'
import {applyEvents} from '../pipeline.ts'
import {executeRun} from '../schedule/execute-run.ts'
import {webhookJob} from '../schedule/job.ts'
import {type ClaimOptions, claimOption} from './claim.ts'
import type {Cli} from './context.ts'

/** `loantape events`. */
export function addEvents(program: Command, cli: Cli): void {
  program
    .command('events')
    .description('what webhooks have brought')
    .command('apply')
    .description('look again at the deals they name, and store what is new; serve does it by itself')
    .addOption(claimOption())
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<ClaimOptions>()
      const config = cli.readConfig(options)
      const world = cli.createWorld(config)
      const started = {job: webhookJob, claim: options.claim}
      const result = await executeRun(config, started, world, () => applyEvents(config, world))
      cli.printResult(options, result, ({outcome, events, deals, appended}) => {
        if (outcome === 'unchanged') return 'No event waits.'
        const words = outcome === 'walked' ? 'a walk was made' : `${appended} versions appended`
        return `${events} events about ${deals} deals: ${words}.`
      })
    })
}
