import {copyFileSync} from 'node:fs'
import {join} from 'node:path'
import type {TableWriter} from './profile.ts'

/** Hands out a table's Parquet file: the release's own bytes, zstd, the release id in its metadata. */
export const writeParquet: TableWriter = async (_db, source, table, dir) => {
  const file = `${table}.parquet`
  copyFileSync(join(source.dir, file), join(dir, file))
  return file
}
