import {existsSync, readdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {findBatches, listBatches} from '../accounting/issued.ts'
import {requireHandedOver} from '../accounting/journal-handover.ts'
import type {Config} from '../config.ts'
import {type DeliverableBatch, type DeliveryResult, deliverBatch} from '../delivery/deliver-files.ts'
import {type NamedTarget, placeOf, readTargets} from '../delivery/target.ts'
import {explainError, newError} from '../errors.ts'
import type {BatchResult} from '../export/batch.ts'
import {readBatchManifest} from '../export/batch-manifest.ts'
import {describeRepair} from '../export/kept-batches.ts'
import {listDeliveries} from '../state/deliveries.ts'
import {openStateDb, type StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import {type DataFolder, dataFolderAt} from '../warehouse/data-folder.ts'

/** A batch as exports name it. */
type NamedBatch = Pick<BatchResult, 'profile' | 'batch_id' | 'dir'>

/**
 * Delivers batches to targets; with a journal's every batch of its month that a target has not got, because only all of
 * them are the journal. A target that fails does not keep the others from theirs; the first failure is thrown when all
 * have been tried, the others are logged.
 */
export async function deliverBatches(
  config: Config,
  request: {batches: readonly NamedBatch[]; targets: readonly string[]},
  world: World,
): Promise<DeliveryResult[]> {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  const asked = request.batches.filter(({batch_id}) => batch_id !== '')
  const batches = withWholeJournals(stateDb, folder, asked, world)
  const targets = readTargets(config, request.targets)
  const results = await sendBatches(stateDb, {batches, targets, isAgain: false}, world)
  const isAsked = ({profile, batch_id}: DeliveryResult) =>
    asked.some((batch) => batch.profile === profile && batch.batch_id === batch_id)
  return results.filter((result) => result.outcome === 'delivered' || isAsked(result))
}

/** A delivery that failed would otherwise be forgotten as soon as a month has its next batch. */
function withWholeJournals(
  stateDb: StateDb,
  folder: DataFolder,
  asked: readonly NamedBatch[],
  world: World,
): NamedBatch[] {
  const named = asked.flatMap((batch) => {
    const issued = findBatches(stateDb, batch.batch_id).find(({profile}) => profile === batch.profile)
    if (!issued) return [batch]
    const parts = listBatches(stateDb, issued.profile, issued.period)
    return parts.map((part) => ({...part, dir: requireHandedOver(stateDb, folder, part, world)}))
  })
  return [...new Map(named.map((batch) => [batch.dir, batch])).values()]
}

async function sendBatches(
  stateDb: StateDb,
  request: {batches: readonly NamedBatch[]; targets: readonly NamedTarget[]; isAgain: boolean},
  world: World,
): Promise<DeliveryResult[]> {
  const results: DeliveryResult[] = []
  const failures: unknown[] = []
  for (const {name, target} of request.targets) {
    for (const batch of request.batches) {
      world.onProgress({step: 'delivering'})
      const how = {name, target, isAgain: request.isAgain}
      try {
        results.push(await deliverBatch(stateDb, await readBatch(batch), how, world))
      } catch (error) {
        if (world.signal.aborted) throw error
        failures.push(error)
        const {profile, batch_id} = batch
        world.log.warn({code: explainError(error).code, profile, batch_id}, `delivery to '${name}' failed`)
      }
    }
  }
  if (failures.length > 0) throw failures[0]
  return results
}

/**
 * Sends a batch once more: to the targets named, or to where it was sent before.
 *
 * @throws ConfigError `UNKNOWN_NAME`
 */
export async function redeliverBatch(
  config: Config,
  {batchId, targets}: {batchId: string; targets: readonly string[]},
  world: World,
): Promise<DeliveryResult[]> {
  const folder = dataFolderAt(config.dataDir)
  using stateDb = openStateDb(folder.stateDb)
  const batches = findKeptBatches(stateDb, folder, batchId, world)
  if (batches.length === 0) {
    throw newError('UNKNOWN_NAME', `Batch '${batchId}' is not in '${folder.exports}'.`, {
      next: 'The folders below it are named after the batches.',
    })
  }
  const named =
    targets.length > 0 ? readTargets(config, targets) : findEarlierTargets(stateDb, config, batchId)
  return await sendBatches(stateDb, {batches, targets: named, isAgain: true}, world)
}

/** The batches of this id: journals from the state database, which keeps their bytes, all others as they lie on disk. */
function findKeptBatches(stateDb: StateDb, folder: DataFolder, batchId: string, world: World): NamedBatch[] {
  const issued = findBatches(stateDb, batchId).map((batch) => ({
    ...batch,
    dir: requireHandedOver(stateDb, folder, batch, world),
  }))
  const profiles = existsSync(folder.exports) ? readdirSync(folder.exports) : []
  const lying = profiles
    .map((profile) => ({profile, batch_id: batchId, dir: join(folder.exports, profile, batchId)}))
    .filter(({dir}) => /^[\w-]+$/.test(batchId) && existsSync(join(dir, 'manifest.json')))
  return [...new Map([...issued, ...lying].map((batch) => [batch.dir, batch])).values()]
}

/** The targets that are where a batch was sent to, whatever they are called now. */
function findEarlierTargets(stateDb: StateDb, config: Config, batchId: string): NamedTarget[] {
  const before = listDeliveries(stateDb, batchId)
  const known = before.length === 0 ? [] : readTargets(config)
  const found = before.map(({target: name, place}) => {
    const there = known.filter(({target}) => placeOf(target) === place)
    const target = there.find((candidate) => candidate.name === name) ?? there[0]
    if (target) return target
    throw newError(
      'UNKNOWN_NAME',
      `Batch '${batchId}' was sent to '${name}' (${place}), where no target is now.`,
      {next: 'Name targets with --deliver.'},
    )
  })
  if (found.length === 0)
    throw newError('UNKNOWN_NAME', `Batch '${batchId}' was sent to nobody yet.`, {
      next: 'Name targets with --deliver.',
    })
  return [...new Set(found)]
}

async function readBatch({profile, batch_id, dir}: NamedBatch): Promise<DeliverableBatch> {
  const path = join(dir, 'manifest.json')
  const repair = describeRepair(profile, batch_id)
  const files = readBatchManifest(dir)?.files
  if (!files) {
    throw newError('BATCH_DAMAGED', `Batch '${batch_id}' in '${dir}' has no manifest that can be read.`, {
      next: repair,
    })
  }
  const manifest = {name: 'manifest.json', bytes: statSync(path).size, sha256: await digestFile(path)}
  return {profile, batch_id, dir, repair, files: [...files, manifest]}
}
