import type {Config} from '../config.ts'
import {countPruned, listWaiting} from '../load/quarantine.ts'
import {showQuarantined} from '../pipeline/quarantined-records.ts'
import {replayQuarantine} from '../pipeline/replay.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {hasWarehouse} from '../warehouse/warehouse.ts'
import type {CliCommand} from './command.ts'
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
    .command('show')
    .example('quarantine show q_8d2f6a01b3c4')
    .description('one record, whole')
    .argument('<id>', 'as `quarantine list` names it: q_…')
    .does(
      ({config}, id: string) => showQuarantined(config, id),
      ({record, ...entry}) =>
        Object.entries({...entry, record: record === null ? GONE : JSON.stringify(record, null, 2)})
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
          `${replayed} records can be read now, ${appended} versions appended; ${waiting} still wait.`,
          describePruned(pruned),
          release_id && `Release ${release_id}.`,
        ]),
    )
}

/** What stands for a record that is gone. */
const GONE = 'not at hand: pruned, or on a tape that is missing or sealed with another key'

const describePruned = (pruned: number) =>
  pruned > 0 && `${pruned} more were never read, and what they held has been pruned.`

/** The records that wait, without what they hold, and how many have been pruned. */
async function readWaiting({dataDir}: Config) {
  const folder = dataFolderAt(dataDir)
  if (!hasWarehouse(folder)) return {records: [], pruned: 0}
  await using db = await openHistory(folder)
  const entries = await listWaiting(db, 'history')
  const records = entries.map(({record: _, place: __, ...entry}) => entry)
  return {records, pruned: await countPruned(db, 'history')}
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
