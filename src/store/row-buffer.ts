import {
  DuckDBBigIntType,
  DuckDBBooleanType,
  DuckDBDataChunk,
  DuckDBDateType,
  DuckDBDecimalType,
  DuckDBEnumType,
  DuckDBIntegerType,
  DuckDBTimestampType,
  type DuckDBType,
  DuckDBVarCharType,
} from '@duckdb/node-api'
import duckdb, {type Vector} from '@duckdb/node-bindings'
import {DAY_MS} from '../core/clock.ts'
import type {ColumnValue} from '../core/types.ts'
import type {Database} from './database.ts'

const CHUNK_ROWS = 2048

/**
 * Writes into the engine's own vectors. Those of `@duckdb/node-api` take an object for each value and keep every text on the
 * JavaScript heap until the end of a chunk: a load of a million deals takes a tenth longer with them, and 150 MB more.
 */
export function createRowBuffer(types: readonly DuckDBType[]) {
  const chunks: DuckDBDataChunk[] = []
  let columns: Column[] = []
  let rows = CHUNK_ROWS

  function startChunk(): void {
    const chunk = DuckDBDataChunk.create(types, CHUNK_ROWS)
    columns = types.map((type, index) => openColumn(type, duckdb.data_chunk_get_vector(chunk.chunk, index)))
    chunks.push(chunk)
    rows = 0
  }

  function endChunk(): void {
    for (const column of columns) column.end()
    const last = chunks.at(-1)
    if (last) last.rowCount = rows
    columns = []
  }

  return {
    /** @throws Error if a value does not fit its column */
    push(row: readonly ColumnValue[]): void {
      if (rows === CHUNK_ROWS) {
        endChunk()
        startChunk()
      }
      for (let index = 0; index < columns.length; index += 1) columns[index]?.put(rows, row[index] ?? null)
      rows += 1
    },
    /** Appends to a temporary table. Call it once. */
    async append(db: Database, table: string): Promise<void> {
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

type Column = ReturnType<typeof openColumn>
function openColumn(type: DuckDBType, vector: Vector) {
  const {write, items} = openValues(type, vector)
  /** One bit per row; undefined while there is no null. */
  let valid: Uint8Array<ArrayBuffer> | undefined
  return {
    put(row: number, value: ColumnValue): void {
      if (value === null) {
        valid ??= new Uint8Array(CHUNK_ROWS / 8).fill(0xff)
        valid[row >> 3] = (valid[row >> 3] ?? 0) & ~(1 << (row & 7))
      } else if (!write(row, value)) throw new Error(`a value does not fit ${type}`)
    },
    end(): void {
      if (items) duckdb.copy_data_to_vector(vector, 0, items.buffer, 0, items.byteLength)
      if (!valid) return
      duckdb.vector_ensure_validity_writable(vector)
      duckdb.copy_data_to_vector_validity(vector, 0, valid.buffer, 0, valid.byteLength)
    },
  }
}

/** False if the value does not fit. */
type Write = (row: number, value: ColumnValue) => boolean

/**
 * Texts are written one by one; all other values go into an array of numbers: cents, microseconds, days, positions of enum
 * values.
 */
function openValues(
  type: DuckDBType,
  vector: Vector,
): {write: Write; items?: BigInt64Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Uint8Array<ArrayBuffer>} {
  if (type instanceof DuckDBVarCharType) {
    const write: Write = (row, value) => {
      if (typeof value !== 'string') return false
      duckdb.vector_assign_string_element(vector, row, value)
      return true
    }
    return {write}
  }
  if (isLong(type)) {
    const items = new BigInt64Array(CHUNK_ROWS)
    const write: Write = (row, value) => {
      if (typeof value !== 'bigint' || BigInt.asIntN(64, value) !== value) return false
      items[row] = value
      return true
    }
    return {write, items}
  }
  const isByte = type instanceof DuckDBEnumType || type instanceof DuckDBBooleanType
  const items = isByte ? new Uint8Array(CHUNK_ROWS) : new Int32Array(CHUNK_ROWS)
  const numberOf = createCoder(type)
  const write: Write = (row, value) => {
    const number = numberOf(value)
    items[row] = number
    return items[row] === number
  }
  return {write, items}
}

/** The engine holds it in 64 bits; decimals of other widths in fewer or more. */
const isLong = (type: DuckDBType): boolean =>
  type instanceof DuckDBDecimalType
    ? type.width >= 10 && type.width <= 18
    : type instanceof DuckDBTimestampType || type instanceof DuckDBBigIntType

function createCoder(type: DuckDBType): (value: ColumnValue) => number {
  if (type instanceof DuckDBEnumType) return (value) => type.values.indexOf(String(value))
  if (type instanceof DuckDBDateType) return (value) => Date.parse(String(value)) / DAY_MS
  if (type instanceof DuckDBBooleanType || type instanceof DuckDBIntegerType) return Number
  throw new Error(`columns of type ${type} are not written`)
}
