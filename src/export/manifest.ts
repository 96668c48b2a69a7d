import {existsSync, readFileSync, statSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {codeOf} from '../errors.ts'
import {parseJson} from '../json.ts'
import type {ReleaseManifest, SourceBridge} from '../release-manifest.ts'
import {GENERATOR} from '../version.ts'
import {digestFileNow} from '../warehouse/atomic-file.ts'
import type {JournalBridge} from './journal-bridge.ts'
import type {NeutralisedCell, WrittenFile} from './profile.ts'

/** One file of a batch; its control totals are for importers. */
export interface BatchFile extends WrittenFile {
  bytes: number
  sha256: string
}

/** What `manifest.json` of a batch says; it is written last, so a batch without it is not finished. */
export interface BatchManifest {
  schema_version: 1
  generator: string
  batch_id: string
  profile: string
  release_id: string
  as_of: string
  /** `YYYY-MM`; null for a batch that was not asked for by its period. */
  period: string | null
  /** Whether the month was over and seen to its end; null without a period. */
  period_complete: boolean | null
  known_at: string
  /** Stands for everything the release it was made from knew. */
  history_id: string | null
  currency: 'USD'
  time_zone: string
  files: BatchFile[]
  source: SourceBridge
  /** Batches this one takes the place of, wholly or in part: those it reverses entries of. */
  supersedes: string[]
  /** Of a journal: how it ties out to the journal of its month. */
  bridge?: JournalBridge
  /** The texts that got a `'` in front; only where that was asked for. */
  neutralised?: NeutralisedCell[]
}

/** What a batch says of the release it was made from. */
export type BatchSource = Pick<
  ReleaseManifest,
  'release_id' | 'as_of' | 'known_at' | 'history_id' | 'currency' | 'time_zone' | 'source'
>

/** The text of a batch's manifest. */
export function formatManifest(
  source: BatchSource,
  batch: Pick<BatchManifest, 'batch_id' | 'profile' | 'period' | 'period_complete' | 'files'> &
    Partial<Pick<BatchManifest, 'supersedes' | 'bridge' | 'neutralised'>>,
): string {
  const manifest: BatchManifest = {
    schema_version: 1,
    generator: GENERATOR,
    batch_id: batch.batch_id,
    profile: batch.profile,
    release_id: source.release_id,
    as_of: source.as_of,
    period: batch.period,
    period_complete: batch.period_complete,
    known_at: source.known_at,
    history_id: source.history_id,
    currency: source.currency,
    time_zone: source.time_zone,
    files: batch.files,
    source: source.source,
    supersedes: batch.supersedes ?? [],
    ...(batch.bridge && {bridge: batch.bridge}),
    ...(batch.neutralised && {neutralised: batch.neutralised}),
  }
  return `${JSON.stringify(manifest, null, 2)}\n`
}

/** A file of a batch as its manifest names it. */
type NamedFile = z.output<typeof namedFile>
const namedFile = z.object({name: z.string(), bytes: z.number(), sha256: z.string()})

const writtenManifest = z.object({batch_id: z.string(), files: z.array(namedFile)})

/** What a batch's manifest says of its id and its files; undefined when there is none that can be read. */
export function readBatchManifest(dir: string): {batch_id: string; files: NamedFile[]} | undefined {
  const path = join(dir, 'manifest.json')
  if (!existsSync(path)) return undefined
  return writtenManifest.safeParse(parseJson(readFileSync(path, 'utf8'))).data
}

/** Whether a folder holds a batch, every file of it there and byte for byte what the manifest says. */
export function isWholeBatch(dir: string): boolean {
  return readBatchManifest(dir)?.files.every((file) => isAsWritten(dir, file)) ?? false
}

/** Another process may take the file away in this very moment. */
function isAsWritten(dir: string, {name, bytes, sha256}: NamedFile): boolean {
  const path = join(dir, name)
  try {
    return statSync(path).size === bytes && digestFileNow(path) === sha256
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false
    throw error
  }
}
