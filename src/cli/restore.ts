import type {Command} from 'commander'
import {restoreBackup} from '../pipeline/backup.ts'
import type {Cli, CommonOptions} from './context.ts'

/** `loantape restore`. */
export function addRestore(program: Command, cli: Cli): void {
  program
    .command('restore')
    .description('bring a backup back into an empty data folder')
    .argument('<backup>', 'what `loantape backup` has written')
    .action(async (backup: string, _options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const result = await restoreBackup(cli.readConfig(options), backup)
      cli.printResult(options, result, ({from, files}) =>
        [`Brought back ${files} files of ${from}.`, 'The next sync walks what came since.'].join('\n'),
      )
    })
}
