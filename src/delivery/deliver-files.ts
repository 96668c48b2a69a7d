import {randomUUID} from 'node:crypto'
import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {sleepUntilStopped} from '../clock.ts'
import {explainError, type LoantapeError, messageOf, newError} from '../errors.ts'
import {scrubSecrets} from '../log.ts'
import {
  type Delivery,
  endAttempt,
  forgetDeliveredFiles,
  readDeliveredFiles,
  startAttempt,
  storeDeliveredFile,
} from '../state/deliveries.ts'
import {acquireLock} from '../state/lock.ts'
import type {StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import {type Carrier, type Parcel, TargetFailure, UNFINISHED} from './carrier.ts'
import {openFolder} from './folder.ts'
import {openHttp} from './http.ts'
import {type NamedTarget, placeOf} from './target.ts'

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
