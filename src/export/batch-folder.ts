import {existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync} from 'node:fs'
import {basename, dirname, join} from 'node:path'
import {z} from 'zod'
import {codeOf} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {removeAbandoned, WRITER_MARK, WRITING} from '../core/process.ts'
import {digestFileNow, moveIntoPlace} from '../store/files.ts'
import type {ReleaseManifest} from '../store/release.ts'
import type {NeutralisedCell, WrittenFile} from './table-files.ts'

/** One file of a batch. */
export interface BatchFile extends WrittenFile {
  bytes: number
  sha256: string
}

/** The manifest of a batch, without what it copies from the release. */
interface BatchContent {
  batch_id: string
  profile: string
  /** `YYYY-MM`; null for a batch that was not requested by period. */
  period: string | null
  /** Whether the month was over and a walk had covered its end; null without a period. */
  period_complete: boolean | null
  files: readonly BatchFile[]
  /** Batches whose entries this one reverses, wholly or in part. */
  supersedes?: readonly string[]
  /** Journals only: how the batch ties out to the journal of its month. */
  bridge?: object
  /** Spreadsheet-safe exports only: the texts that got a leading `'`. */
  neutralised?: readonly NeutralisedCell[]
}

/**
 * The text of a batch's `manifest.json`, the same whenever it is written. It is written last: a batch without it is unfinished.
 */
export function formatManifest(release: ReleaseManifest, batch: BatchContent): string {
  const manifest = {
    schema_version: 1,
    generator: release.generator,
    batch_id: batch.batch_id,
    profile: batch.profile,
    release_id: release.release_id,
    as_of: release.as_of,
    period: batch.period,
    period_complete: batch.period_complete,
    known_at: release.known_at,
    history_id: release.history_id,
    went_on: release.went_on,
    currency: release.currency,
    time_zone: release.time_zone,
    files: batch.files,
    source: release.source,
    supersedes: batch.supersedes ?? [],
    bridge: batch.bridge,
    neutralised: batch.neutralised,
  }
  return `${JSON.stringify(manifest, null, 2)}\n`
}

const namedFile = z.object({name: z.string(), bytes: z.number(), sha256: z.string()})
const writtenManifest = z.object({
  batch_id: z.string(),
  release_id: z.string(),
  period: z.string().nullish(),
  files: z.array(namedFile),
})

/** Reads a batch's manifest; undefined when it is missing or damaged. */
export function readBatchManifest(dir: string): z.output<typeof writtenManifest> | undefined {
  const path = join(dir, 'manifest.json')
  if (!existsSync(path)) return undefined
  return writtenManifest.safeParse(parseJson(readFileSync(path, 'utf8'))).data
}

/**
 * Whether a folder holds a batch whose files all match its manifest.
 *
 * @param text its manifest's; any by default
 */
export function isWholeBatch(dir: string, text?: string): boolean {
  const manifest = readBatchManifest(dir)
  if (!manifest || (text !== undefined && readFileSync(join(dir, 'manifest.json'), 'utf8') !== text))
    return false
  return manifest.files.every((file) => isAsWritten(dir, file))
}

function isAsWritten(dir: string, {name, bytes, sha256}: z.output<typeof namedFile>): boolean {
  const path = join(dir, name)
  try {
    return statSync(path).size === bytes && digestFileNow(path) === sha256
  } catch (error) {
    // Another process may remove the file meanwhile.
    if (codeOf(error) === 'ENOENT') return false
    throw error
  }
}

/** A batch that is being written; disposing it removes an unfinished one. */
interface BatchFolder extends Disposable {
  /** The temporary folder for its files. */
  readonly dir: string
  /**
   * Renames the folder to its final name and replaces what has that name. A complete batch of that name stays: another process
   * has written it, and somebody may be reading it.
   */
  finish(isWhole: () => boolean): void
}

/** Begins a batch under a temporary name beside its final one, and removes what crashed exports left there. */
export function beginBatch(final: string): BatchFolder {
  const parent = dirname(final)
  removeAbandoned(parent, WRITING)
  const dir = join(parent, `${WRITING}${basename(final)}${WRITER_MARK}`)
  const aside = join(parent, `${WRITING}${basename(final)}-before${WRITER_MARK}`)
  const remove = () => {
    for (const path of [dir, aside]) rmSync(path, {recursive: true, force: true})
  }
  remove()
  mkdirSync(dir, {recursive: true})
  return {
    dir,
    finish(isWhole) {
      if (isWhole()) return
      try {
        if (existsSync(final)) renameSync(final, aside)
        moveIntoPlace(dir, final)
      } catch (error) {
        if (!['ENOENT', 'ENOTEMPTY', 'EEXIST'].includes(codeOf(error)) || !isWhole()) throw error
      }
    },
    [Symbol.dispose]: remove,
  }
}

/** Removes a batch. It is renamed first, so that a half-removed batch counts as unfinished. */
export function removeBatch(final: string): void {
  const aside = join(dirname(final), `${WRITING}${basename(final)}-before${WRITER_MARK}`)
  renameSync(final, aside)
  rmSync(aside, {recursive: true, force: true})
}
