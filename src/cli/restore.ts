import {restoreBackup} from '../pipeline/backup.ts'
import type {CliCommand} from './command.ts'

/** `loantape restore`. */
export default function addRestore(command: CliCommand): void {
  command
    .example('restore /mnt/backup/loantape')
    .argument('<backup>', 'what `loantape backup` has written')
    .does(
      ({config}, backup: string) => restoreBackup(config, backup),
      ({from, files}) => `Brought back ${files} files of ${from}.\nThe next sync walks what came since.`,
    )
}
