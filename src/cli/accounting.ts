import {initAccounting} from '../pipeline/account-mapping.ts'
import type {CliCommand} from './command.ts'

/** `loantape accounting`. */
export default function addAccounting(command: CliCommand): void {
  command
    .command('init')
    .example('accounting init')
    .description(
      'write an accounting.json to edit, with the programs of the current release; one that is there is kept',
    )
    .examines()
    .does(
      ({config}) => initAccounting(config),
      ({file, programs}) => {
        const named =
          programs.length === 0 ? "'*' for every program" : `${programs.join(', ')} and '*' for all others`
        return `Wrote ${file}: ${named}. What stands in angle brackets is a placeholder: nothing is exported or closed until it is a code or name of your chart of accounts.`
      },
    )
}
