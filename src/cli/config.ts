import {maskConfig} from '../config.ts'
import type {CliCommand} from './command.ts'
import {renderTable} from './table.ts'

/** `loantape config`. */
export function addConfig(program: CliCommand): void {
  program
    .command('config')
    .example('config')
    .description('the effective settings, secrets masked')
    .does(
      ({config}) => maskConfig(config),
      (settings) =>
        renderTable(
          ['setting', 'value'],
          Object.entries(settings).map(([name, value]) => [
            name,
            value === null ? '(not set)' : String(value),
          ]),
        ),
    )
}
