import type {Command} from 'commander'
import {initAccounting} from '../pipeline/account-mapping.ts'
import type {Cli, CommonOptions} from './context.ts'

/** `loantape accounting`. */
export function addAccounting(program: Command, cli: Cli): void {
  program
    .command('accounting')
    .description('the accounts that journals are booked to')
    .command('init')
    .description(
      'write an accounting.json to edit, with the programs of the current release; one that is there is kept',
    )
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const result = await initAccounting(cli.readConfig(options))
      cli.printResult(options, result, ({file, programs}) => {
        const named =
          programs.length === 0 ? "'*' for every program" : `${programs.join(', ')} and '*' for all others`
        return `Wrote ${file}: ${named}. Set the codes and names of your chart of accounts before anything is exported.`
      })
    })
}
