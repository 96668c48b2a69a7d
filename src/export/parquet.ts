import {copyFileSync, mkdirSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {z} from 'zod'
import {type Database, quoteLiteral, quoteName} from '../warehouse/database.ts'
import {readColumns, readControlTotals} from './columns.ts'
import type {ExportSource, ProfileWriter, WrittenFile} from './profile.ts'

/**
 * Hands out each table's Parquet file: the release's own bytes, zstd, the release id in its metadata. By month, a table
 * with a date becomes `<table>/month=YYYY-MM/<table>.parquet`, the layout DuckDB, Spark and Power BI know as Hive
 * partitioning; one without stays one file.
 */
export const writeParquet: ProfileWriter = async (db, source, {tables, options}, dir) => {
  const files: WrittenFile[] = []
  for (const table of tables) {
    const date = options.partition === 'month' ? await findDateColumn(db, table) : undefined
    if (date === undefined) files.push(await copyWhole(db, source, table, dir))
    else files.push(...(await writeMonths(db, source, {table, date}, dir)))
  }
  return {files}
}

async function copyWhole(
  db: Database,
  source: ExportSource,
  table: string,
  dir: string,
): Promise<WrittenFile> {
  const name = `${table}.parquet`
  copyFileSync(join(source.dir, name), join(dir, name))
  return {name, ...(await readControlTotals(db, table))}
}

/** The dates a table can be parted by, the most telling first. */
const DATES = ['day', 'entry_date', 'business_date', 'observed_on', 'created_on']

async function findDateColumn(db: Database, table: string): Promise<string | undefined> {
  const columns = await readColumns(db, table)
  return DATES.find((date) => columns.some(({name, type}) => name === date && type === 'DATE'))
}

const monthRow = z.object({month: z.string().nullable()})

async function writeMonths(
  db: Database,
  source: ExportSource,
  {table, date}: {table: string; date: string},
  dir: string,
): Promise<WrittenFile[]> {
  const monthOf = `strftime(${quoteName(date)}, '%Y-%m')`
  const months = await db.all(
    monthRow,
    `select distinct ${monthOf} as month from release.${table} order by month nulls last`,
  )
  const files: WrittenFile[] = []
  for (const {month} of months) {
    const name = `${table}/month=${month ?? '__HIVE_DEFAULT_PARTITION__'}/${table}.parquet`
    const where = month === null ? `${quoteName(date)} is null` : `${monthOf} = ${quoteLiteral(month)}`
    mkdirSync(dirname(join(dir, name)), {recursive: true})
    await db.run(
      `copy (select * from release.${table} where ${where}) to ${quoteLiteral(join(dir, name))}
       (format parquet, compression zstd, compression_level 1, kv_metadata {release_id: ${quoteLiteral(source.manifest.release_id)}})`,
    )
    files.push({name, ...(await readControlTotals(db, table, where))})
  }
  return files
}
