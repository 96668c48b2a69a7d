import {BIGINT, BOOLEAN, DECIMAL, type DuckDBType, TIMESTAMP, VARCHAR} from '@duckdb/node-api'
import {type Column, optionalColumnsOf, type Stream} from '../contract/stream.ts'
import type {ColumnValue, Observation} from '../types.ts'
import type {AppendTarget} from '../warehouse/database.ts'

/** Where a staged observation came from; `gone` says that the record's own page answered 404 or 410. */
export type StagedSource = 'list' | 'detail' | 'gone'

/** The tables of a stream, catalog and schema included. */
export interface StreamTables {
  version: string
  head: string
  staged: string
}

/** The names of a stream's tables in the warehouse. */
export function tablesOf(stream: Stream): StreamTables {
  return {
    version: `warehouse.raw.${stream.name}_version`,
    head: `warehouse.raw.${stream.name}_head`,
    staged: `warehouse.raw.staged_${stream.name}`,
  }
}

/** A stream's column names as an SQL list, each with its `_present` flag where it has one. */
export function listColumns(stream: Stream, alias?: string): string {
  const prefix = alias ? `${alias}.` : ''
  return stream.columns
    .flatMap(({name, mayBeAbsent}) => [name, ...(mayBeAbsent ? [`${name}_present`] : [])])
    .map((name) => prefix + name)
    .join(', ')
}

const duckTypes: Record<Column['type'], DuckDBType> = {
  VARCHAR,
  'DECIMAL(18,2)': DECIMAL(18, 2),
  TIMESTAMP,
}

/** The staged table of a stream as an appender wants it. */
export function stagedTarget(stream: Stream): AppendTarget {
  const columns = stream.columns.flatMap(({type, mayBeAbsent}) => [
    duckTypes[type],
    ...(mayBeAbsent ? [BOOLEAN] : []),
  ])
  const leading = [VARCHAR, VARCHAR, BIGINT, BIGINT, TIMESTAMP, VARCHAR, VARCHAR]
  return {
    catalog: 'warehouse',
    schema: 'raw',
    table: `staged_${stream.name}`,
    types: [...leading, ...columns, VARCHAR],
  }
}

/** Where a staged row stands in its walk. */
export interface StagedPlace {
  walkId: string
  source: StagedSource
  pageNo: number
  /** Of the list row this observation belongs to. */
  listHash: string
}

/** One observation as a row of the staged table. */
export function toStagedRow(
  stream: Stream,
  observation: Observation,
  place: StagedPlace,
  position: number,
): ColumnValue[] {
  const {walkId, source, pageNo, listHash} = place
  const row: ColumnValue[] = [
    walkId,
    source,
    BigInt(pageNo),
    BigInt(position),
    observation.observedAt,
    observation.id,
    listHash,
  ]
  let flag = 0
  stream.columns.forEach((column, index) => {
    row.push(observation.values[index] ?? null)
    if (column.mayBeAbsent) row.push(observation.present[flag++] ?? false)
  })
  row.push(observation.payload)
  return row
}

/** A row that says only that a record is gone. */
export function toGoneRow(
  stream: Stream,
  gone: {id: string; observedAt: bigint},
  walkId: string,
): ColumnValue[] {
  const nothing: Observation = {
    id: gone.id,
    values: [],
    present: optionalColumnsOf(stream).map(() => false),
    payload: null,
    hash: '',
    observedAt: gone.observedAt,
  }
  return toStagedRow(stream, nothing, {walkId, source: 'gone', pageNo: 0, listHash: ''}, 0)
}

/** SQL text of a record's digest over its contract columns; nulls and empty texts differ. */
export function buildRowHashSql(stream: Stream): string {
  const parts = stream.columns.map(({name}) => `coalesce(cast(${name} as varchar), chr(0))`)
  return `md5(concat_ws(chr(31), ${parts.join(', ')}))`
}
