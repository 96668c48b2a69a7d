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
    .description(
      'bring back a backup, or the last good copy of a damaged warehouse; what it replaces is set aside',
    )
    .argument('[backup]', 'what `loantape backup` has written, for an empty data folder')
    .option('--force', 'also when the warehouse opens')
    .action(async (backup: string | undefined, _options, command: Command) => {
      const options = command.optsWithGlobals<RestoreOptions>()
      const config = cli.readConfig(options)
      const result = await restoreWarehouse(
        config,
        {isForced: options.force ?? false, backup},
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
