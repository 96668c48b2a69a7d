import {hash} from 'node:crypto'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import {basename, dirname, join} from 'node:path'
import {z} from 'zod'
import {codeOf, type Failure, type LoantapeError, newError} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {removeAbandoned, WRITER_MARK, WRITING} from '../core/process.ts'
import {expectOneOf} from '../core/text.ts'
import type {TiedTerm} from '../core/types.ts'
import {type DataFolder, requireExports} from '../store/data-folder.ts'
import {type Database, openDatabase} from '../store/database.ts'
import {digestFile, digestFileNow, findFileFault, moveIntoPlace, syncToDisk} from '../store/files.ts'
import type {Release, ReleaseManifest} from '../store/release.ts'
import {readColumns} from '../store/sql.ts'
import {
  type ExportOptions,
  type NeutralisedCell,
  type ProfileWriter,
  TABLE_PROFILE_NAMES,
  type TableProfileName,
  type WrittenFile,
  writeCsv,
  writeParquet,
} from './table-files.ts'
import {createXlsxWriter} from './xlsx.ts'

/** The month a batch was requested for. */
export interface PeriodMark {
  /** `YYYY-MM` */
  period: string
  /** Whether the month was over and a walk had covered its end. */
  isComplete: boolean
}

/** The result of an export. */
export interface BatchResult {
  profile: string
  /** Journals only, `YYYY-MM`. */
  period?: string
  batch_id: string
  dir: string
  files: number
  rows: number
  bytes: number
  /** `empty`: a journal with nothing to book; `batch_id` and `dir` are then empty. */
  outcome: 'written' | 'unchanged' | 'empty'
  /** Journals only: the terms of the month's roll-forward, and how much of each is booked. */
  terms?: readonly TiedTerm[]
}

interface BatchRequest {
  profile: string
  /** All published tables by default. */
  tables?: readonly string[] | undefined
  period?: PeriodMark | undefined
  options?: ExportOptions | undefined
  /** Accepts columns that differ from the previous batch. */
  acceptsColumns?: boolean
}

/**
 * Writes tables of a release as one batch, the manifest last. The folder has a temporary name until everything is on disk. A
 * complete batch is not written again.
 *
 * @throws ConfigError `UNKNOWN_NAME`, `NOT_WRITABLE`; GuardError `EXPORT_COLUMNS`
 */
