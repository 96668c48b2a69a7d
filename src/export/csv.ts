import {join} from 'node:path'
import {z} from 'zod'
import {type Database, quoteLiteral, quoteName} from '../warehouse/database.ts'
import type {TableWriter} from './profile.ts'

const columnRow = z.object({column_name: z.string(), column_type: z.string()})

/**
 * Writes a table as CSV by RFC 4180: UTF-8, LF, a header line; a null is empty and an empty text is `""`.
 * Timestamps are ISO 8601 in UTC with microseconds; decimals have all their places.
 */
export const writeCsv: TableWriter = async (db, _source, table, dir) => {
  const file = `${table}.csv`
  await db.run(
    `copy (${await buildCsvSelect(db, table)}) to ${quoteLiteral(join(dir, file))} (format csv, header true)`,
  )
  return file
}

async function buildCsvSelect(db: Database, table: string): Promise<string> {
  const columns = await db.all(columnRow, `select column_name, column_type from (describe release.${table})`)
  const values = columns.map(({column_name, column_type}) => {
    const name = quoteName(column_name)
    return column_type === 'TIMESTAMP' ? `strftime(${name}, '%Y-%m-%dT%H:%M:%S.%fZ') as ${name}` : name
  })
  return `select ${values.join(', ')} from release.${table}`
}
