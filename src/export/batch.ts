import {existsSync, lstatSync, readFileSync, statSync} from 'node:fs'
import {basename, dirname, join, relative} from 'node:path'
import {setImmediate} from 'node:timers/promises'
import {z} from 'zod'
import {findJournalProfile, type RenamedAccount, type TiedTerm} from '../accounting/profiles.ts'
import type {Fault} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {type DataFolder, listNames} from '../store/data-folder.ts'
import {type Database, quoteName} from '../store/database.ts'
import {findFileFault, isFile} from '../store/files.ts'
import type {Release, ReleaseManifest} from '../store/release.ts'
import {hasExactSum, readColumns} from '../store/sql.ts'
import type {Dialect} from './dialect.ts'

export interface PeriodMark {
  /** `YYYY-MM` */
  period: string
  /** The month was over and a walk had covered its end. */
  isComplete: boolean
}

export interface BatchResult {
  profile: string
  /** Journals only, `YYYY-MM`. */
  period?: string
  batch_id: string
  dir: string
  files: number
  rows: number
  bytes: number
  /**
   * `empty`: a journal with nothing to book; `left`: what is new from this month on, which is later than the one asked for, could not
   * be issued, `because`, and the next export makes up for it. `batch_id` and `dir` are then empty.
   */
  outcome: 'written' | 'unchanged' | 'empty' | 'left'
  because?: {code: string; message: string}
  /** Journals only: the terms of the month's roll-forward, and how much of each is booked. */
  terms?: readonly TiedTerm[]
  /** Journals only: accounts that the importer knows by name and that were renamed. */
  renamed?: readonly RenamedAccount[]
}