export async function writeBatch(
  folder: DataFolder,
  source: Release,
  request: BatchRequest,
): Promise<BatchResult> {
  const {profile, period} = request
  const {manifest} = source
  const {write, hasContract, options: used} = requireProfile(profile)
  const options = Object.fromEntries(
    Object.entries(request.options ?? {}).filter(([name]) => used.some((known) => known === name)),
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
    const isAccepted = request.acceptsColumns ?? false
    const keepColumns = hasContract && (await checkColumns(db, parent, {tables, published, isAccepted}))
    const written = await write(db, source, {tables, options}, batch.dir)
    const files = await Array.fromAsync(written.files, (file) => measureFile(batch.dir, file))
    const content = {
      ...written,
      batch_id: batchId,
      profile,
      period: period?.period ?? null,
      period_complete: period?.isComplete ?? null,
      files,
    }
    const path = join(batch.dir, 'manifest.json')
    writeFileSync(path, formatManifest(manifest, content))
    syncToDisk(path)
    if (keepColumns) keepColumns()
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

/** How a profile writes tables. */
interface TableProfile {
  write: ProfileWriter
  /** The options that change its files. */
  options: readonly (keyof ExportOptions)[]
  /** Whether changed columns must be accepted first, because importers map them by hand. */
  hasContract: boolean
}

const PROFILES: Record<TableProfileName, TableProfile> = {
  csv: {write: writeCsv, options: ['lineEnding', 'isSpreadsheetSafe'], hasContract: true},
  parquet: {write: writeParquet, options: ['partition'], hasContract: false},
  xlsx: {write: createXlsxWriter(), options: [], hasContract: false},
}

/**
 * The profile of this name.
 *
 * @param names the names that the error lists
 * @throws ConfigError `UNKNOWN_NAME`
 */
export function requireProfile(name: string, names: readonly string[] = TABLE_PROFILE_NAMES): TableProfile {
  const profile = TABLE_PROFILE_NAMES.find((known) => known === name)
  if (profile) return PROFILES[profile]
  throw unknownName('Profile', name, names)
}

function unknownName(kind: string, name: string, known: readonly string[]): LoantapeError {
  return newError('UNKNOWN_NAME', `${kind} '${name}' on the command line: ${expectOneOf(name, known)}.`)
}

/** `<as_of>-<12 hex>`: the same tables of the same release with the same options get the same id. */
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

const contractSchema = z.record(z.string(), z.array(z.string()))

/**
 * Refuses a batch in which importers would not find the columns they know: one was added, removed, moved or changed its type, or a
 * table of the previous batch is no longer published.
 *
 * @param dir the profile's; the contract is beside it, because it holds only batches
 * @returns stores the columns of this batch; published tables not in it keep theirs
 * @throws GuardError `EXPORT_COLUMNS` naming table and columns; ConfigError `EXPORT_CONTRACT`
 */
async function checkColumns(
  db: Database,
  dir: string,
  {tables, published, isAccepted}: {tables: readonly string[]; published: string[]; isAccepted: boolean},
): Promise<() => void> {
  const path = join(dirname(dir), `.${basename(dir)}-columns.json`)
  const written = existsSync(path) ? readFileSync(path, 'utf8') : '{}'
  const before = contractSchema.safeParse(parseJson(written)).data
  if (!before)
    throw newError(
      'EXPORT_CONTRACT',
      `Column contract '${path}' cannot be read: expected JSON of tables and their columns.`,
    )
  const now: typeof before = {}
  for (const table of tables)
    now[table] = (await readColumns(db, `release.${table}`)).map(({name, type}) => `${name} ${type}`)
  const changes = Object.entries(before).flatMap(([table, columns]) => {
    if (now[table]) return describeChange(table, columns, now[table])
    return published.includes(table) ? [] : [`'${table}' is no longer published`]
  })
  if (changes.length > 0 && !isAccepted)
    throw newError(
      'EXPORT_COLUMNS',
      `Columns in '${dir}' would change: ${changes.join('; ')}: expected those of the previous batch.`,
    )
  return () => {
    const columns = {...before, ...now}
    const kept = published.toSorted().flatMap((table) => (columns[table] ? [[table, columns[table]]] : []))
    const text = `${JSON.stringify(Object.fromEntries(kept), null, 2)}\n`
    if (text === written) return
    // Named like an unfinished batch, so that the next batch removes it after a crash.
    const temporary = join(dir, `${WRITING}columns${WRITER_MARK}`)
    writeFileSync(temporary, text)
    moveIntoPlace(temporary, path)
  }
}

function describeChange(table: string, before: readonly string[], now: readonly string[]): string[] {
  if (before.join() === now.join()) return []
  const gone = before.filter((column) => !now.includes(column))
  const come = now.filter((column) => !before.includes(column))
  const words = [
    gone.length > 0 && `without ${gone.join(', ')}`,
    come.length > 0 && `with ${come.join(', ')}`,
    gone.length + come.length === 0 && 'in another order',
  ]
  return [`'${table}' ${words.filter(Boolean).join(', ')}`]
}

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
  const {generator, release_id, as_of, known_at, history_id, went_on, currency, time_zone, source} = release
  const {files, supersedes = [], bridge, neutralised, ...named} = batch
  const known = {release_id, as_of, known_at, history_id, went_on, currency, time_zone}
  const manifest = {
    schema_version: 1,
    generator,
    ...named,
    ...known,
    files,
    source,
    supersedes,
    bridge,
    neutralised,
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

/** The finished batches of every profile, by name; unfinished ones begin with a dot. */
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

/** Compares the files of every batch with its manifest. */
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
      const problem = `Batch '${batch}' has no readable manifest.`
      faults.push({code: 'BATCH_MANIFEST', problem, next})
      continue
    }
    count += manifest.files.length
    for (const file of manifest.files) {
      const fault = await findFileFault(join(dir, file.name), file.sha256)
      if (fault === undefined) continue
      faults.push({code: 'BATCH_FILE', problem: `File '${file.name}' of batch '${batch}' ${fault}.`, next})
    }
  }
  return {batches: batches.length, files: count, faults}
}

/** How to get back a batch whose files are missing or damaged. */
export function describeRepair(profile: string, batchId: string): string {
  return TABLE_PROFILE_NAMES.some((name) => name === profile)
    ? 'Export its release again the same way: the files come out byte for byte the same.'
    : `Run \`loantape export --reissue ${batchId}\`: the files come out byte for byte the same.`
}

/**
 * The oldest batches of each profile beyond the newest `kept`, as `profile/batch`. Batches of an accounting period, of a needed
 * release, or without a readable manifest (which `verify` reports) are never listed.
 */
export function listSurplusBatches(folder: DataFolder, kept: number, needed: ReadonlySet<string>): string[] {
  const batches = listBatchFolders(folder).flatMap((batch) => {
    const written = statSync(join(batch.dir, 'manifest.json'), {throwIfNoEntry: false})
    return written ? [{...batch, writtenAt: written.mtimeMs}] : []
  })
  const surplus = [...Map.groupBy(batches, ({profile}) => profile).values()].flatMap((own) =>
    own.sort((a, b) => b.writtenAt - a.writtenAt || (a.id < b.id ? 1 : -1)).slice(kept),
  )
  return surplus.flatMap(({profile, id, dir}) => {
    const manifest = readBatchManifest(dir)
    const isKept = !manifest || (manifest.period ?? null) !== null || needed.has(manifest.release_id)
    return isKept ? [] : [`${profile}/${id}`]
  })
}
