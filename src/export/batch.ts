import {hash} from 'node:crypto'
import {existsSync, mkdirSync, readdirSync, rmSync, statSync} from 'node:fs'
import {readdir, writeFile} from 'node:fs/promises'
import {join} from 'node:path'
import {z} from 'zod'
import {ConfigError} from '../errors.ts'
import {isProcessAlive} from '../process.ts'
import {GENERATOR} from '../version.ts'
import {digestFile, moveIntoPlace, syncToDisk} from '../warehouse/atomic-file.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'
import {type Database, openDatabase} from '../warehouse/database.ts'
import {writeCsv} from './csv.ts'
import {JOURNAL_NAMES} from './journal-profiles.ts'
import {type BatchFile, type BatchManifest, isFinishedBatch} from './manifest.ts'
import {writeParquet} from './parquet.ts'
import type {ExportSource, TableWriter} from './profile.ts'

/** The kinds of export, by name. */
const PROFILES: Record<string, TableWriter> = {csv: writeCsv, parquet: writeParquet}

/** The names of the kinds of export. */
export const PROFILE_NAMES: readonly string[] = [...Object.keys(PROFILES), ...JOURNAL_NAMES]

/**
 * How the tables of a profile are written.
 *
 * @throws ConfigError `EXPORT_PROFILE` naming what there is
 */
export function requireProfile(name: string): TableWriter {
  const writeTable = PROFILES[name]
  if (writeTable) return writeTable
  throw unknownName('EXPORT_PROFILE', 'Profile', name, PROFILE_NAMES)
}

/** The month a batch was asked for by. */
export interface PeriodMark {
  /** `YYYY-MM` */
  period: string
  /** Whether the month was over and seen to its end. */
  isComplete: boolean
}

function markOf(mark: PeriodMark | undefined): string[] {
  return mark ? [mark.period, mark.isComplete ? 'complete' : 'unfinished'] : []
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

/**
 * Writes one batch: every published table of a release, or those named, and the manifest last, under a temporary
 * name that becomes the batch's own when all of it is on the disk. A batch that is there already is not written again.
 *
 * @throws ConfigError `EXPORT_PROFILE`, `EXPORT_TABLE` naming what there is
 */
export async function writeBatch(
  folder: DataFolder,
  source: ExportSource,
  request: {profile: string; tables?: readonly string[]; period?: PeriodMark},
): Promise<BatchResult> {
  const {profile} = request
  const writeTable = requireProfile(profile)
  const published = source.manifest.tables.map(({name}) => name)
  const unknown = request.tables?.find((table) => !published.includes(table))
  if (unknown !== undefined) throw unknownName('EXPORT_TABLE', 'Table', unknown, published)
  const tables = published.filter((name) => request.tables?.includes(name) ?? true)

  const releaseId = source.manifest.release_id
  const batchId = `${source.manifest.as_of}-${hash('sha256', [profile, releaseId, ...tables, ...markOf(request.period)].join('\n')).slice(0, 12)}`
  const final = join(folder.exports, profile, batchId)
  const isWritten = isFinishedBatch(final)
  removeAbandoned(join(folder.exports, profile))
  const temporary = join(folder.exports, profile, `.writing-${batchId}-${process.pid}`)
  if (!isWritten) {
    rmSync(temporary, {recursive: true, force: true})
    mkdirSync(temporary, {recursive: true})
    try {
      const files = await writeTables(source, tables, writeTable, temporary)
      await writeManifest(temporary, describeBatch(source, {profile, batchId, files, period: request.period}))
      rmSync(final, {recursive: true, force: true})
      moveIntoPlace(temporary, final)
    } catch (error) {
      rmSync(temporary, {recursive: true, force: true})
      throw error
    }
  }
  const names = (await readdir(final)).filter((name) => name !== 'manifest.json')
  return {
    profile,
    batch_id: batchId,
    dir: final,
    files: names.length,
    rows: source.manifest.tables
      .filter(({name}) => tables.includes(name))
      .reduce((sum, {rows}) => sum + rows, 0),
    bytes: names.reduce((sum, name) => sum + statSync(join(final, name)).size, 0),
    outcome: isWritten ? 'unchanged' : 'written',
  }
}

/** Removes what exports that died left behind: `.writing-<batch>-<pid>` of a process that is no longer there. */
export function removeAbandoned(dir: string): void {
  if (!existsSync(dir)) return
  for (const name of readdirSync(dir)) {
    const pid = /^\.writing-.*-(\d+)$/.exec(name)?.[1]
    if (pid === undefined || isProcessAlive(Number(pid))) continue
    rmSync(join(dir, name), {recursive: true, force: true})
  }
}

async function writeTables(
  source: ExportSource,
  tables: readonly string[],
  writeTable: TableWriter,
  dir: string,
): Promise<BatchFile[]> {
  await using db = await openDatabase({attach: [{path: source.database, alias: 'release', readOnly: true}]})
  const files: BatchFile[] = []
  for (const table of tables) {
    const name = await writeTable(db, source, table, dir)
    const path = join(dir, name)
    syncToDisk(path)
    files.push({
      name,
      bytes: statSync(path).size,
      sha256: await digestFile(path),
      ...(await readControlTotals(db, table)),
    })
  }
  return files
}

const columnRow = z.object({column_name: z.string()})
const totalsRow = z.object({
  rows: z.coerce.number(),
  sum_amount: z.string().nullable(),
  sum_debit: z.string().nullable(),
  sum_credit: z.string().nullable(),
})

async function readControlTotals(
  db: Database,
  table: string,
): Promise<Pick<BatchFile, 'rows' | 'columns' | 'sum_amount' | 'sum_debit' | 'sum_credit'>> {
  const columns = (await db.all(columnRow, `select column_name from (describe release.${table})`)).map(
    ({column_name}) => column_name,
  )
  const sumOf = (name: string | undefined) =>
    name !== undefined && columns.includes(name) ? `cast(sum(${name}) as varchar)` : 'null::varchar'
  const amount = ['loan_amount', 'amount'].find((name) => columns.includes(name))
  const totals = await db.one(
    totalsRow,
    `select count(*) as rows, ${sumOf(amount)} as sum_amount, ${sumOf('debit')} as sum_debit,
       ${sumOf('credit')} as sum_credit
     from release.${table}`,
  )
  return {...totals, columns}
}

function describeBatch(
  {manifest}: ExportSource,
  batch: {profile: string; batchId: string; files: BatchFile[]; period: PeriodMark | undefined},
): BatchManifest {
  return {
    schema_version: 1,
    generator: GENERATOR,
    batch_id: batch.batchId,
    profile: batch.profile,
    release_id: manifest.release_id,
    as_of: manifest.as_of,
    period: batch.period?.period ?? null,
    period_complete: batch.period?.isComplete ?? null,
    known_at: manifest.known_at,
    currency: manifest.currency,
    time_zone: manifest.time_zone,
    files: batch.files,
    source: manifest.source,
    supersedes: [],
  }
}

async function writeManifest(dir: string, manifest: BatchManifest): Promise<void> {
  const path = join(dir, 'manifest.json')
  await writeFile(path, `${JSON.stringify(manifest, null, 2)}\n`)
  syncToDisk(path)
}

function unknownName(code: string, kind: string, name: string, known: readonly string[]): ConfigError {
  return new ConfigError({
    code,
    problem: `${kind} '${name}' on the command line: expected one of ${known.join(', ')}.`,
    kept: 'Nothing was written.',
  })
}
