import {existsSync, readdirSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {beginBatch} from '../export/batch-folder.ts'
import {isWholeBatch} from '../export/batch-manifest.ts'
import type {StateDb} from '../state/state-db.ts'
import type {World} from '../types.ts'
import {syncToDisk} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {type BatchContent, type IssuedBatch, markHandedOver, readBatchContent} from './issued.ts'

/** Where the files of a batch lie. */
function batchDir(folder: DataFolder, {profile, batch_id}: IssuedBatch): string {
  return join(folder.exports, profile, batch_id)
}

/**
 * Puts the files of an issued batch into their place, the manifest last, under a temporary name first, and notes it. The
 * bytes come from the state database: however often, they are the same.
 *
 * @returns where they lie
 */
export function handOver(stateDb: StateDb, folder: DataFolder, batch: IssuedBatch, world: World): string {
  const final = batchDir(folder, batch)
  const isManifest = ({name}: BatchContent) => name === 'manifest.json'
  const files = readBatchContent(stateDb, batch).sort((a, b) => Number(isManifest(a)) - Number(isManifest(b)))
  markHandedOver(stateDb, batch, false)
  using written = beginBatch(final)
  for (const {name, content} of files) {
    writeFileSync(join(written.dir, name), content)
    syncToDisk(join(written.dir, name))
  }
  world.onStep('journal written')
  written.finish(() => isInPlace(final, files))
  world.onStep('journal in place')
  markHandedOver(stateDb, batch, true)
  world.onStep('journal handed over')
  return final
}

/**
 * Makes sure that the files of an issued batch are there; they may have been removed, or never been put there.
 *
 * @returns where they lie
 */
export function requireHandedOver(
  stateDb: StateDb,
  folder: DataFolder,
  batch: IssuedBatch,
  world: World,
): string {
  return isHandedOver(folder, batch) ? batchDir(folder, batch) : handOver(stateDb, folder, batch, world)
}

/** Whether the files of an issued batch are in their place. */
export const isHandedOver = (folder: DataFolder, batch: IssuedBatch) => isWholeBatch(batchDir(folder, batch))

/** Whether exactly these files lie in a folder, byte for byte. */
function isInPlace(dir: string, files: readonly BatchContent[]): boolean {
  if (!existsSync(dir) || readdirSync(dir).length !== files.length) return false
  return files.every(({name, content}) => {
    const path = join(dir, name)
    return existsSync(path) && readFileSync(path).equals(content)
  })
}
