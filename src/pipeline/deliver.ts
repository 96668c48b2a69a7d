import {existsSync, readdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import type {Config} from '../config.ts'
import {type DeliverableBatch, type DeliveryResult, deliverBatch} from '../delivery/deliver.ts'
import {readTargets} from '../delivery/target.ts'
import {ConfigError} from '../errors.ts'
import {readBatchFiles} from '../export/manifest.ts'
import {listDeliveries} from '../ledger/deliveries.ts'
import {openLedger} from '../ledger/ledger.ts'
import type {World} from '../types.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import {dataFolderAt} from '../warehouse/data-folder.ts'

/**
 * Delivers batches to targets. A target that fails does not keep the others from theirs; the first failure is thrown when
 * all have been tried.
 */
export async function deliverBatches(
  config: Config,
  request: {
    batches: readonly {profile: string; batch_id: string; dir: string}[]
    targets: readonly string[]
    isAgain?: boolean
  },
  world: World,
): Promise<DeliveryResult[]> {
  const targets = readTargets(config.targetsFile, request.targets)
  using ledger = openLedger(dataFolderAt(config.dataDir).ledger)
  const results: DeliveryResult[] = []
  const failures: unknown[] = []
  for (const {name, target} of targets) {
    for (const batch of request.batches) {
      const how = {name, target, secret: config.targetSecret, isAgain: request.isAgain ?? false}
      try {
        results.push(await deliverBatch(ledger, await readBatch(batch), how, world))
      } catch (error) {
        failures.push(error)
      }
    }
  }
  if (failures.length > 0) throw failures[0]
  return results
}

/**
 * Sends a batch once more: to the targets named, or to those it was sent to before.
 *
 * @throws ConfigError `BATCH_UNKNOWN`, `DELIVERY_UNKNOWN`
 */
export async function redeliverBatch(
  config: Config,
  {batchId, targets}: {batchId: string; targets: readonly string[]},
  world: World,
): Promise<DeliveryResult[]> {
  const folder = dataFolderAt(config.dataDir)
  const profiles = existsSync(folder.exports) ? readdirSync(folder.exports) : []
  const batches = profiles
    .map((profile) => ({profile, batch_id: batchId, dir: join(folder.exports, profile, batchId)}))
    .filter(({dir}) => /^[\w-]+$/.test(batchId) && existsSync(join(dir, 'manifest.json')))
  if (batches.length === 0) {
    throw new ConfigError({
      code: 'BATCH_UNKNOWN',
      problem: `Batch '${batchId}' is not in '${folder.exports}'.`,
      kept: 'Nothing was sent.',
      next: 'The folders below it are named after the batches.',
    })
  }
  using ledger = openLedger(folder.ledger)
  const before = [...new Set(listDeliveries(ledger, batchId).map(({target}) => target))]
  const named = targets.length > 0 ? targets : before
  if (named.length === 0) {
    throw new ConfigError({
      code: 'DELIVERY_UNKNOWN',
      problem: `Batch '${batchId}' was sent to nobody yet.`,
      kept: 'Nothing was sent.',
      next: 'Name targets with --deliver.',
    })
  }
  return await deliverBatches(config, {batches, targets: named, isAgain: true}, world)
}

async function readBatch(batch: {profile: string; batch_id: string; dir: string}): Promise<DeliverableBatch> {
  const path = join(batch.dir, 'manifest.json')
  const manifest = {name: 'manifest.json', bytes: statSync(path).size, sha256: await digestFile(path)}
  const files = (readBatchFiles(batch.dir) ?? []).map(({name, bytes, sha256}) => ({name, bytes, sha256}))
  return {...batch, files: [...files, manifest]}
}
