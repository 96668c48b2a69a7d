import {z} from 'zod'
import type {World} from '../types.ts'
import type {StateDb} from './state-db.ts'

/** What the state database knows of a batch's delivery to a target; instants are ISO 8601 of the real clock. */
export type DeliveryRecord = z.output<typeof deliveryRow>
const deliveryRow = z.object({
  /** What the target is called. */
  target: z.string(),
  /** Where it is: a target that is renamed is the same still, one that means another server is not. */
  place: z.string(),
  profile: z.string(),
  batch_id: z.string(),
  attempts: z.number(),
  started_at: z.string(),
  /** Null while files are missing. */
  delivered_at: z.string().nullable(),
  error: z.string().nullable(),
})

/** A batch on its way to a target. */
export type Delivery = Pick<DeliveryRecord, 'target' | 'place' | 'profile' | 'batch_id'>

const WHERE = 'place = ? and profile = ? and batch_id = ?'
const keyOf = ({place, profile, batch_id}: Delivery) => [place, profile, batch_id] as const
const nowOf = (world: Pick<World, 'realClock'>) => new Date(world.realClock.now()).toISOString()

/** Counts one more attempt. */
export function startAttempt(stateDb: StateDb, delivery: Delivery, world: Pick<World, 'realClock'>): void {
  stateDb.run(
    `insert into delivery (place, profile, batch_id, target, attempts, started_at) values (?, ?, ?, ?, 1, ?)
     on conflict do update
     set target = excluded.target, attempts = attempts + 1, error = null, delivered_at = null`,
    [...keyOf(delivery), delivery.target, nowOf(world)],
  )
}

/** Notes how an attempt ended: with every file there, or with an error. */
export function endAttempt(
  stateDb: StateDb,
  delivery: Delivery,
  error: string | null,
  world: Pick<World, 'realClock'>,
): void {
  const deliveredAt = error === null ? nowOf(world) : null
  stateDb.run(`update delivery set delivered_at = ?, error = ? where ${WHERE}`, [
    deliveredAt,
    error,
    ...keyOf(delivery),
  ])
}

/** Notes a file that the target has whole. */
export function storeDeliveredFile(
  stateDb: StateDb,
  {place, profile, batch_id}: Delivery,
  {name, sha256}: {name: string; sha256: string},
): void {
  stateDb.insert('delivered_file', {place, profile, batch_id, name, sha256}, 'or replace')
}

/** The sha256 of every file that a target has, by name. */
export function readDeliveredFiles(stateDb: StateDb, delivery: Delivery): Map<string, string> {
  const files = stateDb.all(
    z.object({name: z.string(), sha256: z.string()}),
    `select name, sha256 from delivered_file where ${WHERE}`,
    keyOf(delivery),
  )
  return new Map(files.map(({name, sha256}) => [name, sha256]))
}

/** Forgets which files a target has, so that all of them are sent again. */
export function forgetDeliveredFiles(stateDb: StateDb, delivery: Delivery): void {
  stateDb.run(`delete from delivered_file where ${WHERE}`, keyOf(delivery))
}

/** Every delivery of a batch, by target. */
export function listDeliveries(stateDb: StateDb, batchId: string): DeliveryRecord[] {
  return stateDb.all(deliveryRow, 'select * from delivery where batch_id = ? order by target, profile', [
    batchId,
  ])
}
