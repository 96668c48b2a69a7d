import {copyFileSync, mkdirSync} from 'node:fs'
import {dirname, join} from 'node:path'
import {z} from 'zod'
import {type Database, quoteLiteral, quoteName} from '../store/database.ts'
import {readColumns, type TableColumn} from '../store/sql.ts'
import {inOrder, type ProfileWriter, readControlTotals, type WrittenFile} from './profile.ts'

/**
 * Copies each table's Parquet file from the release, zstd. With `partition: 'month'` a table that has a date becomes
 * `<table>/month=YYYY-MM/<table>.parquet` instead, which DuckDB, Spark and Power BI read as Hive partitions.
 */
export const writeParquet: ProfileWriter = async (db, source, {tables, options}, dir) => {
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
