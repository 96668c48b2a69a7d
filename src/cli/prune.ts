import {quantity} from '../money.ts'
import {type PruneResult, pruneData} from '../pipeline/prune.ts'
import type {Call, CliCommand} from './command.ts'
import {joinLines} from './table.ts'

/** `loantape prune`. */
export default function addPrune(command: CliCommand): void {
  command
    .description(
      'remove releases, batches, tapes and what old records in quarantine held, beyond what the settings keep',
    )
    .example('prune --dry-run')
    .option('--dry-run', 'only list what would be removed')
    .does(
      ({config, options: {dryRun = false}, world}: Call<{dryRun?: boolean}>) =>
        pruneData(config, {isDryRun: dryRun}, world),
      renderPruned,
    )
}

function renderPruned({outcome, releases, batches, quarantined, tapes}: PruneResult): string {
  if (releases.length + batches.length + quarantined + tapes.length === 0) return 'Nothing to remove.'
  return joinLines([
    outcome === 'dry_run' ? 'Would be removed:' : 'Removed:',
    ...releases.map((id) => `  release ${id}`),
    ...batches.map((batch) => `  batch ${batch}`),
    ...tapes.map((path) => `  tape ${path}`),
    quarantined > 0 && `  what ${quantity(quarantined, 'record')} in quarantine held`,
  ])
}
