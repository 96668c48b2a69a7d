import {randomUUID} from 'node:crypto'
import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {sleepUntilStopped} from '../core/clock.ts'
import {explainError, type LoantapeError, messageOf, newError} from '../core/errors.ts'
import {scrubSecrets} from '../core/log.ts'
import type {World} from '../core/types.ts'
import {digestFile} from '../store/files.ts'
import {acquireLock} from '../store/lock.ts'
import type {StateDb} from '../store/state-db.ts'
import {type Carrier, openFolder, openHttp, type Parcel, TargetFailure, UNFINISHED} from './carrier.ts'
import {type NamedTarget, placeOf} from './delivery-target.ts'

/** What the state database knows of a batch's delivery to a target; instants are ISO 8601 of the real clock. */
type DeliveryRecord = z.output<typeof deliveryRow>
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
type Delivery = Pick<DeliveryRecord, 'target' | 'place' | 'profile' | 'batch_id'>

const WHERE = 'place = ? and profile = ? and batch_id = ?'
const keyOf = ({place, profile, batch_id}: Delivery) => [place, profile, batch_id] as const
const nowOf = (world: Pick<World, 'realClock'>) => new Date(world.realClock.now()).toISOString()

/** Counts one more attempt. */
function startAttempt(stateDb: StateDb, delivery: Delivery, world: Pick<World, 'realClock'>): void {
  stateDb.run(
    `insert into delivery (place, profile, batch_id, target, attempts, started_at) values (?, ?, ?, ?, 1, ?)
     on conflict do update
     set target = excluded.target, attempts = attempts + 1, error = null, delivered_at = null`,
    [...keyOf(delivery), delivery.target, nowOf(world)],
  )
}

/** Notes how an attempt ended: with every file there, or with an error. */
function endAttempt(
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
function storeDeliveredFile(
  stateDb: StateDb,
  {place, profile, batch_id}: Delivery,
  {name, sha256}: {name: string; sha256: string},
): void {
  stateDb.insert('delivered_file', {place, profile, batch_id, name, sha256}, 'or replace')
}

/** The sha256 of every file that a target has, by name. */
function readDeliveredFiles(stateDb: StateDb, delivery: Delivery): Map<string, string> {
  const files = stateDb.all(
    z.object({name: z.string(), sha256: z.string()}),
    `select name, sha256 from delivered_file where ${WHERE}`,
    keyOf(delivery),
  )
  return new Map(files.map(({name, sha256}) => [name, sha256]))
}

/** Forgets which files a target has, so that all of them are sent again. */
function forgetDeliveredFiles(stateDb: StateDb, delivery: Delivery): void {
  stateDb.run(`delete from delivered_file where ${WHERE}`, keyOf(delivery))
}

/** Every delivery of a batch, by target. */
export function listDeliveries(stateDb: StateDb, batchId: string): DeliveryRecord[] {
  return stateDb.all(deliveryRow, 'select * from delivery where batch_id = ? order by target, profile', [
    batchId,
  ])
}

/** A finished batch on disk. */
export interface DeliverableBatch {
  profile: string
  batch_id: string
  dir: string
  /** Those the manifest names; the manifest itself goes last. */
  files: {name: string; bytes: number; sha256: string}[]
  /** What to do where its files are gone or damaged. */
  repair: string
}

/** What a delivery came to. */
export interface DeliveryResult extends Delivery {
  outcome: 'delivered' | 'unchanged'
  /** Files that were sent; the target had the others. */
  sent: number
}

/** Where and how a batch is delivered. */
export interface DeliveryRequest extends NamedTarget {
  /** Whether files the target has are sent again. */
  isAgain?: boolean
  /** How long an endpoint may be silent; a minute by default. */
  silenceMs?: number
}

const ATTEMPTS = 4
const PAUSE_MS = 1000

/** A target that wants to be left alone for longer is left to the next export. */
const LONGEST_PAUSE_MS = 300_000

/**
 * Sends a batch to a target, the manifest last: a consumer that waits for it finds everything it names. What fails for a
 * moment is tried again; what the target has is noted in the state database and not sent twice.
 *
 * @throws what {@link Carrier} throws; CheckError `BATCH_DAMAGED` before anything is sent; LockedError `RUN_IN_PROGRESS`
 *   while another process delivers the same; DeferredError `INTERRUPTED`
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
  // Two that write the same `.part` could give it its name while it is not whole.
  const name = `delivery of ${profile}/${batch_id} to ${delivery.place}`
  using _lock = acquireLock(stateDb, {runId: randomUUID(), command: 'export', name}, world)
  if (request.isAgain) forgetDeliveredFiles(stateDb, delivery)
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
        storeDeliveredFile(stateDb, delivery, parcel)
      }
      endAttempt(stateDb, delivery, null, world)
      return {...delivery, outcome: 'delivered', sent: missing}
    } catch (error) {
      const failure = world.signal.aborted ? stopped(world.signal) : explainError(error)
      endAttempt(stateDb, delivery, scrubSecrets(failure.message), world)
      const pause = pauseAfter(failure, attempt, world)
      if (pause === undefined) throw failure
      world.log.warn({code: failure.code, attempt, retry_in_ms: pause}, 'delivery failed: it is tried again')
      await sleepUntilStopped(world.realClock, pause, world.signal)
      if (world.signal.aborted) throw stopped(world.signal)
    }
  }
}

/** The wait before the next attempt, at least what the target asked for; undefined when there is none. */
function pauseAfter(failure: LoantapeError, attempt: number, {random}: World): number | undefined {
  if (!(failure instanceof TargetFailure) || attempt === ATTEMPTS) return undefined
  if (failure.retryAfterMs > LONGEST_PAUSE_MS) return undefined
  return Math.max(failure.retryAfterMs, PAUSE_MS * 4 ** (attempt - 1) * (0.5 + random() / 2))
}

function stopped({reason}: AbortSignal): LoantapeError {
  return newError('INTERRUPTED', `The delivery was ${messageOf(reason)}.`, {...UNFINISHED, cause: reason})
}

/** The files in the order they are sent; each still what the manifest says. */
async function packBatch({dir, files, batch_id, repair}: DeliverableBatch): Promise<Parcel[]> {
  const parcels: Parcel[] = []
  for (const {name, bytes, sha256} of files) {
    const path = join(dir, name)
    const isThere = existsSync(path)
    if (!isThere || (await digestFile(path)) !== sha256) {
      throw newError(
        'BATCH_DAMAGED',
        `File '${name}' of batch '${batch_id}' ${isThere ? 'has not the sha256 of its manifest' : 'is not there'}.`,
        {kept: 'Nothing was sent.', next: repair},
      )
    }
    parcels.push({name, path, bytes, sha256})
  }
  return parcels
}

async function openCarrier(
  {target, silenceMs}: DeliveryRequest,
  place: string,
  world: World,
): Promise<Carrier> {
  if (target.kind === 'folder') return openFolder(target, place)
  if (target.kind === 'http') return openHttp(target, {place, silenceMs}, world)
  // Only here: every command would take longer to start.
  const {openSftp} = await import('./sftp.ts')
  return openSftp(target, place, world)
}
