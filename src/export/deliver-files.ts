import {randomUUID} from 'node:crypto'
import {join} from 'node:path'
import {z} from 'zod'
import {sleepUntilStopped} from '../core/clock.ts'
import {explainError, type LoantapeError, messageOf, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import type {World} from '../core/types.ts'
import {acquireLock} from '../store/lock.ts'
import type {StateDb} from '../store/state-db.ts'
import {findFault} from './batch-folder.ts'
import {type Carrier, openFolder, openHttp, type Parcel, TargetFailure, UNFINISHED} from './carrier.ts'
import {type NamedTarget, placeOf} from './delivery-target.ts'

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
  outcome: 'delivered' | 'unchanged'
  /** Files that were sent; the target had the others. */
  sent: number
}

const ATTEMPTS = 4
const PAUSE_MS = 1000

/** A target that asks for a longer pause is left to the next export. */
const LONGEST_PAUSE_MS = 300_000

/**
 * Sends a batch to a target, the manifest last, so that a consumer who waits for it finds everything it names. Transient failures
 * are retried. Files that the target has are recorded in the state database and not sent twice.
 *
 * @throws what {@link Carrier} throws; CheckError `BATCH_DAMAGED` before anything is sent; LockedError `RUN_IN_PROGRESS`
 *   while another process makes the same delivery; DeferredError `INTERRUPTED`
 */
export async function deliverBatch(
  stateDb: StateDb,
  batch: DeliverableBatch,
  request: DeliveryRequest,
  world: World,
): Promise<DeliveryResult> {
  const {profile, batch_id} = batch
  const delivery = {target: request.name, place: placeOf(request.target), profile, batch_id}
  const parcels = await packBatch(batch)
  // Two processes that write the same `.part` could rename it before it is whole.
  const name = `delivery of ${profile}/${batch_id} to ${delivery.place}`
  using _lock = acquireLock(stateDb, {runId: randomUUID(), command: 'export', name}, world)
  if (request.isAgain) stateDb.run(`delete from delivered_file where ${WHERE}`, keyOf(delivery))
  const isMissing = ({name, sha256}: Parcel) => readDeliveredFiles(stateDb, delivery).get(name) !== sha256
  const missing = parcels.filter(isMissing).length
  if (missing === 0) return {...delivery, outcome: 'unchanged', sent: 0}
  for (let attempt = 1; ; attempt++) {
    startAttempt(stateDb, delivery, world)
    try {
      await using carrier = await openCarrier(request, `${profile}/${batch_id}`, world)
      for (const parcel of parcels.filter(isMissing)) {
        world.signal.throwIfAborted()
        await carrier.put(parcel)
        const {name, sha256} = parcel
        const {place} = delivery
        stateDb.insert('delivered_file', {place, profile, batch_id, name, sha256}, 'or replace')
      }
      endAttempt(stateDb, delivery, null, world)
      return {...delivery, outcome: 'delivered', sent: missing}
    } catch (error) {
      const failure = world.signal.aborted ? stopped(world.signal) : explainError(error)
      endAttempt(stateDb, delivery, scrubSecrets(failure.message), world)
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

/** The files in sending order, each compared with the manifest. */
async function packBatch({dir, files, batch_id, repair}: DeliverableBatch): Promise<Parcel[]> {
  for (const file of files) {
    const fault = await findFault(dir, file)
    if (fault === undefined) continue
    throw newError('BATCH_DAMAGED', `File '${file.name}' of batch '${batch_id}' ${fault}.`, {
      kept: 'Nothing was sent.',
      next: repair,
    })
  }
  return files.map((file) => ({...file, path: join(dir, file.name)}))
}

async function openCarrier(
  {target, silenceMs}: DeliveryRequest,
  folder: string,
  world: World,
): Promise<Carrier> {
  if (target.kind === 'folder') return openFolder(target, folder)
  if (target.kind === 'http') return openHttp(target, {folder, silenceMs}, world)
  // Loaded late, or every command would start slower.
  const {openSftp} = await import('./sftp.ts')
  return openSftp(target, folder, world)
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

/** The state database's record of a batch's delivery to a target; instants are ISO 8601 of the real clock. */
type DeliveryRecord = z.output<typeof deliveryRow>
const deliveryRow = z.object({
  /** The target's name. */
  target: z.string(),
  /** Its location, which identifies it: a renamed target is the same one. */
  place: z.string(),
  profile: z.string(),
  batch_id: z.string(),
  attempts: z.number(),
  started_at: z.string(),
  /** Null while files are missing. */
  delivered_at: z.string().nullable(),
  error: z.string().nullable(),
})

type Delivery = Pick<DeliveryRecord, 'target' | 'place' | 'profile' | 'batch_id'>

const WHERE = 'place = ? and profile = ? and batch_id = ?'
const keyOf = ({place, profile, batch_id}: Delivery) => [place, profile, batch_id] as const
const nowOf = (world: Pick<World, 'realClock'>) => new Date(world.realClock.now()).toISOString()

/** Every delivery of a batch, by target. */
export function listDeliveries(stateDb: StateDb, batchId: string): DeliveryRecord[] {
  return stateDb.all(deliveryRow, 'select * from delivery where batch_id = ? order by target, profile', [
    batchId,
  ])
}

/** The sha256 of every file that the target has, by name. */
function readDeliveredFiles(stateDb: StateDb, delivery: Delivery): Map<string, string> {
  const row = z.object({name: z.string(), sha256: z.string()})
  const files = stateDb.all(row, `select name, sha256 from delivered_file where ${WHERE}`, keyOf(delivery))
  return new Map(files.map(({name, sha256}) => [name, sha256]))
}

function startAttempt(stateDb: StateDb, delivery: Delivery, world: World): void {
  stateDb.run(
    `insert into delivery (place, profile, batch_id, target, attempts, started_at) values (?, ?, ?, ?, 1, ?)
     on conflict do update
     set target = excluded.target, attempts = attempts + 1, error = null, delivered_at = null`,
    [...keyOf(delivery), delivery.target, nowOf(world)],
  )
}

/** Records how an attempt ended: complete, or with an error. */
function endAttempt(stateDb: StateDb, delivery: Delivery, error: string | null, world: World): void {
  stateDb.run(`update delivery set delivered_at = ?, error = ? where ${WHERE}`, [
    error === null ? nowOf(world) : null,
    error,
    ...keyOf(delivery),
  ])
}
