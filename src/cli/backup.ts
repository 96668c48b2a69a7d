import {type BackupResult, backUp, restoreBackup} from '../pipeline/backup.ts'
import type {CliCommand} from './command.ts'
import {joinLines} from './table.ts'

/** `loantape backup`. */
export function addBackup(command: CliCommand): void {
  command
    .example('backup /mnt/backup/loantape')
    .argument('<dir>', 'a folder that is not there yet')
    .does(({config, world}, dir: string) => backUp(config, dir, world), renderBackup)
}

/** `loantape restore`. */
export function addRestore(command: CliCommand): void {
  command
    .example('restore /mnt/backup/loantape')
    .argument('<backup>', 'what `loantape backup` has written')
    .does(
      ({config}, backup: string) => restoreBackup(config, backup),
      ({from, files}) => `Brought back ${files} files of ${from}.\nThe next sync walks what came since.`,
    )
}

/** What a backup came to, in words. */
export function renderBackup({dir, files, bytes, tape_key}: BackupResult): string {
  return joinLines([
    `Backed up ${files} files, ${(bytes / 1e6).toFixed(1)} MB: ${dir}`,
    tape_key && `The key of tapes, ${tape_key}, is not among them: keep a copy of it elsewhere.`,
  ])
}
