import {
  DuckDBDataChunk,
  DuckDBDateType,
  DuckDBDateValue,
  DuckDBDecimalType,
  DuckDBDecimalValue,
  DuckDBTimestampType,
  DuckDBTimestampValue,
  type DuckDBType,
  type DuckDBValue,
  type DuckDBVector,
} from '@duckdb/node-api'
import type {ColumnValue} from '../core/types.ts'
import type {Database} from './database.ts'

const CHUNK_ROWS = 2048

/**
 * Creates an empty buffer for rows of these column types, in order. It collects rows in the engine's own form; only texts stay on
 * the JavaScript heap.
 */
export function createRowBuffer(types: readonly DuckDBType[]) {
  const converters = types.map(createConverter)
  const chunks: DuckDBDataChunk[] = []
  let vectors: DuckDBVector[] = []
  let rows = CHUNK_ROWS
  let misfit: {cause: unknown} | undefined

  function startChunk(): void {
    const chunk = DuckDBDataChunk.create(types, CHUNK_ROWS)
    vectors = types.map((_, index) => chunk.getColumnVector(index))
    chunks.push(chunk)
    rows = 0
  }

  function endChunk(): void {
    for (const vector of vectors) vector.flush()
    // Set last: changing the count resets the vectors.
    const last = chunks.at(-1)
    if (last) last.rowCount = rows
    vectors = []
  }

  return {
    push(row: readonly ColumnValue[]): void {
      if (rows === CHUNK_ROWS) {
        endChunk()
        startChunk()
      }
      try {
        converters.forEach((convert, index) => {
          vectors[index]?.setItem(rows, convert(row[index] ?? null))
        })
        rows += 1
      } catch (cause) {
        misfit = {cause}
      }
    },
    /** Appends all rows to a temporary table with these columns, once; fails if a value did not fit its column. */
    async append(db: Database, table: string): Promise<void> {
      if (misfit) throw misfit.cause
      if (chunks.length === 0) return
      endChunk()
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

/** Appends rows to a temporary table, each with a value for every column. */
export async function appendRows(
  db: Database,
  {table, types}: {table: string; types: readonly DuckDBType[]},
  rows: readonly (readonly ColumnValue[])[],
): Promise<void> {
  const buffer = createRowBuffer(types)
  for (const row of rows) buffer.push(row)
  await buffer.append(db, table)
}

/** Converts a value: cents for a DECIMAL, microseconds for a TIMESTAMP, `YYYY-MM-DD` for a DATE, all else as it is. */
function createConverter(type: DuckDBType): (value: ColumnValue) => DuckDBValue {
  if (type instanceof DuckDBDecimalType) {
    const {width, scale} = type
    return (value) => (typeof value === 'bigint' ? new DuckDBDecimalValue(value, width, scale) : value)
  }
  if (type instanceof DuckDBTimestampType) {
    return (value) => (typeof value === 'bigint' ? new DuckDBTimestampValue(value) : value)
  }
  if (type instanceof DuckDBDateType) {
    return (value) =>
      typeof value === 'string' ? new DuckDBDateValue(Date.parse(value) / 86_400_000) : value
  }
  return (value) => value
}
