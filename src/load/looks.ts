import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {Observation, WireRecord} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {applyObservations} from './apply.ts'
import {listWireFields} from './details.ts'
import {type GuardLimits, guardChanges} from './guard.ts'
import {planChanges} from './plan-changes.ts'
import type {Conclude} from './settle.ts'
import {createStaged, createStagedRows, tablesOf} from './stream-tables.ts'

/** Records looked at between two walks. */
export interface Looks {
  /** `YYYY-MM-DD`, of the instant they were looked at. */
  businessDate: string
  isWalkOpen: boolean
  observations: readonly Observation[]
  /** Business clock, microseconds since the epoch. */
  now: bigint
  /** None where they were guarded before. */
  limits: GuardLimits | null
  conclude: Conclude
}

/**
 * Stores what records said between two walks, in one transaction, by the same entry as a walk. They prove nothing about
 * records that were not looked at. All that was looked at since the last walk is guarded as one.
 *
 * @returns how many versions were appended
 * @throws GuardError when together they change more than a walk may
 */
export async function applyLooks(db: Database, stream: Stream, looks: Looks): Promise<number> {
  await createStaged(db, stream, 'staged_look')
  const rows = createStagedRows(stream)
  looks.observations.forEach((observation, position) => {
    rows.push(observation, {source: 'webhook', pageNo: 0, position})
  })
  await rows.append(db, 'staged_look')
  const batch = {walkId: null, businessDate: looks.businessDate, isWalkOpen: looks.isWalkOpen}
  const plan = await planChanges(db, stream, batch, 'temp.staged_look')
  if (looks.limits) guardChanges(plan, looks.limits, new Set(), stream)
  await applyObservations(db, stream, batch, {plan, kind: 'look', now: looks.now, conclude: looks.conclude})
  await db.run('drop table temp.staged_look')
  return plan.appended
}

/** The wire fields last known of these records, by id; what a page leaves out is read from them. */
export async function listKnownFields(
  db: Database,
  stream: Stream,
  ids: readonly string[],
): Promise<Map<string, WireRecord>> {
  const rows = await db.all(
    z.record(z.string(), z.string().nullable()),
    `select ${stream.idColumn} as id, ${listWireFields(stream, 'absence')}
     from ${tablesOf(stream).head}
     where ${stream.idColumn} in (select unnest(from_json($1, '["varchar"]')))`,
    [JSON.stringify(ids)],
  )
  return new Map(
    rows.map(({id, ...fields}) => [
      id ?? '',
      Object.fromEntries(
        Object.entries(fields).filter(([name, value]) => stream.wireFields.includes(name) && value !== null),
      ),
    ]),
  )
}
