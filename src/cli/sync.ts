import {Option} from 'commander'
import {newError} from '../errors.ts'
import {ACCEPTABLE, type Acceptance} from '../load/guard.ts'
import {quantity} from '../money.ts'
import type {ChildResult} from '../pipeline/children.ts'
import {type SyncResult, syncDeals} from '../pipeline.ts'
import {renderWarnings} from './build.ts'
import type {Call, CliCommand} from './command.ts'
import {joinLines} from './table.ts'

interface SyncOptions {
  accept?: Acceptance[]
  acceptShrink?: boolean
  dryRun?: boolean
  detail: boolean
}

/** `loantape sync`. */
export default function addSync(command: CliCommand): void {
  command
    .description('walk the source, load what changed, build, check and release the portfolio tables')
    .example('sync --dry-run')
    .option(
      '--accept <what>',
      `go on although a guard refused: ${ACCEPTABLE.join(', ')} (comma-separated)`,
      (text: string, before: readonly Acceptance[] = []) => [...before, ...parseAcceptances(text)],
    )
    .addOption(new Option('--accept-shrink', 'the same as --accept shrink').hideHelp())
    .option('--dry-run', 'walk and compare, but store and release nothing')
    .option('--no-detail', 'do not fetch single deals')
    .does(({config, options, world}: Call<SyncOptions>) => {
      const {accept = [], acceptShrink, dryRun = false, detail} = options
      return syncDeals(
        detail ? config : {...config, detail: 'off'},
        {accept: acceptShrink ? [...accept, 'shrink'] : accept, isDryRun: dryRun},
        world,
      )
    }, renderSync)
}

function parseAcceptances(text: string): Acceptance[] {
  return text
    .split(',')
    .map((word) => word.trim())
    .filter((word) => word !== '')
    .map((word) => {
      const known = ACCEPTABLE.find((acceptance) => acceptance === word)
      if (known) return known
      throw newError(
        'USAGE',
        `Value '${word}' in --accept: expected one or more of ${ACCEPTABLE.join(', ')}.`,
      )
    })
}

/** The result of a sync, for people. */
export function renderSync(result: SyncResult): string {
  const {walk, changes, outcome} = result
  const moved = Object.entries(changes)
    .filter(([, count]) => count > 0)
    .map(([kind, count]) => `${count} ${kind}`)
  const resumed = walk.resumed > 0 ? `, resumed ${walk.resumed}×` : ''
  const quarantined = walk.quarantined > 0 ? `, ${walk.quarantined} quarantined` : ''
  const released = {
    dry_run: 'Dry run: nothing was stored.',
    unchanged: `Nothing new: release ${result.release_id} stays current.`,
    released: `Released ${result.release_id}: ${quantity(result.checks.passed, 'check')} passed, ${result.checks.warned} warned.`,
  }[outcome]
  return joinLines([
    `Walk of ${walk.business_date} complete: ${quantity(walk.pages, 'page')}, ${quantity(walk.distinct, 'deal')}${quarantined}${resumed}.`,
    `Changes: ${moved.join(', ') || 'none'}.`,
    ...result.streams.map(renderStream),
    released,
    ...renderWarnings(result.checks),
  ])
}

function renderStream({stream, outcome, listed, failed, ended, changes, reason}: ChildResult): string {
  const {created, updated, missing, vanished} = changes
  const what =
    outcome === 'refused'
      ? `refused (${reason}); deals are released without them`
      : `${quantity(listed, 'list')} read, ${failed} failed; ${created} created, ${updated} updated, ${missing} missing, ${vanished} vanished`
  return `${stream}: ${what}${ended === 'done' ? '' : ` (${ended})`}.`
}
