import type {Command} from 'commander'
import {maskConfig} from '../config.ts'
import type {Cli, CommonOptions} from './context.ts'
import {renderTable} from './table.ts'

/** `loantape config`. */
export function addConfig(program: Command, cli: Cli): void {
  program
    .command('config')
    .description('the effective settings, secrets masked')
    .action((_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      cli.printResult(options, maskConfig(cli.readConfig(options)), (settings) =>
        renderTable(
          [{title: 'setting'}, {title: 'value'}],
          Object.entries(settings).map(([name, value]) => [
            name,
            value === null ? '(not set)' : String(value),
          ]),
        ),
      )
    })
}
