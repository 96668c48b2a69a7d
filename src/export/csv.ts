import {join} from 'node:path'
import {type Database, quoteLiteral, quoteName} from '../warehouse/database.ts'
import {readColumns, type TableColumn} from '../warehouse/table-columns.ts'
import {readControlTotals} from './control-totals.ts'
import {buildSafeValue, listFormulas, requireSafeColumns} from './formula.ts'
import {
  type ExportOptions,
  inOrder,
  type NeutralisedCell,
  type ProfileWriter,
  type WrittenFile,
} from './profile.ts'

/**
 * Writes each table as CSV by RFC 4180: UTF-8, LF or CRLF, a header line; a null is empty and an empty text is `""`.
 * Timestamps are ISO 8601 in UTC with microseconds; decimals have all their places.
 */
export const writeCsv: ProfileWriter = async (db, source, {tables, options}, dir) => {
  const files: WrittenFile[] = []
  const neutralised: NeutralisedCell[] = []
  for (const table of tables) {
    const name = `${table}.csv`
    const columns = await readColumns(db, `release.${table}`)
    if (options.isSpreadsheetSafe) {
      await requireSafeColumns(db, table, columns)
      for (const cell of await listFormulas(db, inOrder(source, table), columns))
        neutralised.push({file: name, ...cell})
    }
    await copyRows(db, inOrder(source, table), columns, options, join(dir, name))
    files.push({name, ...(await readControlTotals(db, table))})
  }
  return {files, ...(options.isSpreadsheetSafe && {neutralised})}
}

async function copyRows(
  db: Database,
  rows: string,
  columns: readonly TableColumn[],
  {lineEnding, isSpreadsheetSafe}: ExportOptions,
  path: string,
): Promise<void> {
  const values = columns.map((column) => {
    const name = quoteName(column.name)
    if (column.type === 'TIMESTAMP') return `strftime(${name}, '%Y-%m-%dT%H:%M:%S.%fZ') as ${name}`
    return isSpreadsheetSafe ? `${buildSafeValue(column)} as ${name}` : name
  })
  const newLine = lineEnding === 'crlf' ? '\\r\\n' : '\\n'
  await db.run(
    `copy (select ${values.join(', ')} from ${rows}) to ${quoteLiteral(path)}
     (format csv, header true, new_line '${newLine}')`,
  )
}
