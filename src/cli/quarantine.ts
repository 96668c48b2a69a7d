import type {Command} from 'commander'
import {countPruned, listWaiting, type QuarantineEntry} from '../load/quarantine.ts'
import {showQuarantined} from '../pipeline/quarantined-records.ts'
import {replayQuarantine} from '../pipeline/replay.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'
import {openHistory} from '../warehouse/history.ts'
import {hasWarehouse} from '../warehouse/warehouse.ts'
import type {Cli, CommonOptions} from './context.ts'
import {renderTable} from './table.ts'

/** `loantape quarantine`. */
export function addQuarantine(program: Command, cli: Cli): void {
  const quarantine = program
    .command('quarantine')
    .description('the records that could not be read, kept whole on their tapes')
  quarantine
    .command('list')
    .description('the records that wait, oldest first')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const {entries, pruned} = await readWaiting(cli.readConfig(options).dataDir)
      const records = entries.map(({record: _, place: __, ...entry}) => entry)
      cli.printResult(options, {records, pruned}, renderEntries)
    })
  quarantine
    .command('show')
    .description('one record, whole')
    .argument('<id>', 'as `quarantine list` names it: q_…')
    .action(async (id: string, _options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const shown = await showQuarantined(cli.readConfig(options), id)
      cli.printResult(options, shown, ({record, ...entry}) =>
        Object.entries({...entry, record: record === null ? GONE : JSON.stringify(record, null, 2)})
          .map(([name, value]) => `${name}: ${value ?? ''}`)
          .join('\n'),
      )
    })
  quarantine
    .command('replay')
    .description('read them once more, after a fix, and store those that can be read now')
    .action(async (_options, command: Command) => {
      const options = command.optsWithGlobals<CommonOptions>()
      const config = cli.readConfig(options)
      const result = await replayQuarantine(config, cli.createWorld(config))
      cli.printResult(options, result, ({replayed, waiting, pruned, appended, release_id}) =>
        [
          `${replayed} records can be read now, ${appended} versions appended; ${waiting} still wait.`,
          ...describePruned(pruned),
          ...(release_id === null ? [] : [`Release ${release_id}.`]),
        ].join('\n'),
      )
    })
}

/** What stands for a record that is gone. */
const GONE = 'not at hand: pruned, or on a tape that is missing or sealed with another key'

function describePruned(pruned: number): string[] {
  return pruned === 0 ? [] : [`${pruned} more were never read, and what they held has been pruned.`]
}

async function readWaiting(dataDir: string): Promise<{entries: QuarantineEntry[]; pruned: number}> {
  const folder = dataFolderAt(dataDir)
  if (!hasWarehouse(folder)) return {entries: [], pruned: 0}
  await using db = await openHistory(folder)
  return {entries: await listWaiting(db, 'history'), pruned: await countPruned(db, 'history')}
}

function renderEntries({
  records,
  pruned,
}: {
  records: Omit<QuarantineEntry, 'record' | 'place'>[]
  pruned: number
}): string {
  const table = renderTable(
    [
      {title: 'id'},
      {title: 'deal'},
      {title: 'observed'},
      {title: 'source'},
      {title: 'path'},
      {title: 'reason'},
    ],
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
  return [listed, ...describePruned(pruned)].join('\n')
}
