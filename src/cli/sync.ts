import {Option} from 'commander'
import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {replayQuarantine, type SyncResult, syncDeals} from '../pipeline.ts'
import {type Claim, performEvents} from '../schedule/run-job.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {hasWarehouse, openHistory} from '../store/warehouse.ts'
import type {ChildResult} from '../sync/children.ts'
import {ACCEPTABLE, type Acceptance} from '../sync/guard.ts'
import {
  countUnreplayed,
  listWaiting,
  NOT_AT_HAND,
  type ReasonsRequest,
  readReasons,
  showQuarantined,
} from '../sync/quarantine.ts'
import {renderWarnings} from './build.ts'
import {type CliCommand, type Invocation, parsedOption} from './command.ts'
import {joinLines, renderTable} from './table.ts'

export const commands = {sync: addSync, events: addEvents, quarantine: addQuarantine}

interface SyncOptions {
  accept?: Acceptance[]
  acceptShrink?: boolean
  why?: string
  dryRun?: boolean
  detail: boolean
}

function addSync(command: CliCommand): void {
  command
    .description('walk the source, load what changed, build, check and release the portfolio tables')
    .example('sync --dry-run')
    .addOption(
      parsedOption(
        '--accept <what>',
        `continue although a guard refused: ${ACCEPTABLE.join(', ')} (comma-separated)`,
        {parse: parseAcceptances, expected: `one or more of ${ACCEPTABLE.join(', ')}`},
      ),
    )
    .option('--why <text>', 'why it is accepted; kept with the walk, your name beside it')
    .addOption(new Option('--accept-shrink', 'the same as --accept shrink').hideHelp())
    .option('--dry-run', 'walk and compare, but store and release nothing')
    .option('--no-detail', 'do not fetch single deals')
    .does(({config, options, world}: Invocation<SyncOptions>) => {
      const {acceptShrink, why, dryRun: isDryRun = false, detail} = options
      const accept = [...(options.accept ?? []), ...(acceptShrink ? (['shrink'] as const) : [])]
      if (why !== undefined && accept.length === 0)
        throw newError('USAGE', `Option --why '${why}': it says why something is accepted; add --accept.`)
      return syncDeals(detail ? config : {...config, detail: 'off'}, {accept, why, isDryRun}, world)
    }, renderSync)
}

function parseAcceptances(text: string, before: Acceptance[] = []): Acceptance[] | undefined {
  const words = text.split(',').map((word) => word.trim())
  const accepted = ACCEPTABLE.filter((acceptance) => words.includes(acceptance))
  const isKnown = words.every((word) => word === '' || accepted.some((acceptance) => acceptance === word))
  return isKnown ? [...before, ...accepted] : undefined
}

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

function addEvents(command: CliCommand): void {
  command
    .command('apply')
    .example('events apply')
    .description('read the deals they name again, and store what is new; `serve` does this by itself')
    .claimOption()
    .does(
      ({config, options: {claim}, world}: Invocation<{claim?: Claim}>) => performEvents(config, claim, world),
      ({outcome, events, deals, appended}) => {
        if (outcome === 'unchanged') return 'No event is waiting.'
        const words = outcome === 'walked' ? 'a walk was made' : `${quantity(appended, 'version')} appended`
        return `${quantity(events, 'event')} about ${quantity(deals, 'deal')}: ${words}.`
      },
    )
}

function addQuarantine(quarantine: CliCommand): void {
  quarantine
    .command('list')
    .example('quarantine list')
    .description('the waiting records, oldest first')
    .does(({config}) => readWaiting(config), renderWaiting)
  quarantine
    .command('reasons')
    .example('quarantine reasons --path loan_amount')
    .description('why records wait, and which, each record once')
    .option('--path <field>', 'only records whose field could not be read')
    .option('--reason <text>', 'only records with this reason')
    .countOption('--page <n>', 'which page of records, the latest first', 1_000_000, 1)
    .does(({config, options}: Invocation<ReasonsRequest>) => readReasons(config, options), renderReasons)
  quarantine
    .command('show')
    .example('quarantine show q_8d2f6a01b3c4')
    .description('one record, whole')
    .argument('<id>', 'as `quarantine list` names it: q_…')
    .does(
      ({config}, id: string) => showQuarantined(config, id),
      ({record, ...entry}) =>
        Object.entries({...entry, record: record ?? NOT_AT_HAND})
          .map(([name, value]) => `${name}: ${value ?? ''}`)
          .join('\n'),
    )
  quarantine
    .command('replay')
    .example('quarantine replay')
    .description('read them again after a fix, and store those that can be read now')
    .does(
      ({config, world}) => replayQuarantine(config, world),
      ({replayed, waiting, pruned, appended, release_id}) =>
        joinLines([
          `${quantity(replayed, 'record')} can be read now, ${quantity(appended, 'version')} appended; ${waiting} still ${waiting === 1 ? 'waits' : 'wait'}.`,
          describePruned(pruned),
          release_id && `Release ${release_id}.`,
        ]),
    )
}

const describePruned = (pruned: number) =>
  pruned > 0 &&
  `${pruned} more ${pruned === 1 ? 'was' : 'were'} never read, and what they held has been pruned.`

/** The waiting records without their content, and the number of pruned ones. */
async function readWaiting({dataDir}: Config) {
  const folder = dataFolderAt(dataDir)
  if (!hasWarehouse(folder)) return {records: [], pruned: 0}
  await using db = await openHistory(folder)
  const entries = await listWaiting(db, 'history')
  const records = entries.map(({place: _, ...entry}) => entry)
  return {records, pruned: (await countUnreplayed(db, 'history')).pruned}
}

function renderReasons({reasons, records, pruned}: Awaited<ReturnType<typeof readReasons>>): string {
  if (reasons.length === 0) return joinLines(['No record waits in quarantine.', describePruned(pruned)])
  return joinLines([
    renderTable(
      reasons.map(({path: field, reason, records, times, since}) => ({field, reason, records, times, since})),
    ),
    '',
    renderTable(
      records.map(({quarantine_id: id, record_id, path: field, times, since, walk_id: last_walk}) => {
        return {id, record: record_id ?? '(unreadable)', field, times, since, last_walk}
      }),
    ),
    describePruned(pruned),
  ])
}

function renderWaiting({records, pruned}: Awaited<ReturnType<typeof readWaiting>>): string {
  const rows = records.map(({quarantine_id: id, record_id, observed_at: observed, source, path, reason}) => {
    return {id, deal: record_id ?? '(unreadable)', observed, source, path, reason}
  })
  const listed = rows.length === 0 ? 'No record waits in quarantine.' : renderTable(rows)
  return joinLines([listed, describePruned(pruned)])
}
