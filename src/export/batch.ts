import {hash} from 'node:crypto'
import {statSync} from 'node:fs'
import {writeFile} from 'node:fs/promises'
import {dirname, join} from 'node:path'
import {type ErrorCode, type LoantapeError, newError} from '../errors.ts'
import {digestFile, syncToDisk} from '../warehouse/atomic-file.ts'
import {type DataFolder, requireExports} from '../warehouse/data-folder.ts'
import {openDatabase} from '../warehouse/database.ts'
import {beginBatch} from './batch-folder.ts'
import {type ColumnContract, requireContract, storeContract} from './column-contract.ts'
import {readColumns} from './columns.ts'
import {writeCsv} from './csv.ts'
import {JOURNAL_NAMES} from './journal-profiles.ts'
import {type BatchFile, formatManifest, isWholeBatch, readBatchManifest} from './manifest.ts'
import {writeParquet} from './parquet.ts'
import type {ExportOptions, ExportSource, NeutralisedCell, ProfileWriter} from './profile.ts'
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

/** The names of the kinds of export. */
export const PROFILE_NAMES: readonly string[] = [...TABLE_PROFILE_NAMES, ...JOURNAL_NAMES]

/**
 * How the tables of a profile are written.
 *
 * @throws ConfigError `EXPORT_PROFILE` naming what there is
 */
export function requireProfile(name: string): TableProfile {
  const profile = Object.hasOwn(PROFILES, name) ? PROFILES[name] : undefined
  if (profile) return profile
  throw unknownName('EXPORT_PROFILE', 'Profile', name, PROFILE_NAMES)
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
 * @throws ConfigError `EXPORT_PROFILE`, `EXPORT_TABLE` naming what there is, `EXPORTS_NOT_WRITABLE`; GuardError
 * `EXPORT_COLUMNS`
 */
export async function writeBatch(
  folder: DataFolder,
  source: ExportSource,
  request: BatchRequest,
): Promise<BatchResult> {
  const {profile} = request
  const {hasContract, options: taken} = requireProfile(profile)
  const options = pickOptions(request.options ?? {}, taken)
  const published = source.manifest.tables.map(({name}) => name)
  const unknown = request.tables?.find((table) => !published.includes(table))
  if (unknown !== undefined) throw unknownName('EXPORT_TABLE', 'Table', unknown, published)
  const tables = published.filter((name) => request.tables?.includes(name) ?? true)

  const batchId = batchIdOf(source, {...request, options, tables})
  const parent = join(folder.exports, profile)
  const final = join(parent, batchId)
  const isWritten = isWholeBatch(final)
  if (!isWritten) {
    requireExports(folder, profile)
    using batch = beginBatch(final)
    const written = await writeTables(source, {...request, options, tables, published, parent}, batch.dir)
    const {period: asked} = request
    const path = join(batch.dir, 'manifest.json')
    const manifest = formatManifest(source.manifest, {
      batch_id: batchId,
      profile,
      period: asked?.period ?? null,
      period_complete: asked?.isComplete ?? null,
      ...written,
    })
    await writeFile(path, manifest)
    syncToDisk(path)
    if (hasContract) storeContract(parent, written.contract, published)
    batch.finish(() => isWholeBatch(final))
  }
  const files = readBatchManifest(final)?.files ?? []
  return {
    profile,
    batch_id: batchId,
    dir: final,
    files: files.length,
    rows: source.manifest.tables
      .filter(({name}) => tables.includes(name))
      .reduce((sum, {rows}) => sum + rows, 0),
    bytes: files.reduce((sum, {bytes}) => sum + bytes, 0),
    outcome: isWritten ? 'unchanged' : 'written',
  }
}

function pickOptions(options: ExportOptions, taken: TableProfile['options']): ExportOptions {
  return Object.fromEntries(Object.entries(options).filter(([name]) => taken.some((known) => known === name)))
}

/** `<as_of>-<12 hex>`: the same tables of the same release, written the same way, are the same batch. */
function batchIdOf({manifest}: ExportSource, request: BatchRequest): string {
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

async function writeTables(
  source: ExportSource,
  request: Required<Pick<BatchRequest, 'profile' | 'tables' | 'options'>> &
    BatchRequest & {published: readonly string[]; parent: string},
  dir: string,
): Promise<{files: BatchFile[]; neutralised?: NeutralisedCell[]; contract: ColumnContract}> {
  const {profile, tables, published, parent} = request
  await using db = await openDatabase({attach: [{path: source.database, alias: 'release', readOnly: true}]})
  const contract: ColumnContract = {}
  const {write, hasContract} = requireProfile(profile)
  if (hasContract) {
    for (const table of tables) {
      contract[table] = (await readColumns(db, table)).map(({name, type}) => `${name} ${type}`)
    }
    if (!request.acceptsColumns) requireContract(parent, contract, published)
  }
  const written = await write(db, source, request, dir)
  const files: BatchFile[] = []
  for (const file of written.files) {
    const path = join(dir, file.name)
    syncToDisk(path)
    syncToDisk(dirname(path))
    files.push({...file, bytes: statSync(path).size, sha256: await digestFile(path)})
  }
  return {...written, files, contract}
}

function unknownName(code: ErrorCode, kind: string, name: string, known: readonly string[]): LoantapeError {
  return newError(code, `${kind} '${name}' on the command line: expected one of ${known.join(', ')}.`)
}
