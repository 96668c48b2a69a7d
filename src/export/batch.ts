import {hash} from 'node:crypto'
import {statSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {type LoantapeError, newError} from '../errors.ts'
import {expectOneOf} from '../nearest.ts'
import type {ReleaseManifest} from '../release-manifest.ts'
import type {TiedTerm} from '../types.ts'
import {digestFile, syncToDisk} from '../warehouse/atomic-file.ts'
import {type DataFolder, requireExports} from '../warehouse/data-folder.ts'
import {openDatabase} from '../warehouse/database.ts'
import {beginBatch} from './batch-folder.ts'
import {type BatchFile, formatManifest, isWholeBatch, readBatchManifest} from './batch-manifest.ts'
import {readColumnContract, requireContract, storeContract} from './column-contract.ts'
import {writeCsv} from './csv.ts'
import {writeParquet} from './parquet.ts'
import type {ExportOptions, ExportSource, ProfileWriter, WrittenFile} from './profile.ts'
import {createXlsxWriter} from './xlsx.ts'

/** How a kind of export writes tables. */
interface TableProfile {
  write: ProfileWriter
  /** The options that change its files. */
  options: readonly (keyof ExportOptions)[]
  /** Whether columns may only change when that is accepted: importers map them by hand. */
  hasContract: boolean
}

/** The kinds of export, by name. */
const PROFILES: Record<string, TableProfile> = {
  csv: {write: writeCsv, options: ['lineEnding', 'isSpreadsheetSafe'], hasContract: true},
  parquet: {write: writeParquet, options: ['partition'], hasContract: false},
  xlsx: {write: createXlsxWriter(), options: [], hasContract: false},
}

/** The names of the kinds of export that write tables. */
export const TABLE_PROFILE_NAMES: readonly string[] = Object.keys(PROFILES)

/**
 * How the tables of a profile are written.
 *
 * @param names what the error offers
 * @throws ConfigError `UNKNOWN_NAME` naming what there is
 */
export function requireProfile(name: string, names: readonly string[] = TABLE_PROFILE_NAMES): TableProfile {
  const profile = Object.hasOwn(PROFILES, name) ? PROFILES[name] : undefined
  if (profile) return profile
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
export interface BatchRequest {
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
