import {constants, existsSync, mkdirSync, rmSync, statSync} from 'node:fs'
import {chmod, copyFile} from 'node:fs/promises'
import {join} from 'node:path'
import {z} from 'zod'
import {parseJson} from '../json.ts'
import {keepText, readKept} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {databasesOf, type ReleaseDatabases} from './manifest.ts'

/** The build that the next one can go on from. */
export type LastBuild = z.output<typeof lastBuildSchema>
const lastBuildSchema = z.object({
  release_id: z.string(),
  moment: z.object({asOf: z.string(), knownAt: z.string()}),
  history_id: z.string(),
  /** Digest of all else that a release depends on. */
  inputs: z.string(),
  /** What `buildModels` found of the models that deals share. */
  shared: z.record(z.string(), z.string()),
  /** Deals built since all of them were, as a share of all: their rows stand apart, and the file keeps the room of those they replaced. */
  rebuilt: z.number(),
  /** When a build last was whole or was compared with one, ISO 8601. */
  whole_at: z.string(),
  /** Size and time of the release's databases, which have checksums of their own. */
  files: z.string(),
})

const LIST = 'last-build.json'

/** Undefined where there is none: the folder of caches can be removed at any time. */
export function readLastBuild({cache}: DataFolder): LastBuild | undefined {
  return lastBuildSchema.safeParse(parseJson(readKept(join(cache, LIST)) ?? '')).data
}

/** Copies the tables of the last build, unless they are no longer what they were; says whether it did. */
export async function copyLastBuild(
  folder: DataFolder,
  last: LastBuild,
  to: ReleaseDatabases,
): Promise<boolean> {
  const from = databasesOf(join(folder.releases, last.release_id))
  if (!existsSync(from.database) || !existsSync(from.work) || stampOf(from) !== last.files) return false
  await copyDatabases(from, to)
  return true
}

/** Copies the tables of a build, to be changed. */
export async function copyDatabases(from: ReleaseDatabases, to: ReleaseDatabases): Promise<void> {
  for (const name of ['database', 'work'] as const) {
    await copyFile(from[name], to[name], constants.COPYFILE_FICLONE)
    await chmod(to[name], 0o600)
  }
}

function stampOf({database, work}: ReleaseDatabases): string {
  return [database, work]
    .map((file) => statSync(file, {bigint: true}))
    .map(({size, mtimeNs}) => `${size} ${mtimeNs}`)
    .join(', ')
}

/** Notes a build that the next can go on from. */
export function noteLastBuild(
  {cache}: DataFolder,
  last: Omit<LastBuild, 'files'>,
  files: ReleaseDatabases,
): void {
  mkdirSync(cache, {recursive: true, mode: 0o700})
  keepText(join(cache, LIST), JSON.stringify({...last, files: stampOf(files)}))
}

/** Notes that a build was compared with a whole one, and is the same. */
export function noteWhole(folder: DataFolder, releaseId: string, at: Date): void {
  const last = readLastBuild(folder)
  if (last?.release_id !== releaseId) return
  keepText(join(folder.cache, LIST), JSON.stringify({...last, whole_at: at.toISOString()}))
}

/** The next build is whole. */
export function forgetLastBuild({cache}: DataFolder): void {
  rmSync(join(cache, LIST), {force: true})
}
