import {existsSync, readdirSync, statSync} from 'node:fs'
import {join} from 'node:path'
import type {Failure} from '../errors.ts'
import {digestFile} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {TABLE_PROFILE_NAMES} from './batch.ts'
import {readBatchManifest} from './batch-manifest.ts'

/** Every batch of every profile, by name; one that is being written is none yet, its folder begins with a dot. */
function listBatchFolders({exports}: DataFolder): {profile: string; id: string; dir: string}[] {
  return listFolders(exports).flatMap((profile) =>
    listFolders(join(exports, profile)).map((id) => ({profile, id, dir: join(exports, profile, id)})),
  )
}

function listFolders(dir: string): string[] {
  if (!existsSync(dir)) return []
  return readdirSync(dir, {withFileTypes: true})
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.'))
    .map(({name}) => name)
    .sort()
}

/** The files of every batch that are not there or have another sha256 than their manifest says. */
export async function verifyBatches(
  folder: DataFolder,
): Promise<{batches: number; files: number; faults: Failure[]}> {
  const faults: Failure[] = []
  const batches = listBatchFolders(folder)
  let count = 0
  for (const {profile, id, dir} of batches) {
    const next = describeRepair(profile, id)
    const batch = `${profile}/${id}`
    const manifest = readBatchManifest(dir)
    if (!manifest) {
      const problem = `Batch '${batch}' has no manifest that can be read.`
      faults.push({code: 'BATCH_MANIFEST', problem, next})
      continue
    }
    count += manifest.files.length
    for (const {name, sha256} of manifest.files) {
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
  return TABLE_PROFILE_NAMES.includes(profile)
    ? 'Export its release again the same way: the files come out byte for byte the same.'
    : `Run \`loantape export --reissue ${batchId}\`: the files come out byte for byte the same.`
}

/**
 * The oldest batches of each profile beyond `kept`, as `profile/batch`. A batch of an accounting period is never among
 * them, nor one of a release that is needed, nor one whose manifest cannot be read: `verify` names that one.
 */
export function listSurplusBatches(folder: DataFolder, kept: number, needed: ReadonlySet<string>): string[] {
  const batches = listBatchFolders(folder).flatMap((batch) => {
    const written = statSync(join(batch.dir, 'manifest.json'), {throwIfNoEntry: false})
    return written ? [{...batch, writtenAt: written.mtimeMs}] : []
  })
  const surplus = [...Map.groupBy(batches, ({profile}) => profile).values()].flatMap((own) =>
    own.sort((a, b) => b.writtenAt - a.writtenAt || (a.id < b.id ? 1 : -1)).slice(kept),
  )
  return surplus.filter(({dir}) => isExpendable(dir, needed)).map(({profile, id}) => `${profile}/${id}`)
}

function isExpendable(dir: string, needed: ReadonlySet<string>): boolean {
  const manifest = readBatchManifest(dir)
  // What a torn one belongs to is not known, so it stays.
  return manifest !== undefined && (manifest.period ?? null) === null && !needed.has(manifest.release_id)
}
