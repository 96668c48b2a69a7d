import {restoreBackup} from '../pipeline/backup.ts'
import type {CliCommand} from './command.ts'

/** `loantape restore`. */
export function addRestore(program: CliCommand): void {
  program
    .command('restore')
    .description('bring a backup back into an empty data folder')
    .argument('<backup>', 'what `loantape backup` has written')
    .does(
      ({config}, backup: string) => restoreBackup(config, backup),
      ({from, files}) => `Brought back ${files} files of ${from}.\nThe next sync walks what came since.`,
    )
}
