import type {Config} from '../config.ts'
import {countPruned, listWaiting} from '../load/quarantine.ts'
import {quantity} from '../money.ts'
import {
  NOT_AT_HAND,
  type ReasonsRequest,
  readReasons,
  showQuarantined,
} from '../pipeline/quarantined-records.ts'
import {replayQuarantine} from '../pipeline/replay.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {hasWarehouse} from '../warehouse/warehouse.ts'
import type {Call, CliCommand} from './command.ts'
import {parseCount} from './options.ts'
import {joinLines, renderTable} from './table.ts'

/** `loantape quarantine`. */
export default function addQuarantine(command: CliCommand): void {
  const quarantine = command
  quarantine
    .command('list')
    .example('quarantine list')
    .description('the records that wait, oldest first')
    .does(({config}) => readWaiting(config), renderWaiting)
  quarantine
    .command('reasons')
    .example('quarantine reasons --path loan_amount')
    .description('why they wait, and which, each once however often it was seen')
    .option('--path <field>', 'only records of which this field could not be read')
    .option('--reason <text>', 'only those of this reason')
    .option('--page <n>', 'which page of records, the latest first', parseCount('--page', 1_000_000), 1)
    .does(({config, options}: Call<ReasonsRequest>) => readReasons(config, options), renderReasons)
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
    .description('read them once more, after a fix, and store those that can be read now')
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

/** The records that wait, without what they hold, and how many have been pruned. */
async function readWaiting({dataDir}: Config) {
  const folder = dataFolderAt(dataDir)
  if (!hasWarehouse(folder)) return {records: [], pruned: 0}
  await using db = await openHistory(folder)
  const entries = await listWaiting(db, 'history')
  const records = entries.map(({place: _, ...entry}) => entry)
  return {records, pruned: await countPruned(db, 'history')}
}

function renderReasons({reasons, records, pruned}: Awaited<ReturnType<typeof readReasons>>): string {
  if (reasons.length === 0) return joinLines(['No record waits in quarantine.', describePruned(pruned)])
  return joinLines([
    renderTable(
      ['field', 'reason', {number: 'records'}, {number: 'times'}, 'since'],
      reasons.map((one) => [one.path, one.reason, String(one.records), String(one.times), one.since]),
    ),
    '',
    renderTable(
      ['id', 'record', 'field', {number: 'times'}, 'since', 'last walk'],
      records.map((one) => [
        one.quarantine_id,
        one.record_id ?? '(unreadable)',
        one.path,
        String(one.times),
        one.since,
        one.walk_id,
      ]),
    ),
    describePruned(pruned),
  ])
}

function renderWaiting({records, pruned}: Awaited<ReturnType<typeof readWaiting>>): string {
  const table = renderTable(
    ['id', 'deal', 'observed', 'source', 'path', 'reason'],
    records.map((entry) => [
      entry.quarantine_id,
      entry.record_id ?? '(unreadable)',
      entry.observed_at,
      entry.source,
      entry.path,
      entry.reason,
    ]),
  )
  const listed = records.length === 0 ? 'No record waits in quarantine.' : table
  return joinLines([listed, describePruned(pruned)])
}
