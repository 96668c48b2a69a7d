import {randomUUID} from 'node:crypto'
import {join} from 'node:path'
import {z} from 'zod'
import {sleepUntilStopped} from '../core/clock.ts'
import {explainError, type LoantapeError, messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import {findFileFault} from '../store/files.ts'
import {acquireLock} from '../store/runs.ts'
import type {StateDb} from '../store/state-db.ts'
import {type NamedTarget, openCarrier, placeOf, TargetFailure, UNFINISHED} from './delivery-target.ts'

/** A finished batch on disk. */
export interface DeliverableBatch {
  profile: string
  batch_id: string
  dir: string
  /** The files that the manifest names, then the manifest itself. */
  files: {name: string; bytes: number; sha256: string}[]
  /** What to do when its files are missing or damaged. */
  repair: string
}

/** Where and how a batch is delivered. */
export interface DeliveryRequest extends NamedTarget {
  /** Sends files again that the target already has. */
  isAgain?: boolean
  /** How long an endpoint may be silent; a minute by default. */
  silenceMs?: number
}

/** The result of a delivery. */
export interface DeliveryResult extends Delivery {
  profile: string
  batch_id: string
  outcome: 'delivered' | 'unchanged'
  /** Files that were sent; the target had the others. */
  sent: number
}

const ATTEMPTS = 4
const PAUSE_MS = 1000

/** A target that asks for a longer pause is left to the next export. */
const LONGEST_PAUSE_MS = 300_000

const WHERE = 'place = ? and profile = ? and batch_id = ?'

/**
 * Sends a batch to a target, the manifest last, so that a consumer who waits for it finds everything it names. Transient failures
 * are retried. Files that the target has are recorded in the state database and not sent twice.
 *
 * @throws what {@link openCarrier} throws; CheckError `BATCH_DAMAGED` before anything is sent; LockedError `RUN_IN_PROGRESS`
 *   while another process makes the same delivery; DeferredError `INTERRUPTED`
 */
export async function deliverBatch(
  stateDb: StateDb,
  batch: DeliverableBatch,
  {name: target, isAgain = false, ...how}: DeliveryRequest,
  world: World,
): Promise<DeliveryResult> {
  const {profile, batch_id, dir, files} = batch
  const delivery = {target, place: placeOf(how.target), profile, batch_id}
  const {place} = delivery
  await requireUndamaged(batch)
  // Two processes that write the same `.part` could rename it before it is whole.
  const lock = `delivery of ${profile}/${batch_id} to ${place}`
  using _lock = acquireLock(stateDb, {runId: randomUUID(), command: 'export', name: lock}, world)
  // If this delivery does not end, the next one sends them.
  if (isAgain) stateDb.run(`update delivered_file set sha256 = '' where ${WHERE}`, [place, profile, batch_id])
  const listMissing = () => {
    const row = z.object({name: z.string(), sha256: z.string()})
    const sql = `select name, sha256 from delivered_file where ${WHERE}`
    const there = stateDb.all(row, sql, [place, profile, batch_id])
    return files.filter(
      (file) => !there.some(({name, sha256}) => name === file.name && sha256 === file.sha256),
    )
  }
  const sent = listMissing().length
  if (sent === 0) return {...delivery, outcome: 'unchanged', sent}
  for (let attempt = 1; ; attempt++) {
    try {
      await using carrier = await openCarrier(how, `${profile}/${batch_id}`, world)
      for (const file of listMissing()) {
        world.signal.throwIfAborted()
        await carrier.put({...file, path: join(dir, file.name)})
        stateDb.insert('delivered_file', {...delivery, name: file.name, sha256: file.sha256}, 'or replace')
      }
      return {...delivery, outcome: 'delivered', sent}
    } catch (error) {
      if (world.signal.aborted) throw stopped(world.signal)
      const failure = explainError(error)
      const pause = pauseAfter(failure, attempt, world)
      if (pause === undefined) throw failure
      world.log.warn(
        {code: failure.code, attempt, retry_in_ms: pause},
        'delivery failed; it will be tried again',
      )
      await sleepUntilStopped(world.realClock, pause, world.signal)
      if (world.signal.aborted) throw stopped(world.signal)
    }
  }
}

/** Compares each file with the manifest. */
async function requireUndamaged({dir, files, batch_id, repair}: DeliverableBatch): Promise<void> {
  for (const file of files) {
    const fault = await findFileFault(join(dir, file.name), file.sha256)
    if (fault === undefined) continue
    throw newError('BATCH_DAMAGED', `File '${file.name}' of batch '${batch_id}' ${fault}.`, {
      kept: 'Nothing was sent.',
      next: repair,
    })
  }
}

/** The wait before the next attempt, at least what the target asked for; undefined if there is no next attempt. */
function pauseAfter(failure: LoantapeError, attempt: number, {random}: World): number | undefined {
  if (!(failure instanceof TargetFailure) || attempt === ATTEMPTS) return undefined
  if (failure.retryAfterMs > LONGEST_PAUSE_MS) return undefined
  return Math.max(failure.retryAfterMs, PAUSE_MS * 4 ** (attempt - 1) * (0.5 + random() / 2))
}

function stopped({reason}: AbortSignal): LoantapeError {
  return newError('INTERRUPTED', `The delivery was ${messageOf(reason)}.`, {...UNFINISHED, cause: reason})
}

type Delivery = z.output<typeof deliveryRow>
const deliveryRow = z.object({
  /** The target's name. */
  target: z.string(),
  /** Its location, which identifies it: a renamed target is the same one. */
  place: z.string(),
})

/** The targets that files of a batch have reached, under their last names. */
export function listDeliveries(stateDb: StateDb, batchId: string): Delivery[] {
  const sql = `select target, place from delivered_file where batch_id = ? group by place order by target, place`
  return stateDb.all(deliveryRow, sql, [batchId])
}
