import {buildRelease} from '../build/build.ts'
import {businessDateOf} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import type {World} from '../core/types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../store/data-folder.ts'
import {withRun} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {openWarehouse} from '../store/warehouse.ts'
import {applyReplay} from './apply.ts'
import {catchUpWarehouse} from './catch-up.ts'
import {readStreams} from './mapped-fields.ts'
import {countPruned, createReader, findQuarantinedRecords, listWaiting} from './quarantine.ts'
import {restageWalks} from './restage.ts'
import {listReadableTapes} from './tape-units.ts'
import {findReadKey, openTapes, type Tapes} from './tapes.ts'

/** What a replay came to; `quarantine replay --json` prints it. */
interface ReplayResult {
  run_id: string
  outcome: 'released' | 'unchanged'
  /** Records that can be read now. */
  replayed: number
  /** Records that still cannot. */
  waiting: number
  /** Records that never can: their texts have been pruned. */
  pruned: number
  /** Versions appended; a record that says nothing new appends none. */
  appended: number
  release_id: string | null
}

/**
 * Reads the records in quarantine once more, after a fix of schema or code, and stores those that can be read now with
 * the instant and the business date they were observed at. Then a release is built, as after a sync.
 */
export async function replayQuarantine(config: Config, world: World): Promise<ReplayResult> {
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  return withRun(folder.stateDb, 'quarantine replay', world, async ({runId, stateDb}) => {
    await using tapes = openTapes(config, {folder, stateDb}, world)
    const counts = await replayAll({folder, tapes, stateDb}, config, world)
    if (counts.replayed === 0) return {run_id: runId, outcome: 'unchanged', ...counts, release_id: null}
    const {outcome, release_id} = await buildRelease(config, {}, world)
    return {run_id: runId, outcome, ...counts, release_id}
  })
}

async function replayAll(
  {folder, tapes, stateDb}: {folder: DataFolder; tapes: Tapes; stateDb: StateDb},
  config: Config,
  world: World,
): Promise<Pick<ReplayResult, 'replayed' | 'waiting' | 'pruned' | 'appended'>> {
  await using db = await openWarehouse(folder, world, config)
  await tapes.listLeft()
  await catchUpWarehouse(config, {folder, stateDb, db}, world)
  const walks = await restageWalks({db, tapes}, world)
  const waiting = await listWaiting(db, 'warehouse')
  const readable = listReadableTapes(folder, stateDb, findReadKey(config, folder))
  const found = findQuarantinedRecords(waiting, readable)
  const counts = {replayed: 0, waiting: 0, pruned: await countPruned(db, 'warehouse'), appended: 0}
  for (const stream of await readStreams(db)) {
    const entries = waiting.filter((entry) => entry.stream === stream.name)
    if (entries.length === 0) continue
    const readable = entries.flatMap(createReader(stream, found))
    counts.replayed += readable.length
    counts.waiting += entries.length - readable.length
    const isWalkOpen = walks.has(stream.name)
    // A walk at a time, oldest first: within one a record is seen once, and the next walk compares with this one.
    for (const records of Map.groupBy(readable, ({entry}) => entry.walk_id).values()) {
      const [first] = records
      if (!first) continue
      const ids = records.map(({entry}) => entry.quarantine_id)
      const unit = {said: {kind: 'replay', stream: stream.name, entries: ids, isWalkOpen}, lines: []}
      const businessDate = first.entry.business_date
      const now = world.clock.now()
      counts.appended += await tapes.settleOfDay(businessDateOf(now, config), unit, (conclude) =>
        applyReplay(db, stream, {businessDate, isWalkOpen, records, now: BigInt(now) * 1000n, conclude}),
      )
    }
  }
  return counts
}
