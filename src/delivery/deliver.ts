import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {CheckError, explainError, RetryableError} from '../errors.ts'
import {
  type Delivery,
  endAttempt,
  forgetDeliveredFiles,
  readDeliveredFiles,
  startAttempt,
  storeDeliveredFile,
} from '../ledger/deliveries.ts'
import type {Ledger} from '../ledger/ledger.ts'
import {scrubSecrets} from '../log.ts'
import type {World} from '../types.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import type {Carrier, Parcel} from './carrier.ts'
import {openFolder} from './folder.ts'
import {openHttp} from './http.ts'
import type {Target} from './target.ts'

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

/** How a batch is delivered. */
export interface DeliveryRequest {
  name: string
  target: Target
  /** Password or token of a target that names no file. */
  secret?: string | undefined
  /** Whether files the target has are sent again. */
  isAgain?: boolean
}

const ATTEMPTS = 4
const PAUSE_MS = 1000

/**
 * Sends a batch to a target, the manifest last: a consumer that waits for it finds everything it names. What fails for a
 * moment is tried again; what the target has is noted in the ledger and not sent twice.
 *
 * @throws what {@link Carrier} throws; CheckError `BATCH_DAMAGED` before anything is sent
 */
export async function deliverBatch(
  ledger: Ledger,
  batch: DeliverableBatch,
  request: DeliveryRequest,
  world: World,
): Promise<DeliveryResult> {
  const delivery = {target: request.name, profile: batch.profile, batch_id: batch.batch_id}
  const parcels = await packBatch(batch)
  if (request.isAgain) forgetDeliveredFiles(ledger, delivery)
  const isMissing = ({name, sha256}: Parcel) => readDeliveredFiles(ledger, delivery).get(name) !== sha256
  const missing = parcels.filter(isMissing).length
  if (missing === 0) return {...delivery, outcome: 'unchanged', sent: 0}
  for (let attempt = 1; ; attempt++) {
    startAttempt(ledger, delivery, world)
    try {
      await using carrier = await openCarrier(request, `${batch.profile}/${batch.batch_id}`)
      for (const parcel of parcels.filter(isMissing)) {
        world.signal.throwIfAborted()
        await carrier.put(parcel)
        storeDeliveredFile(ledger, delivery, parcel)
      }
      endAttempt(ledger, delivery, null, world)
      return {...delivery, outcome: 'delivered', sent: missing}
    } catch (error) {
      const failure = explainError(error)
      endAttempt(ledger, delivery, scrubSecrets(failure.message), world)
      if (!(error instanceof RetryableError) || attempt === ATTEMPTS) throw failure
      const pause = PAUSE_MS * 4 ** (attempt - 1) * (0.5 + world.random() / 2)
      world.log.warn({code: failure.code, attempt, retry_in_ms: pause}, 'delivery failed: it is tried again')
      await world.realClock.sleep(pause, world.signal)
    }
  }
}

/** The files in the order they are sent; each still what the manifest says. */
async function packBatch({dir, files, batch_id, repair}: DeliverableBatch): Promise<Parcel[]> {
  const parcels: Parcel[] = []
  for (const {name, bytes, sha256} of files) {
    const path = join(dir, name)
    const isThere = existsSync(path)
    if (!isThere || (await digestFile(path)) !== sha256) {
      throw new CheckError({
        code: 'BATCH_DAMAGED',
        problem: `File '${name}' of batch '${batch_id}' ${isThere ? 'has not the sha256 of its manifest' : 'is not there'}.`,
        kept: 'Nothing was sent.',
        next: repair,
      })
    }
    parcels.push({name, path, bytes, sha256})
  }
  return parcels
}

async function openCarrier({target, secret}: DeliveryRequest, place: string): Promise<Carrier> {
  if (target.kind === 'folder') return openFolder(target, place)
  if (target.kind === 'http') return openHttp(target, place, secret)
  // Only here: every command would take longer to start.
  const {openSftp} = await import('./sftp.ts')
  return openSftp(target, place, secret)
}
