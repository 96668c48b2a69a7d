import {maskConfig} from '../config.ts'
import type {CliCommand} from './command.ts'
import {renderTable} from './table.ts'

/** `loantape config`. */
export default function addConfig(command: CliCommand): void {
  command
    .example('config')
    .examines()
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
