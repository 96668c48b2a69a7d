import {
  type DuckDBDataChunk,
  DuckDBDataChunkWriter,
  DuckDBDateType,
  DuckDBDateValue,
  DuckDBDecimalType,
  DuckDBDecimalValue,
  DuckDBTimestampType,
  DuckDBTimestampValue,
  type DuckDBType,
  type DuckDBValue,
} from '@duckdb/node-api'
import {DAY_MS} from '../core/clock.ts'
import type {ColumnValue} from '../core/types.ts'
import type {Database} from './database.ts'

export function createRowBuffer(types: readonly DuckDBType[]) {
  const chunks: DuckDBDataChunk[] = []
  const keep = (chunk: DuckDBDataChunk): void => {
    // Setting it lets go of the vectors, which would keep every text on the JavaScript heap.
    const {rowCount} = chunk
    chunk.rowCount = rowCount
    chunks.push(chunk)
  }
  const writer = new DuckDBDataChunkWriter<ColumnValue>(types, keep, {converter: toEngine})
  return {
    /** @throws Error if a value does not fit its column, with this row or a later one */
    push: (row: readonly ColumnValue[]): void => writer.appendRow(row),
    /** Appends to a temporary table. Call it once. */
    async append(db: Database, table: string): Promise<void> {
      writer.flush()
      if (chunks.length === 0) return
      const appender = await db.connection.createAppender(table, 'main', 'temp')
      try {
        for (const chunk of chunks) appender.appendDataChunk(chunk)
        appender.flushSync()
      } finally {
        appender.closeSync()
      }
    },
  }
}

/** Appends to a temporary table. */
export async function appendRows(
  db: Database,
  {table, types}: {table: string; types: readonly DuckDBType[]},
  rows: readonly (readonly ColumnValue[])[],
): Promise<void> {
  const buffer = createRowBuffer(types)
  for (const row of rows) buffer.push(row)
  await buffer.append(db, table)
}

/** Values of other types stay as they are: the writer refuses those that do not fit. */
function toEngine(value: ColumnValue, type: DuckDBType): DuckDBValue {
  if (typeof value === 'bigint') {
    if (type instanceof DuckDBDecimalType) return new DuckDBDecimalValue(value, type.width, type.scale)
    if (type instanceof DuckDBTimestampType) return new DuckDBTimestampValue(value)
  }
  if (value !== null && type instanceof DuckDBDateType)
    return new DuckDBDateValue(Date.parse(String(value)) / DAY_MS)
  return value
}
