import type {Command} from 'commander'
import {restoreWarehouse} from '../pipeline/restore.ts'
import type {Cli, CommonOptions} from './context.ts'

interface RestoreOptions extends CommonOptions {
  force?: boolean
}

/** `loantape restore`. */
export function addRestore(program: Command, cli: Cli): void {
  program
    .command('restore')
    .description('bring back the last good copy of a damaged warehouse; what it replaces is set aside')
    .option('--force', 'also when the warehouse opens')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<RestoreOptions>()
      const config = cli.readConfig(options)
      const result = await restoreWarehouse(
        config,
        {isForced: options.force ?? false},
        cli.createWorld(config),
      )
      cli.printResult(options, result, ({from, set_aside}) =>
        [
          `Brought back ${from}.`,
          ...set_aside.map((file) => `Set aside: ${file}`),
          'The next sync walks what came since.',
        ].join('\n'),
      )
    })
}
