import {hash} from 'node:crypto'
import {copyFileSync, mkdirSync, statSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {z} from 'zod'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {type LoantapeError, newError} from '../core/errors.ts'
import {expectOneOf} from '../core/text.ts'
import {type DataFolder, requireExports} from '../store/data-folder.ts'
import {type Database, openDatabase, quoteLiteral, quoteName} from '../store/database.ts'
import {digestFile, syncToDisk} from '../store/files.ts'
import type {Release, ReleaseManifest} from '../store/release.ts'
import {countRows, readColumns, type TableColumn} from '../store/sql.ts'
import {
  type BatchFile,
  type BatchResult,
  beginBatch,
  type ExportOptions,
  formatManifest,
  inOrder,
  isWholeBatch,
  type NeutralisedCell,
  type PeriodMark,
  readBatchManifest,
  readControlTotals,
  type WriteRequest,
  type Written,
  type WrittenFile,
} from './batch.ts'
import {writeXlsx} from './xlsx.ts'

/** The profiles that write tables. */
export const TABLE_PROFILE_NAMES = ['csv', 'parquet', 'xlsx'] as const
type TableProfileName = (typeof TABLE_PROFILE_NAMES)[number]

/** All profiles. */
export const PROFILE_NAMES: readonly string[] = [...TABLE_PROFILE_NAMES, ...JOURNAL_NAMES]

/** Which tables to write, and how. */
export interface BatchRequest {
  profile: TableProfileName
  /** All published tables by default. */
  tables?: readonly string[] | undefined
  period?: PeriodMark | undefined
  /** Those of other profiles change nothing. */
  options?: ExportOptions | undefined
}

/**
 * Writes tables of a release as one batch, the manifest last. The folder has a temporary name until everything is on disk. A
 * complete batch is not written again.
 *
 * @throws ConfigError `UNKNOWN_NAME`, `NOT_WRITABLE`
 */
export async function writeBatch(
  folder: DataFolder,
  source: Release,
  request: BatchRequest,
): Promise<BatchResult> {
  const {profile, period, options = {}} = request
  const {manifest} = source
  const published = manifest.tables.map(({name}) => name)
  const unknown = request.tables?.find((table) => !published.includes(table))
  if (unknown !== undefined) throw unknownName('Table', unknown, published)
  const tables = published.filter((name) => request.tables?.includes(name) ?? true)

  const batchId = batchIdOf(manifest, {...request, tables})
  const final = join(folder.exports, profile, batchId)
  const isWritten = isWholeBatch(final)
  if (!isWritten) {
    requireExports(folder, profile)
    using batch = beginBatch(final)
    await using db = await openDatabase({attach: [{path: source.database, alias: 'release', readOnly: true}]})
    const written = await WRITERS[profile]({db, source, tables, options, dir: batch.dir})
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

const WRITERS = {csv: writeCsv, parquet: writeParquet, xlsx: (request: WriteRequest) => writeXlsx(request)}

/** The profile of this name that writes tables. @throws ConfigError `UNKNOWN_NAME` */
export function requireProfile(name: string): TableProfileName {
  const profile = TABLE_PROFILE_NAMES.find((known) => known === name)
  if (profile) return profile
  throw unknownName('Profile', name, PROFILE_NAMES)
}

function unknownName(kind: string, name: string, known: readonly string[]): LoantapeError {
  return newError('UNKNOWN_NAME', `${kind} '${name}' on the command line: ${expectOneOf(name, known)}.`)
}

/** `<as_of>-<12 hex>`: the same tables of the same release with the same options get the same id. */
function batchIdOf(
  {as_of, release_id}: ReleaseManifest,
  {profile, tables = [], period, options = {}}: BatchRequest,
): string {
  const {lineEnding, isSpreadsheetSafe, partition} = options
  const words = [
    profile === 'csv' && lineEnding === 'crlf' && 'crlf',
    profile === 'csv' && isSpreadsheetSafe && 'spreadsheet-safe',
    profile === 'parquet' && partition && `in folders by ${partition}`,
    period?.period,
    period && (period.isComplete ? 'complete' : 'unfinished'),
  ].filter((word) => typeof word === 'string')
  return `${as_of}-${hash('sha256', [profile, release_id, ...tables, ...words].join('\n')).slice(0, 12)}`
}

async function measureFile(dir: string, file: WrittenFile): Promise<BatchFile> {
  const path = join(dir, file.name)
  syncToDisk(path)
  syncToDisk(dirname(path))
  return {...file, bytes: statSync(path).size, sha256: await digestFile(path)}
}

/**
 * Writes each table as CSV by RFC 4180: UTF-8, LF or CRLF, a header line. A null is empty, an empty text is `""`. Timestamps are
 * ISO 8601 in UTC with microseconds; decimals keep all their places.
 */
async function writeCsv({db, source, tables, options, dir}: WriteRequest): Promise<Written> {
  const {lineEnding, isSpreadsheetSafe} = options
  const files: WrittenFile[] = []
  const neutralised: NeutralisedCell[] = []
  for (const table of tables) {
    const name = `${table}.csv`
    const columns = await readColumns(db, `release.${table}`)
    const rows = inOrder(source, table)
    if (isSpreadsheetSafe) {
      await requireSafeColumns(db, table, columns)
      for (const cell of await listFormulas(db, rows, columns)) neutralised.push({file: name, ...cell})
    }
    const cells = columns.map((column) => {
      const quoted = quoteName(column.name)
      if (column.type === 'TIMESTAMP') return `strftime(${quoted}, '%Y-%m-%dT%H:%M:%S.%fZ') as ${quoted}`
      return isSpreadsheetSafe && isFreeText(column) ? `${neutralise(quoted)} as ${quoted}` : quoted
    })
    await db.run(
      `copy (select ${cells.join(', ')} from ${rows}) to ${quoteLiteral(join(dir, name))}
       (format csv, header true, new_line '${lineEnding === 'crlf' ? '\\r\\n' : '\\n'}')`,
    )
    files.push({name, ...(await readControlTotals(db, table))})
  }
  return {files, ...(isSpreadsheetSafe && {neutralised})}
}

/**
 * Matches a text that a spreadsheet takes for a formula: it starts with TAB, CR or LF, or with `= + - @`, also full-width and after
 * spaces and invisible characters of any kind (OWASP, CSV injection).
 */
const FORMULA = quoteLiteral('^[\\p{Z}\\p{C}]*[=+@＝＋＠－-]|^[\\t\\r\\n]')

/** SQL that is true for a text that a spreadsheet takes for a formula. */
const isFormula = (text: string) => `coalesce(regexp_matches(${text}, ${FORMULA}), false)`

/** SQL of a text, with a leading `'` if a spreadsheet would take it for a formula. */
const neutralise = (text: string) => `case when ${isFormula(text)} then '''' || ${text} else ${text} end`

const isId = (name: string) => /(^|_)id$/.test(name)

/** Whether a column holds text written by people. Nothing may be put in front of an id. */
const isFreeText = ({name, type}: TableColumn) => type === 'VARCHAR' && !isId(name)

/** Types whose values are never formulas. */
const NO_TEXT = /^(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DECIMAL|FLOAT|DOUBLE|BOOLEAN|DATE|TIME|UUID|INTERVAL)\b/

/** SQL of rows made safe for a spreadsheet, including ids and every other type: for people, not for importers. */
export function buildSafeRows(columns: readonly TableColumn[], from: string): string {
  const cells = columns.map(({name, type}) => {
    const quoted = quoteName(name)
    return NO_TEXT.test(type) ? quoted : `${neutralise(`${quoted}::varchar`)} as ${quoted}`
  })
  return `select ${cells.join(', ')} from ${from}`
}

/**
 * Lists the cells that {@link neutralise} changes, in the order of the file.
 *
 * @param rows SQL of the table's rows in that order
 */
async function listFormulas(
  db: Database,
  rows: string,
  columns: readonly TableColumn[],
): Promise<Omit<NeutralisedCell, 'file'>[]> {
  const texts = columns.filter(isFreeText)
  if (texts.length === 0) return []
  const hits = texts.map(({name}, index) => {
    const cell = `${index} as column_no, ${quoteLiteral(name)} as "column"`
    return `select row, ${cell} from numbered where ${isFormula(quoteName(name))}`
  })
  return await db.all(
    z.object({row: z.coerce.number(), column: z.string()}),
    `with numbered as (select *, row_number() over () as row from ${rows})
     select row, "column" from (${hits.join(' union all ')}) order by row, column_no`,
  )
}

/**
 * Refuses ids that would need a leading `'`, because importers would no longer find them, and numbers that are not finite.
 *
 * @throws CheckError `EXPORT_CELL`
 */
async function requireSafeColumns(
  db: Database,
  table: string,
  columns: readonly TableColumn[],
): Promise<void> {
  for (const {name, type} of columns) {
    const isText = type === 'VARCHAR' && isId(name)
    if (!isText && type !== 'DOUBLE') continue
    const quoted = quoteName(name)
    const isWrong = isText ? isFormula(quoted) : `${quoted} is not null and not isfinite(${quoted})`
    const cells = await countRows(db, `release.${table} where ${isWrong}`)
    if (cells === 0) continue
    throw newError(
      'EXPORT_CELL',
      `Column '${name}' of table '${table}' holds ${cells} values ${isText ? 'that a spreadsheet would take for formulas: expected ids that begin with a letter or digit' : 'that are not finite numbers'}.`,
      {
        next: isText
          ? 'Export without --spreadsheet-safe, or as xlsx, where a text never becomes a formula.'
          : 'Correct the model of this table.',
      },
    )
  }
}

/**
 * Copies each table's Parquet file from the release, zstd. With `partition: 'month'` a table that has a date becomes
 * `<table>/month=YYYY-MM/<table>.parquet` instead, which DuckDB, Spark and Power BI read as Hive partitions.
 */
async function writeParquet({db, source, tables, options, dir}: WriteRequest): Promise<Written> {
  const files: WrittenFile[] = []
  for (const table of tables) {
    const columns = await readColumns(db, `release.${table}`)
    const isDate = (date: string) => columns.some(({name, type}) => name === date && type === 'DATE')
    const date = options.partition === 'month' ? PARTITION_DATES.find(isDate) : undefined
    if (date !== undefined) {
      const partition = {table, rows: inOrder(source, table), date, key: choosePathKey(columns)}
      files.push(...(await writeMonths(db, partition, dir)))
      continue
    }
    const name = `${table}.parquet`
    copyFileSync(join(source.dir, name), join(dir, name))
    files.push({name, ...(await readControlTotals(db, table))})
  }
  return {files}
}

/** The date columns that tables can be partitioned by, the most useful first. */
const PARTITION_DATES = ['day', 'entry_date', 'business_date', 'observed_on', 'created_on']

/**
 * Readers add the key of the path as a column. If the table has a column of that name, pyarrow, pandas and polars refuse the
 * file, and DuckDB, which ignores case, shows the path's value instead of the column's.
 */
function choosePathKey(columns: readonly TableColumn[]): string {
  const taken = new Set(columns.map(({name}) => name.toLowerCase()))
  let key = 'month'
  while (taken.has(key)) key = `partition_${key}`
  return key
}

async function writeMonths(
  db: Database,
  {table, rows, date, key}: {table: string; rows: string; date: string; key: string},
  dir: string,
): Promise<WrittenFile[]> {
  const monthOf = `strftime(${quoteName(date)}, '%Y-%m')`
  const months = await db.all(
    z.object({month: z.string().nullable()}),
    `select distinct ${monthOf} as month from release.${table} order by month nulls last`,
  )
  const files: WrittenFile[] = []
  for (const {month} of months) {
    const name = `${table}/${key}=${month ?? '__HIVE_DEFAULT_PARTITION__'}/${table}.parquet`
    const where = month === null ? `${quoteName(date)} is null` : `${monthOf} = ${quoteLiteral(month)}`
    mkdirSync(dirname(join(dir, name)), {recursive: true})
    await db.run(
      `copy (select * from ${rows} where ${where}) to ${quoteLiteral(join(dir, name))}
       (format parquet, compression zstd, compression_level 1)`,
    )
    files.push({name, ...(await readControlTotals(db, table, where))})
  }
  return files
}