/** Media types by file extension. */
export const CONTENT_TYPES: ReadonlyMap<string, string> = new Map([
  ['.csv', 'text/csv; charset=utf-8'],
  ['.xlsx', 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet'],
  ['.json', 'application/json'],
  ['.parquet', 'application/vnd.apache.parquet'],
])

export type NamedBatch = Pick<BatchResult, 'profile' | 'batch_id' | 'dir'>

/**
 * Rows in the order of the table's Parquet file. That must be given: the database keeps changed rows at the end. Rows that share
 * their place are in the order of the database: otherwise, each query would have them in another.
 */
export function inOrder({manifest}: Pick<Release, 'manifest'>, table: string): string {
  const order = manifest.tables.find(({name}) => name === table)?.order ?? []
  return `(from release.${table} order by ${[...order.map(quoteName), 'rowid'].join(', ')})`
}

export interface WrittenFile extends ControlTotals {
  /** Relative to the batch's folder, with `/`. */
  name: string
  /** Workbooks only: the totals of each table; the workbook's own `columns` and sums are empty. */
  sheets?: (ControlTotals & {table: string})[]
}

/** A text that was given a leading `'`. */
export interface NeutralisedCell {
  file: string
  /** From 1, without the header. */
  row: number
  column: string
}

export interface WriteRequest {
  /** Has the release attached as `release`. */
  db: Database
  source: Release
  tables: readonly string[]
  /** CSV only. */
  dialect: Dialect
  /** Parquet only: one file for each month of a table's date. */
  partition?: 'month' | undefined
  dir: string
}

export interface Written {
  files: WrittenFile[]
  /** CSV only. */
  dialect?: Dialect
  /** Only in a spreadsheet-safe dialect. */
  neutralised?: NeutralisedCell[]
}

/** Importers compare them. */
export type ControlTotals = z.output<typeof totalsRow> & {columns: string[]}
const totalsRow = z.object({
  rows: z.coerce.number(),
  /** The sum of the column `loan_amount` or `amount`; null if neither is an exact number. */
  sum_amount: z.string().nullable(),
  /** The sums of the columns `debit` and `credit`; null for one that is no exact number. */
  sum_debit: z.string().nullable(),
  sum_credit: z.string().nullable(),
})

export async function readControlTotals(db: Database, table: string, where = 'true'): Promise<ControlTotals> {
  const columns = await readColumns(db, `release.${table}`)
  const exact = columns.filter(hasExactSum).map(({name}) => name)
  const sumOf = (...names: string[]) => {
    const name = names.find((known) => exact.includes(known))
    return name === undefined ? 'null::varchar' : `cast(sum(${quoteName(name)}) as varchar)`
  }
  const totals = await db.one(
    totalsRow,
    `select count(*) as rows, ${sumOf('loan_amount', 'amount')} as sum_amount, ${sumOf('debit')} as sum_debit,
       ${sumOf('credit')} as sum_credit
     from release.${table} where ${where}`,
  )
  return {...totals, columns: columns.map(({name}) => name)}
}

export interface BatchFile extends WrittenFile {
  bytes: number
  sha256: string
}

/** Leaves out what the manifest copies from the release. */
interface BatchContent extends Omit<Written, 'files'> {
  batch_id: string
  profile: string
  /** `YYYY-MM`; null if the batch was not requested by period. */
  period: string | null
  /** Null without a period. */
  period_complete: boolean | null
  files: readonly BatchFile[]
  /** Batches whose entries this one reverses, fully or in part. */
  supersedes?: readonly string[]
  /** Journals only: how the batch ties out to the journal of its month. */
  bridge?: object
}

/** The same batch always gives the same text. It is written last: a batch without it counts as unfinished. */
export function formatManifest(release: ReleaseManifest, batch: BatchContent): string {
  const {generator, release_id, as_of, known_at, history_id, went_on, currency, time_zone, source} = release
  const {files, supersedes = [], bridge, dialect, neutralised, ...named} = batch
  const known = {release_id, as_of, known_at, history_id, went_on, currency, time_zone}
  const content = {...known, dialect, files, source, supersedes, bridge, neutralised}
  return `${JSON.stringify({schema_version: 1, generator, ...named, ...content}, null, 2)}\n`
}

/** `name` has `/` between folders. */
export type BatchedFile = z.output<typeof namedFile> & {encoding?: string | undefined}
const namedFile = z.object({name: z.string(), bytes: z.number(), sha256: z.string()})
const writtenManifest = z.object({
  batch_id: z.string(),
  release_id: z.string(),
  period: z.string().nullish(),
  files: z.array(namedFile.extend({rows: z.number()})),
  dialect: z.looseObject({encoding: z.string().optional()}).optional(),
})

/** Undefined when it is missing or damaged. */
function readBatchManifest(dir: string): z.output<typeof writtenManifest> | undefined {
  const path = join(dir, 'manifest.json')
  if (!isFile(path)) return undefined
  return writtenManifest.safeParse(parseJson(readFileSync(path, 'utf8'))).data
}

/** Measures a batch by its manifest. */
export function measureBatch(dir: string): Pick<BatchResult, 'files' | 'rows' | 'bytes'> {
  const files = readBatchManifest(dir)?.files ?? []
  const sum = (what: 'rows' | 'bytes') => files.reduce((total, file) => total + file[what], 0)
  return {files: files.length, rows: sum('rows'), bytes: sum('bytes')}
}

/** The files that a batch's manifest names, and what is wrong with them. `dir` ends in `<profile>/<batch>`. */
export function examineBatch(dir: string): {files: BatchedFile[]; faults: Fault[]} {
  const [profile, id] = [basename(dirname(dir)), basename(dir)]
  const batch = `${profile}/${id}`
  const next = describeRepair(profile, id)
  const {files, dialect} = readBatchManifest(dir) ?? {}
  if (!files) {
    const problem = `Batch '${batch}' has no readable manifest.`
    return {files: [], faults: [{problem, next}]}
  }
  const faults = files.flatMap((file) => {
    const fault = findFileFault(join(dir, file.name), file)
    const problem = `File '${file.name}' of batch '${batch}' ${fault}.`
    return fault === undefined ? [] : {problem, next}
  })
  return {files: files.map((file) => ({...file, encoding: dialect?.encoding})), faults}
}

/** All files match the manifest, which has this `text` if one is given. */
export function isWholeBatch(dir: string, text?: string): boolean {
  if (examineBatch(dir).faults.length > 0) return false
  return text === undefined || readFileSync(join(dir, 'manifest.json'), 'utf8') === text
}

export function describeRepair(profile: string, batchId: string): string {
  return findJournalProfile(profile)
    ? `Run \`loantape export --reissue ${batchId}\`: the files come out byte for byte the same.`
    : 'Export its release again the same way: the files come out byte for byte the same.'
}

/** Finished ones, in any profile. */
export function findBatches({exports}: DataFolder, batch_id: string): NamedBatch[] {
  return listNames(exports)
    .map((profile) => ({profile, batch_id, dir: join(exports, profile, batch_id)}))
    .filter(({dir}) => /^[\w-]+$/.test(batch_id) && existsSync(join(dir, 'manifest.json')))
}

/** The finished batches of every profile, by name. */
function listBatchFolders({exports}: DataFolder): string[] {
  return listFolders(exports).flatMap(listFolders)
}

function listFolders(dir: string): string[] {
  const paths = listNames(dir).map((name) => join(dir, name))
  // Links are skipped because they may lead anywhere; surplus batches are removed meanwhile.
  return paths.filter((path) => lstatSync(path, {throwIfNoEntry: false})?.isDirectory())
}

export async function verifyBatches(folder: DataFolder): Promise<{files: number; faults: Fault[]}> {
  const batches = await Array.fromAsync(listBatchFolders(folder), async (dir) => {
    // Lets the process hear signals between two batches.
    await setImmediate()
    return examineBatch(dir)
  })
  const [files, faults] = [batches.flatMap((batch) => batch.files), batches.flatMap((batch) => batch.faults)]
  return {files: files.length, faults}
}

/**
 * The batches of each profile beyond the newest `kept`, as `profile/batch`; never those of an accounting period, of a needed
 * release, or without a readable manifest, which `verify` reports.
 */
export function listSurplusBatches(folder: DataFolder, kept: number, needed: ReadonlySet<string>): string[] {
  const batches = listBatchFolders(folder).flatMap((dir) => {
    const written = statSync(join(dir, 'manifest.json'), {throwIfNoEntry: false})
    return written ? [{dir, writtenAt: written.mtimeMs}] : []
  })
  const surplus = [...Map.groupBy(batches, ({dir}) => dirname(dir)).values()].flatMap((own) =>
    own.sort((a, b) => b.writtenAt - a.writtenAt || (a.dir < b.dir ? 1 : -1)).slice(kept),
  )
  return surplus.flatMap(({dir}) => {
    const manifest = readBatchManifest(dir)
    const isKept = !manifest || (manifest.period ?? null) !== null || needed.has(manifest.release_id)
    return isKept ? [] : relative(folder.exports, dir)
  })
}
