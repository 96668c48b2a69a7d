import {quantity} from '../money.ts'
import {restoreBackup, sayAuthentic} from '../pipeline/backup.ts'
import type {Call, CliCommand} from './command.ts'
import {joinLines} from './table.ts'

/** `loantape restore`. */
export default function addRestore(command: CliCommand): void {
  command
    .example('restore /mnt/backup/loantape')
    .argument('<backup>', 'what `loantape backup` has written')
    .option('--trust', 'also one whose manifest has no MAC of the key of tapes at hand')
    .examines()
    .does(
      ({config, options}: Call<{trust?: boolean}>, backup: string) =>
        restoreBackup(config, backup, {isTrusted: options.trust ?? false}),
      (restored) =>
        joinLines([
          `Brought back ${quantity(restored.files, 'file')} of ${restored.from}.`,
          sayAuthentic(restored),
          'The next sync walks what came since.',
        ]),
    )
}
