import type {Stream} from '../contract/stream.ts'
import {businessDateOf, formatInstant, parseInstant} from '../core/clock.ts'
import type {Config} from '../core/config.ts'
import {createNormaliser} from '../source/record.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {CurrentRun} from '../store/runs.ts'
import type {Frame} from '../store/tape.ts'
import {openToSettle} from './catch-up.ts'
import type {Answer} from './intake.ts'
import {
  countUnreplayed,
  type FoundRecord,
  findQuarantinedRecords,
  listWaiting,
  type QuarantineEntry,
} from './quarantine.ts'
import {settleBeside} from './settle.ts'
import {listReadableTapes} from './tapes.ts'

/**
 * Reads the records in quarantine again, after a fix of schema or code, and stores those that are now readable, with
 * their original instant and business date.
 */
export async function replayRecords(
  folder: DataFolder,
  config: Config,
  {stateDb, world}: Pick<CurrentRun, 'stateDb' | 'world'>,
) {
  await using opened = await openToSettle(config, {folder, stateDb}, world)
  const {db, tapes, walks, streams} = opened
  const waiting = await listWaiting(db, 'warehouse')
  const found = findQuarantinedRecords(waiting, listReadableTapes(folder, stateDb, tapes.key))
  const counts = {
    /** Records that can be read now, and records that still cannot. */
    replayed: 0,
    waiting: 0,
    /** Records that never can: their texts have been pruned. */
    pruned: (await countUnreplayed(db, 'warehouse')).pruned,
    /** Versions appended; a record that says nothing new appends none. */
    appended: 0,
  }
  for (const stream of streams) {
    const entries = waiting.filter((entry) => entry.stream === stream.name)
    const lines = entries.flatMap(createReader(stream, found))
    counts.replayed += lines.length
    counts.waiting += entries.length - lines.length
    // Walk by walk, oldest first, since each is compared with the one before.
    for (const ofWalk of Map.groupBy(lines, ({entry}) => entry.walk_id).values()) {
      const businessDate = ofWalk[0]?.entry.business_date
      const said = {kind: 'replay', stream: stream.name, businessDate, isWalkOpen: walks.has(stream.name)}
      const today = businessDateOf(world.clock.now(), config)
      const {appended} = await settleBeside({db, tapes}, today, {said, lines: ofWalk}, world)
      counts.appended += appended
    }
  }
  return counts
}

/** Makes a function that reads a quarantined record again; it returns its line, or none. */
function createReader(
  stream: Stream,
  found: ReadonlyMap<string, FoundRecord>,
): (entry: QuarantineEntry) => (Answer & {entry: QuarantineEntry})[] {
  const normalise = createNormaliser(stream)
  return (entry) => {
    const observedAt = parseInstant(`${entry.observed_at}Z`)
    const told = found.get(entry.quarantine_id)
    const text = told?.text()
    if (observedAt === null || !told || text === undefined) return []
    const {parent, listed, json} = told
    const record = listed ? {...listed, ...Object(json)} : json
    if (normalise([record], observedAt, parent).observations.length === 0) return []
    const {quarantine_id} = entry
    const frame: Frame = {
      ...{frame: 'replay', quarantine_id, observed_at: formatInstant(observedAt)},
      ...{parent, listed},
    }
    return [{entry, frame, body: json, received: {body: Buffer.from(text)}}]
  }
}
