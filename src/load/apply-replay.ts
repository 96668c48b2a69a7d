import {DuckDBTimestampValue} from '@duckdb/node-api'
import type {Stream} from '../contract/stream.ts'
import type {Observation} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {applyObservations} from './apply.ts'
import {planChanges} from './plan-changes.ts'
import type {QuarantineEntry} from './quarantine.ts'
import type {Conclude} from './settle.ts'
import {createStaged, createStagedRows} from './stream-tables.ts'

/** Records of one walk that can be read now, with the instant and the day they were first observed. */
export interface Replay {
  businessDate: string
  isWalkOpen: boolean
  records: {entry: QuarantineEntry; observation: Observation}[]
  /** Business clock, microseconds since the epoch. */
  now: bigint
  conclude: Conclude
}

/**
 * Stores records of one walk that can be read now, in one transaction with the note that they were replayed. They take
 * their place in time: what was observed later stays the latest.
 *
 * @returns how many versions were appended
 */
export async function applyReplay(db: Database, stream: Stream, replay: Replay): Promise<number> {
  await createStaged(db, stream, 'staged_replay')
  const rows = createStagedRows(stream)
  replay.records.forEach(({observation}, position) => {
    rows.push(observation, {source: 'replay', pageNo: 0, position})
  })
  await rows.append(db, 'staged_replay')
  const batch = {walkId: null, businessDate: replay.businessDate, isWalkOpen: replay.isWalkOpen}
  const plan = await planChanges(db, stream, batch, 'temp.staged_replay')
  const ids = replay.records.map(({entry}) => entry.quarantine_id)
  await applyObservations(db, stream, batch, {
    plan,
    kind: 'replay',
    now: replay.now,
    async conclude(recordedAt) {
      await db.run(
        `update warehouse.raw.quarantine set replayed_at = $1
         where quarantine_id in (select unnest(from_json($2, '["varchar"]')))`,
        [new DuckDBTimestampValue(replay.now), JSON.stringify(ids)],
      )
      return replay.conclude(recordedAt)
    },
  })
  await db.run('drop table temp.staged_replay')
  return plan.appended
}
