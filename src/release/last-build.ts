import {constants, existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync} from 'node:fs'
import {chmod, copyFile} from 'node:fs/promises'
import {join} from 'node:path'
import {z} from 'zod'
import {parseJson} from '../json.ts'
import {digestFile, writeFileAtomically} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

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
  /** Size and time of the release's database, which has checksums of its own. */
  database: z.string(),
  /** Sha256 of the `work` tables beside this. */
  carried: z.string(),
})

const LIST = 'last-build.json'
const CARRIED = 'last-build.duckdb'

/** Undefined where there is none: the folder of caches can be removed at any time. */
export function readLastBuild({cache}: DataFolder): LastBuild | undefined {
  const path = join(cache, LIST)
  return existsSync(path) ? lastBuildSchema.safeParse(parseJson(readFileSync(path, 'utf8'))).data : undefined
}

/**
 * Copies the tables of the last build, to be changed.
 *
 * @returns whether they are still what they were
 */
export async function copyLastBuild(
  folder: DataFolder,
  last: LastBuild,
  to: {database: string; carried: string},
): Promise<boolean> {
  const database = join(folder.releases, last.release_id, 'portfolio.duckdb')
  const carried = join(folder.cache, CARRIED)
  if (!existsSync(database) || !existsSync(carried) || stampOf(database) !== last.database) return false
  await copyFile(database, to.database, constants.COPYFILE_FICLONE)
  await chmod(to.database, 0o600)
  await copyFile(carried, to.carried, constants.COPYFILE_FICLONE)
  return (await digestFile(to.carried)) === last.carried
}

function stampOf(file: string): string {
  const {size, mtimeNs} = statSync(file, {bigint: true})
  return `${size} ${mtimeNs}`
}

/** Keeps a build for the next; the file of its `work` tables is moved. */
export async function keepLastBuild(
  {cache}: DataFolder,
  last: Omit<LastBuild, 'database' | 'carried'>,
  files: {database: string; carried: string},
): Promise<void> {
  const [database, carried] = [stampOf(files.database), await digestFile(files.carried)]
  mkdirSync(cache, {recursive: true, mode: 0o700})
  renameSync(files.carried, join(cache, CARRIED))
  writeFileAtomically(join(cache, LIST), JSON.stringify({...last, database, carried}))
}

/** Notes that a build was compared with a whole one, and is the same. */
export function noteWhole(folder: DataFolder, releaseId: string, at: Date): void {
  const last = readLastBuild(folder)
  if (last?.release_id !== releaseId) return
  writeFileAtomically(join(folder.cache, LIST), JSON.stringify({...last, whole_at: at.toISOString()}))
}

/** The next build is whole. */
export function forgetLastBuild({cache}: DataFolder): void {
  for (const file of [LIST, CARRIED]) rmSync(join(cache, file), {force: true})
}
