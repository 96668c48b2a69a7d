import {existsSync, readdirSync} from 'node:fs'
import {join} from 'node:path'
import type {Failure} from '../errors.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {findJournalProfile} from './journal-profiles.ts'
import {readBatchManifest} from './manifest.ts'

/** The files of every batch that are not there or have another sha256 than their manifest says. */
export async function verifyBatches(
  folder: DataFolder,
): Promise<{batches: number; files: number; faults: Failure[]}> {
  const faults: Failure[] = []
  const batches = listFolders(folder.exports).flatMap((profile) =>
    listFolders(join(folder.exports, profile)).map((batch) => join(profile, batch)),
  )
  let count = 0
  for (const batch of batches) {
    const dir = join(folder.exports, batch)
    const [profile = '', id = ''] = batch.split('/')
    const next = describeRepair(profile, id)
    const files = readBatchManifest(dir)?.files
    if (!files) {
      const problem = `Batch '${batch}' has no manifest that can be read.`
      faults.push({code: 'BATCH_MANIFEST', problem, next})
      continue
    }
    count += files.length
    for (const {name, sha256} of files) {
      const path = join(dir, name)
      const isThere = existsSync(path)
      if (isThere && (await digestFile(path)) === sha256) continue
      const problem = `File '${name}' of batch '${batch}' ${isThere ? "has not the manifest's sha256" : 'is not there'}.`
      faults.push({code: 'BATCH_FILE', problem, next})
    }
  }
  return {batches: batches.length, files: count, faults}
}

/** What brings back a batch whose files are gone or damaged. */
export function describeRepair(profile: string, batchId: string): string {
  return findJournalProfile(profile)
    ? `Run \`loantape export --reissue ${batchId}\`: the files come out byte for byte the same.`
    : 'Export its release again the same way: the files come out byte for byte the same.'
}

/** Folders under their final name; one that is being written begins with a dot. */
function listFolders(dir: string): string[] {
  if (!existsSync(dir)) return []
  return readdirSync(dir, {withFileTypes: true})
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
    .map(({name}) => name)
    .sort()
}
