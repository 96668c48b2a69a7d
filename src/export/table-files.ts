import {hash} from 'node:crypto'
import {copyFileSync, mkdirSync, statSync, writeFileSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {z} from 'zod'
import {JOURNAL_NAMES} from '../accounting/profiles.ts'
import {type LoantapeError, newError} from '../core/errors.ts'
import {expectOneOf} from '../core/text.ts'
import {type DataFolder, requireExports} from '../store/data-folder.ts'
import {type Database, openDatabase, quoteLiteral, quoteName} from '../store/database.ts'
import {beginFolder, digestFile, syncBelow} from '../store/files.ts'
import {
  type Release,
  type ReleaseManifest,
  readReleaseChecks,
  readReleaseModels,
  requireIntact,
} from '../store/release.ts'
import {readColumns, readTables, type TableColumn} from '../store/sql.ts'
import {
  type BatchFile,
  type BatchResult,
  formatManifest,
  inOrder,
  isWholeBatch,
  measureBatch,
  type PeriodMark,
  readControlTotals,
  type WriteRequest,
  type Written,
  type WrittenFile,
} from './batch.ts'
import {writeCsv} from './csv.ts'
import {type Dialect, listWords, USUAL_DIALECT} from './dialect.ts'
import {describeTable} from './target.ts'
import {writeXlsx} from './xlsx.ts'

export const TABLE_PROFILE_NAMES = ['csv', 'parquet', 'xlsx'] as const
type TableProfileName = (typeof TABLE_PROFILE_NAMES)[number]

export const PROFILE_NAMES: readonly string[] = [...TABLE_PROFILE_NAMES, ...JOURNAL_NAMES]

/** Options of other profiles have no effect. */
export interface BatchRequest extends Pick<WriteRequest, 'partition'> {
  profile: TableProfileName
  /** All published tables by default. */
  tables?: readonly string[] | undefined
  period?: PeriodMark | undefined
  dialect?: Dialect | undefined
}

/**
 * Writes tables as one batch, the manifest last. The folder has a temporary name until everything is on the disk. A complete
 * batch is not written again.
 * @throws ConfigError `UNKNOWN_NAME`, `NOT_WRITABLE`; UnexpectedError `RELEASE_DAMAGED`
 */
export async function writeBatch(
  folder: DataFolder,
  source: Release,
  request: BatchRequest,
): Promise<BatchResult> {
  const {profile, period, dialect = USUAL_DIALECT, partition} = request
  const {manifest} = source
  const published = manifest.tables.map(({name}) => name)
  const unknown = request.tables?.find((table) => !published.includes(table))
  if (unknown !== undefined) throw unknownName('Table', unknown, published)
  const tables = published.filter((name) => request.tables?.includes(name) ?? true)

  const batchId = batchIdOf(manifest, {...request, tables, dialect})
  const final = join(folder.exports, profile, batchId)
  const isWritten = isWholeBatch(final)
  if (!isWritten) {
    requireExports(folder, profile)
    using batch = beginFolder(final)
    await using db = await openDatabase({attach: [{path: source.database, alias: 'release', readOnly: true}]})
    const written = await WRITERS[profile]({db, source, tables, dialect, partition, dir: batch.dir})
    const files = await Array.fromAsync(written.files, (file) => measureFile(batch.dir, file))
    if (written.dialect) {
      const name = 'datapackage.json'
      const file = {name, rows: 0, columns: [], sum_amount: null, sum_debit: null, sum_credit: null}
      const about = await describePackage(db, source, {files, dialect: written.dialect})
      writeFileSync(join(batch.dir, name), about)
      files.push(await measureFile(batch.dir, file))
    }
    const content = {
      ...written,
      batch_id: batchId,
      profile,
      period: period?.period ?? null,
      period_complete: period?.isComplete ?? null,
      files,
    }
    writeFileSync(join(batch.dir, 'manifest.json'), formatManifest(manifest, content))
    await syncBelow(batch.dir)
    batch.finish(() => isWholeBatch(final))
  }
  const outcome = isWritten ? 'unchanged' : 'written'
  return {profile, batch_id: batchId, dir: final, ...measureBatch(final), outcome}
}

const WRITERS = {csv: writeCsv, parquet: writeParquet, xlsx: writeXlsx}

/** @throws ConfigError `UNKNOWN_NAME` if no profile of this name writes tables */
export function requireProfile(name: string): TableProfileName {
  const profile = TABLE_PROFILE_NAMES.find((known) => known === name)
  if (profile) return profile
  throw unknownName('Profile', name, PROFILE_NAMES)
}

function unknownName(kind: string, name: string, known: readonly string[]): LoantapeError {
  return newError('UNKNOWN_NAME', `${kind} '${name}': ${expectOneOf(name, known)}.`)
}

/**
 * `<as_of>-<12 hex>`: the same for the same tables of the same release with the same options. An option that is left out would be
 * given the batch written without it.
 */
function batchIdOf(
  {as_of, release_id}: ReleaseManifest,
  {profile, tables = [], period, dialect = USUAL_DIALECT, partition, ...others}: BatchRequest,
): string {
  others satisfies Record<string, never>
  const words = [
    ...(profile === 'csv' ? listWords(dialect) : []),
    profile === 'parquet' && partition && `in folders by ${partition}`,
    period?.period,
    period && (period.isComplete ? 'complete' : 'unfinished'),
  ].filter((word) => typeof word === 'string')
  return `${as_of}-${hash('sha256', [profile, release_id, ...tables, ...words].join('\n')).slice(0, 12)}`
}

async function measureFile(dir: string, file: WrittenFile): Promise<BatchFile> {
  const path = join(dir, file.name)
  return {...file, bytes: statSync(path).size, sha256: await digestFile(path)}
}

/** Describes CSV files as a Data Package (datapackage.org, version 2), which keeps types, keys and meanings. */
async function describePackage(
  db: Database,
  {dir, manifest}: Release,
  {files, dialect}: {files: readonly BatchFile[]; dialect: Dialect},
): Promise<string> {
  const models = readReleaseModels(dir)
  const passed = readReleaseChecks(dir).filter(({failures}) => failures === 0)
  const checks = passed.map(({name}) => name)
  const tables = await readTables(db)
  const resources = files.map(({name: path, bytes, sha256}) => {
    const name = path.replace(/\.csv$/, '')
    const {description, grain, columns} = describeTable(models, name, tables.get(name) ?? [])
    const fields = columns.map(({name, type, meaning}) => {
      const of = FIELD_TYPES[type] ?? {type: 'number', decimalChar: dialect.decimal}
      return {name, ...of, ...(meaning && {description: meaning})}
    })
    return {
      name,
      type: 'table',
      path,
      ...(description && {description}),
      format: 'csv',
      mediatype: 'text/csv',
      encoding: dialect.encoding,
      bytes,
      hash: `sha256:${sha256}`,
      contract: manifest.tables.find((table) => table.name === name)?.contract,
      dialect: {
        delimiter: dialect.delimiter,
        lineTerminator: dialect.lineEnding === 'crlf' ? '\r\n' : '\n',
      },
      schema: {fields, missingValues: [''], ...(isKey(checks, name, grain) && {primaryKey: grain})},
    }
  })
  const content = {
    $schema: 'https://datapackage.org/profiles/2.0/datapackage.json',
    name: 'loantape',
    id: manifest.release_id,
    resources,
  }
  return `${JSON.stringify(content, null, 2)}\n`
}

/** Checks of the release prove that these columns are unique together and never null. */
function isKey(checks: readonly string[], table: string, columns: readonly string[]): boolean {
  const demand = `${table} not_null(`
  const known = checks.flatMap((name) =>
    name.startsWith(demand) ? name.slice(demand.length, -1).split(', ') : [],
  )
  return (
    checks.includes(`${table} unique(${columns.join(', ')})`) &&
    columns.every((column) => known.includes(column))
  )
}

/** Table Schema's names for DuckDB's types; all others are numbers. */
const FIELD_TYPES: Readonly<Record<string, object>> = {
  VARCHAR: {type: 'string'},
  DATE: {type: 'date'},
  BOOLEAN: {type: 'boolean'},
  BIGINT: {type: 'integer'},
  TIMESTAMP: {type: 'datetime', format: '%Y-%m-%dT%H:%M:%S.%fZ'},
}

/**
 * With `partition: 'month'`, a table whose rows all have a date becomes the Hive partitions `<table>/month=YYYY-MM/<table>.parquet`.
 * pandas reads no folder in which a row lacks the month.
 */
async function writeParquet({db, source, tables, partition, dir}: WriteRequest): Promise<Written> {
  const files: WrittenFile[] = []
  for (const whole of source.manifest.tables) {
    const {name: table, file: name} = whole
    if (!tables.includes(table)) continue
    const columns = await readColumns(db, `release.${table}`)
    const isDate = (date: string) => columns.some(({name, type}) => name === date && type === 'DATE')
    const date = partition === 'month' ? PARTITION_DATES.find(isDate) : undefined
    const isDated =
      date !== undefined &&
      (await db.value(
        z.boolean(),
        `select count(*) > 0 and count(*) = count(${quoteName(date)}) from release.${table}`,
      ))
    if (isDated) {
      const months = {table, rows: inOrder(source, table), date, key: choosePathKey(columns)}
      files.push(...(await writeMonths(db, months, dir)))
      continue
    }
    const path = join(source.dir, name)
    copyFileSync(path, join(dir, name))
    await requireIntact(path, whole, join(dir, name))
    files.push({name, ...(await readControlTotals(db, table))})
  }
  return {files}
}

/** In order of preference. */
const PARTITION_DATES = ['day', 'entry_date', 'business_date', 'observed_on', 'created_on']

/** The key of the path, which readers add as a column: if the table has one of that name, they refuse it or show the wrong value. */
function choosePathKey(columns: readonly TableColumn[]): string {
  const taken = new Set(columns.map(({name}) => name))
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
  const months = await db.column(
    z.string(),
    `select distinct ${monthOf} as month from release.${table} order by month`,
  )
  const files: WrittenFile[] = []
  for (const month of months) {
    const name = `${table}/${key}=${month}/${table}.parquet`
    const where = `${monthOf} = ${quoteLiteral(month)}`
    mkdirSync(dirname(join(dir, name)), {recursive: true})
    await db.run(
      `copy (select * from ${rows} where ${where}) to ${quoteLiteral(join(dir, name))}
       (format parquet, compression zstd, compression_level 1)`,
    )
    files.push({name, ...(await readControlTotals(db, table, where))})
  }
  return files
}
