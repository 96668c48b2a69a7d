import type {Command} from 'commander'
import {type BackupResult, backUp} from '../pipeline/backup.ts'
import type {Cli, CommonOptions} from './context.ts'

/** `loantape backup`. */
export function addBackup(program: Command, cli: Cli): void {
  program
    .command('backup')
    .description(
      'copy everything that cannot be built again, each file compared with what it was copied from',
    )
    .argument('<dir>', 'a folder that is not there yet')
    .action(async (dir: string, _options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const config = cli.readConfig(options)
      cli.printResult(options, await backUp(config, dir, cli.createWorld(config)), renderBackup)
    })
}

export function renderBackup({dir, files, bytes, tape_key}: BackupResult): string {
  return [
    `Backed up ${files} files, ${(bytes / 1e6).toFixed(1)} MB: ${dir}`,
    ...(tape_key === null
      ? []
      : [`The key of tapes, ${tape_key}, is not among them: keep a copy of it elsewhere.`]),
  ].join('\n')
}
