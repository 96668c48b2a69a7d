import {hash} from 'node:crypto'
import {existsSync, readdirSync, statSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {type Failure, type LoantapeError, newError} from '../core/errors.ts'
import {expectOneOf} from '../core/text.ts'
import type {TiedTerm} from '../core/types.ts'
import {type DataFolder, requireExports} from '../store/data-folder.ts'
import {openDatabase} from '../store/database.ts'
import {digestFile, syncToDisk} from '../store/files.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {type BatchFile, beginBatch, formatManifest, isWholeBatch, readBatchManifest} from './batch-folder.ts'
import {writeCsv} from './csv.ts'
import {writeParquet} from './parquet.ts'
import {
  type ExportOptions,
  type ExportSource,
  type ProfileWriter,
  readColumnContract,
  requireContract,
  storeContract,
  TABLE_PROFILE_NAMES,
  type TableProfileName,
  type WrittenFile,
} from './profile.ts'
import {createXlsxWriter} from './xlsx.ts'

/** How a kind of export writes tables. */
interface TableProfile {
  write: ProfileWriter
  /** The options that change its files. */
  options: readonly (keyof ExportOptions)[]
  /** Whether columns may only change when that is accepted: importers map them by hand. */
  hasContract: boolean
}

/** The kinds of export that write tables, by name. */
const PROFILES: Record<TableProfileName, TableProfile> = {
  csv: {write: writeCsv, options: ['lineEnding', 'isSpreadsheetSafe'], hasContract: true},
  parquet: {write: writeParquet, options: ['partition'], hasContract: false},
  xlsx: {write: createXlsxWriter(), options: [], hasContract: false},
}

/**
 * How the tables of a profile are written.
 *
 * @param names what the error offers
 * @throws ConfigError `UNKNOWN_NAME` naming what there is
 */
export function requireProfile(name: string, names: readonly string[] = TABLE_PROFILE_NAMES): TableProfile {
  const profile = TABLE_PROFILE_NAMES.find((known) => known === name)
  if (profile) return PROFILES[profile]
  throw unknownName('Profile', name, names)
}

/** The month a batch was asked for by. */
export interface PeriodMark {
  /** `YYYY-MM` */
  period: string
  /** Whether the month was over and seen to its end. */
  isComplete: boolean
}

/** What an export came to. */
export interface BatchResult {
  profile: string
  /** Of a journal, `YYYY-MM`. */
  period?: string
  batch_id: string
  dir: string
  files: number
  rows: number
  bytes: number
  /** `empty`: a journal with nothing to book, which has no batch: `batch_id` and `dir` are empty. */
  outcome: 'written' | 'unchanged' | 'empty'
  /** Of a journal: the terms of the month's roll-forward, what of each it books, and by name what it does not. */
  terms?: readonly TiedTerm[]
}

/** Which batch to write. */
interface BatchRequest {
  profile: string
  tables?: readonly string[]
  period?: PeriodMark
  options?: ExportOptions
  /** Whether columns other than those of the batch before are accepted. */
  acceptsColumns?: boolean
}

/**
 * Writes one batch: every published table of a release, or those named, and the manifest last, under a temporary
 * name that becomes the batch's own when all of it is on the disk. A batch that is there already, byte for byte, is not
 * written again.
 *
 * @throws ConfigError `UNKNOWN_NAME` naming what there is, `NOT_WRITABLE`; GuardError
 * `EXPORT_COLUMNS`
 */
export async function writeBatch(
  folder: DataFolder,
  source: ExportSource,
  request: BatchRequest,
): Promise<BatchResult> {
  const {profile, period} = request
  const {manifest} = source
  const {write, hasContract, options: taken} = requireProfile(profile)
  const options = Object.fromEntries(
    Object.entries(request.options ?? {}).filter(([name]) => taken.some((known) => known === name)),
  )
  const published = manifest.tables.map(({name}) => name)
  const unknown = request.tables?.find((table) => !published.includes(table))
  if (unknown !== undefined) throw unknownName('Table', unknown, published)
  const tables = published.filter((name) => request.tables?.includes(name) ?? true)

  const batchId = batchIdOf(manifest, {...request, options, tables})
  const parent = join(folder.exports, profile)
  const final = join(parent, batchId)
  const isWritten = isWholeBatch(final)
  if (!isWritten) {
    requireExports(folder, profile)
    using batch = beginBatch(final)
    await using db = await openDatabase({attach: [{path: source.database, alias: 'release', readOnly: true}]})
    const contract = hasContract ? await readColumnContract(db, tables) : {}
    if (!request.acceptsColumns) requireContract(parent, contract, published)
    const written = await write(db, source, {tables, options}, batch.dir)
    const files = await Array.fromAsync(written.files, (file) => measureFile(batch.dir, file))
    const path = join(batch.dir, 'manifest.json')
    writeFileSync(
      path,
      formatManifest(manifest, {
        ...written,
        batch_id: batchId,
        profile,
        period: period?.period ?? null,
        period_complete: period?.isComplete ?? null,
        files,
      }),
    )
    syncToDisk(path)
    if (hasContract) storeContract(parent, contract, published)
    batch.finish(() => isWholeBatch(final))
  }
  const files = readBatchManifest(final)?.files ?? []
  return {
    profile,
    batch_id: batchId,
    dir: final,
    files: files.length,
    rows: manifest.tables.filter(({name}) => tables.includes(name)).reduce((sum, {rows}) => sum + rows, 0),
    bytes: files.reduce((sum, {bytes}) => sum + bytes, 0),
    outcome: isWritten ? 'unchanged' : 'written',
  }
}

/** `<as_of>-<12 hex>`: the same tables of the same release, written the same way, are the same batch. */
function batchIdOf(manifest: ReleaseManifest, request: BatchRequest): string {
  const {lineEnding, isSpreadsheetSafe, partition} = request.options ?? {}
  const words = [
    lineEnding === 'crlf' && 'crlf',
    isSpreadsheetSafe && 'spreadsheet-safe',
    partition && `in folders by ${partition}`,
    request.period?.period,
    request.period && (request.period.isComplete ? 'complete' : 'unfinished'),
  ].filter((word) => typeof word === 'string')
  const parts = [request.profile, manifest.release_id, ...(request.tables ?? []), ...words]
  return `${manifest.as_of}-${hash('sha256', parts.join('\n')).slice(0, 12)}`
}

async function measureFile(dir: string, file: WrittenFile): Promise<BatchFile> {
  const path = join(dir, file.name)
  syncToDisk(path)
  syncToDisk(dirname(path))
  return {...file, bytes: statSync(path).size, sha256: await digestFile(path)}
}

function unknownName(kind: string, name: string, known: readonly string[]): LoantapeError {
  return newError('UNKNOWN_NAME', `${kind} '${name}' on the command line: ${expectOneOf(name, known)}.`)
}

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
  return TABLE_PROFILE_NAMES.some((name) => name === profile)
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
