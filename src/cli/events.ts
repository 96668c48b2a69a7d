import {quantity} from '../money.ts'
import {applyEvents} from '../pipeline.ts'
import {webhookJob} from '../schedule/job.ts'
import {type Claim, executeRun} from '../schedule/run-job.ts'
import type {Call, CliCommand} from './command.ts'
import {claimOption} from './options.ts'

/** `loantape events`. */
export default function addEvents(command: CliCommand): void {
  command
    .command('apply')
    .example('events apply')
    .description('look again at the deals they name, and store what is new; serve does it by itself')
    .addOption(claimOption())
    .does(
      ({config, options: {claim}, world}: Call<{claim?: Claim}>) =>
        executeRun(config, {job: webhookJob, claim}, world, () => applyEvents(config, world)),
      ({outcome, events, deals, appended}) => {
        if (outcome === 'unchanged') return 'No event waits.'
        const words = outcome === 'walked' ? 'a walk was made' : `${quantity(appended, 'version')} appended`
        return `${quantity(events, 'event')} about ${quantity(deals, 'deal')}: ${words}.`
      },
    )
}
