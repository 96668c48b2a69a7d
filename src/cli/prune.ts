import type {Command} from 'commander'
import {type PruneResult, pruneData} from '../pipeline/prune.ts'
import type {Cli, CommonOptions} from './context.ts'

interface PruneOptions extends CommonOptions {
  dryRun?: boolean
}

/** `loantape prune`. */
export function addPrune(program: Command, cli: Cli): void {
  program
    .command('prune')
    .description(
      'remove releases, batches, tapes and what old records in quarantine held, beyond what the settings keep',
    )
    .option('--dry-run', 'only list what would be removed')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<PruneOptions>()
      const config = cli.readConfig(options)
      const result = await pruneData(config, {isDryRun: options.dryRun ?? false}, cli.createWorld(config))
      cli.printResult(options, result, renderPruned)
    })
}

function renderPruned({outcome, releases, batches, quarantined, tapes}: PruneResult): string {
  if (releases.length + batches.length + quarantined + tapes.length === 0) return 'Nothing to remove.'
  return [
    outcome === 'dry_run' ? 'Would be removed:' : 'Removed:',
    ...releases.map((id) => `  release ${id}`),
    ...batches.map((batch) => `  batch ${batch}`),
    ...tapes.map((path) => `  tape ${path}`),
    ...(quarantined > 0 ? [`  what ${quarantined} records in quarantine held`] : []),
  ].join('\n')
}
