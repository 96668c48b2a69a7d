import {copyFileSync, mkdirSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {z} from 'zod'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {readColumns, type TableColumn} from '../store/sql.ts'
import {
  type ExportSource,
  inOrder,
  type ProfileWriter,
  readControlTotals,
  type WrittenFile,
} from './profile.ts'

/**
 * Hands out each table's Parquet file: the release's own bytes, zstd. By month, a table
 * with a date becomes `<table>/month=YYYY-MM/<table>.parquet`, the layout DuckDB, Spark and Power BI know as Hive
 * partitioning, under another key where the table has a column `month`; one without a date stays one file.
 */
export const writeParquet: ProfileWriter = async (db, source, {tables, options}, dir) => {
  const files: WrittenFile[] = []
  for (const table of tables) {
    const columns = await readColumns(db, `release.${table}`)
    const date = options.partition === 'month' ? findDateColumn(columns) : undefined
    if (date === undefined) files.push(await copyWhole(db, source, table, dir))
    else
      files.push(
        ...(await writeMonths(
          db,
          {table, rows: inOrder(source, table), date, key: choosePathKey(columns)},
          dir,
        )),
      )
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

function findDateColumn(columns: readonly TableColumn[]): string | undefined {
  return DATES.find((date) => columns.some(({name, type}) => name === date && type === 'DATE'))
}

/**
 * Readers add the key of the path as a column: pyarrow, pandas and polars refuse a file that has one of that name, and
 * DuckDB, to which case makes no difference, shows the path instead of the column.
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
