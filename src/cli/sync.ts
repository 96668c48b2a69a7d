import type {Config} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {groupThousands, quantity} from '../core/money.ts'
import type {World} from '../core/types.ts'
import {applyEvents, type EventsResult, replayQuarantine, type SyncResult, syncDeals} from '../pipeline.ts'
import {dataFolderAt} from '../store/data-folder.ts'
import {hasWarehouse, openHistory} from '../store/warehouse.ts'
import type {ChildResult} from '../sync/children.ts'
import {ACCEPTABLE} from '../sync/guard.ts'
import {
  countUnreplayed,
  listWaiting,
  NOT_AT_HAND,
  type ReasonsRequest,
  readReasons,
  showQuarantined,
} from '../sync/quarantine.ts'
import {renderWarnings} from './build.ts'
import {does, type Invocation, parseWords} from './command.ts'
import {type Text, tableOf} from './table.ts'

export const commands = {
  sync: does(({config, options, world}: Invocation<SyncOptions>) => {
    const {why, dryRun: isDryRun = false, detail} = options
    const accept = options.accept === undefined ? [] : parseWords(options.accept, '--accept', ACCEPTABLE)
    if (options.acceptShrink) accept.push('shrink')
    if (why !== undefined && accept.length === 0)
      throw newError('USAGE', `Option --why '${why}': it says why something is accepted; add --accept.`)
    return syncDeals(detail ? config : {...config, detail: 'off'}, {accept, why, isDryRun}, world)
  }, renderSync),
  'events apply': does(({config, world}) => applyEvents(config, world), renderEvents),
  'quarantine list': does(({config, world}) => readWaiting(config, world), renderWaiting),
  'quarantine reasons': does(
    ({config, options, world}: Invocation<ReasonsRequest>) => readReasons(config, options, world),
    renderReasons,
  ),
  'quarantine show': does(
    ({config, world}, id: string) => showQuarantined(config, id, world),
    ({record, ...entry}) =>
      Object.entries({...entry, record: record ?? NOT_AT_HAND}).map(
        ([name, value]) => value !== null && value !== undefined && `${name}: ${value}`,
      ),
  ),
  'quarantine replay': does(
    ({config, world}) => replayQuarantine(config, world),
    ({replayed, waiting, pruned, appended, release_id}) => [
      `${quantity(replayed, 'record')} can be read now, ${quantity(appended, 'version')} appended; ${waiting} still ${waiting === 1 ? 'waits' : 'wait'}.`,
      describePruned(pruned),
      release_id && `Release ${release_id}.`,
    ],
  ),
}

interface SyncOptions {
  accept?: string
  acceptShrink?: boolean
  why?: string
  dryRun?: boolean
  detail: boolean
}

export function renderSync(result: SyncResult): Text {
  const {walk, outcome} = result
  const resumed = walk.resumed > 0 ? `, resumed ${walk.resumed}×` : ''
  const quarantined = walk.quarantined > 0 ? `, ${groupThousands(walk.quarantined)} quarantined` : ''
  const released = {
    dry_run: `Dry run: nothing was stored.${result.changes.missing > 0 ? ' A sync may find by their own pages that missing deals have vanished.' : ''}`,
    unchanged: `Nothing new: release ${result.release_id} stays current.`,
    released: `Released ${result.release_id}: ${quantity(result.checks.passed, 'check')} passed, ${result.checks.warned} warned.`,
  }[outcome]
  const {fetched, failed} = walk.details
  return [
    `Walk of ${walk.business_date} complete: ${quantity(walk.pages, 'page')}, ${quantity(walk.distinct, 'deal')}${quarantined}${resumed}.`,
    failed > 0 &&
      `Own pages: ${groupThousands(fetched)} read, ${groupThousands(failed)} could not be read; the log and \`loantape quarantine list\` say why.`,
    `Changes: ${countChanges(result.changes)}.`,
    result.streams.map(renderStream),
    released,
    renderWarnings(result.checks),
  ]
}

export function renderEvents({outcome, events, deals, appended}: EventsResult): string {
  if (outcome === 'unchanged') return 'No event is waiting.'
  const words = outcome === 'walked' ? 'a walk was made' : `${quantity(appended, 'version')} appended`
  const read = quantity(deals, 'deal')
  return events === 0
    ? `${read} that the source lists as changed: ${words}.`
    : `${quantity(events, 'event')} about ${read}: ${words}.`
}

function renderStream({stream, outcome, listed, failed, ended, changes, reason}: ChildResult): string {
  const what =
    outcome === 'refused'
      ? `refused (${reason}); deals are released without them`
      : `${quantity(listed, 'list')} read, ${failed} failed; changes: ${countChanges(changes)}`
  return `${stream}: ${what}${ended === 'done' ? '' : ` (${ended})`}.`
}

const countChanges = (changes: SyncResult['changes']) =>
  Object.entries(changes)
    .filter(([, count]) => count > 0)
    .map(([kind, count]) => `${groupThousands(count)} ${kind}`)
    .join(', ') || 'none'

const describePruned = (pruned: number) =>
  pruned > 0 &&
  `${groupThousands(pruned)} more ${pruned === 1 ? 'was' : 'were'} never read; the content has been pruned.`

/** Leaves out the content of records. */
async function readWaiting({dataDir}: Config, world: World) {
  const folder = dataFolderAt(dataDir)
  if (!hasWarehouse(folder)) return {records: [], pruned: 0}
  await using db = await openHistory(folder, world)
  const records = (await listWaiting(db)).map(({place: _, ...entry}) => entry)
  return {records, pruned: (await countUnreplayed(db)).pruned}
}

function renderReasons({reasons, records, pruned}: Awaited<ReturnType<typeof readReasons>>): Text {
  if (reasons.length === 0) return ['No record waits in quarantine.', describePruned(pruned)]
  return [
    tableOf(
      reasons.map(({path: field, reason, records, times, since}) => ({field, reason, records, times, since})),
    ),
    '',
    tableOf(
      records.map(({quarantine_id: id, record_id, path: field, times, since, walk_id: last_walk}) => {
        return {id, record: record_id ?? '(unreadable)', field, times, since, last_walk}
      }),
    ),
    describePruned(pruned),
  ]
}

function renderWaiting({records, pruned}: Awaited<ReturnType<typeof readWaiting>>): Text {
  const rows = records.map(({quarantine_id: id, record_id, observed_at: observed, source, path, reason}) => {
    return {id, record: record_id ?? '(unreadable)', observed, source, path, reason}
  })
  return [rows.length === 0 ? 'No record waits in quarantine.' : tableOf(rows), describePruned(pruned)]
}
