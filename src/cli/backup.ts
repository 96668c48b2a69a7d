import {quantity} from '../money.ts'
import {type BackupResult, backUp} from '../pipeline/backup.ts'
import type {CliCommand} from './command.ts'
import {joinLines} from './table.ts'

/** `loantape backup`. */
export default function addBackup(command: CliCommand): void {
  command
    .description(
      'copy everything that cannot be built again, each file compared with what it was copied from',
    )
    .example('backup /mnt/backup/loantape')
    .argument('<dir>', 'a folder that is not there yet')
    .does(({config, world}, dir: string) => backUp(config, dir, world), renderBackup)
}

/** What a backup came to, in words. */
export function renderBackup({dir, files, bytes, tape_key, authenticated}: BackupResult): string {
  return joinLines([
    `Backed up ${quantity(files, 'file')}, ${(bytes / 1e6).toFixed(1)} MB: ${dir}`,
    tape_key && `The key of tapes, ${tape_key}, is not among them: keep a copy of it elsewhere.`,
    !authenticated &&
      'Its manifest carries no MAC: the key of tapes is not at hand, so that nobody will be able to tell whether it was changed.',
  ])
}
