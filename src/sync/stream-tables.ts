import {hash} from 'node:crypto'
import {
  BIGINT,
  BOOLEAN,
  DATE,
  DECIMAL,
  type DuckDBType,
  ENUM,
  INTEGER,
  TIMESTAMP,
  VARCHAR,
} from '@duckdb/node-api'
import {type Column, optionalColumnsOf, type Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import type {ColumnValue, Observation, Quarantined} from '../core/types.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import {appendRows, createRowBuffer} from '../store/row-buffer.ts'
import {buildDigestSql, canonicalSql} from '../store/sql.ts'

/** The staged table of looks and replays. */
export const BESIDE = 'staged_beside'

/** `gone`: the own page answered 404 or 410. */
const SOURCES = ['list', 'detail', 'gone', 'replay', 'webhook'] as const

export function tablesOf({name, confirmed, mapped}: Stream) {
  return {
    version: `history.raw.${name}_version`,
    head: `history.raw.${name}_head`,
    staged: `temp.staged_${name}`,
    confirmation: confirmed === undefined ? null : `history.raw.${name}_confirmation`,
    extra: mapped === undefined ? null : `history.raw.${name}_extra`,
  }
}

export function amountOf({amountColumn}: Stream): string {
  return amountColumn ?? 'cast(0 as decimal(18, 2))'
}

/** A column, or another expression of its values, in the form used for comparisons. */
export function comparedSql({columns}: Stream, column: string, value: string = column): string {
  const {isCanonical, mayBeBlank} = columns.find(({name}) => name === column) ?? {}
  if (mayBeBlank) return `case when trim(${value}) <> '' then ${value} end`
  return isCanonical ? canonicalSql(value) : value
}

/** Statuses in any spelling. */
export interface Statuses {
  settled: readonly string[]
  ended: readonly string[]
}

/** Each own page and each list of a parent is read again within about this many days. */
export const ROTATION_DAYS = 30
/** What was read within these hours counts for tonight: a night may begin sooner than the last. */
export const TONIGHT_HOURS = 20

/** For {@link isSettledSql} and {@link hasEndedSql}. */
export async function setStatuses(db: Database, statuses: Statuses): Promise<void> {
  for (const [name, values] of Object.entries(statuses))
    await db.run(
      `set variable ${name} = list_transform([${values.map(quoteLiteral).join(', ')}]::varchar[], lambda status: ${canonicalSql('status')})`,
    )
}

const isOneOf = (stream: Stream, name: keyof Statuses, value?: string) =>
  stream.settled
    ? `coalesce(list_contains(getvariable('${name}'), ${comparedSql(stream, stream.settled.column, value)}), false)`
    : 'false'

/** `value` is another expression of the settled column. */
export const isSettledSql = (stream: Stream, value?: string): string => isOneOf(stream, 'settled', value)

export const hasEndedSql = (stream: Stream, value?: string): string => isOneOf(stream, 'ended', value)

/** The staged lists of a walk cover the row. */
export function buildReachSql({name, parent}: Stream, walkId: string): string {
  if (!parent) return 'true'
  return `${parent.column} in (
    select parent_id from temp.staged_listing
    where walk_id = ${quoteLiteral(walkId)} and stream = ${quoteLiteral(name)} and outcome = 'listed'
  )`
}

const duckTypes: Record<Column['type'], DuckDBType> = {
  VARCHAR,
  'DECIMAL(18,2)': DECIMAL(18, 2),
  TIMESTAMP,
}

/** Closed lists of words are ENUMs, which enter the engine as numbers. */
function listStaged({idColumn, columns}: Stream): [name: string, type: DuckDBType][] {
  const precisions = columns.map(({precisionColumn}) => precisionColumn)
  const own = columns.flatMap(({name, type, mayBeAbsent}): [string, DuckDBType][] => [
    [name, precisions.includes(name) ? ENUM(['date', 'instant']) : duckTypes[type]],
    ...(mayBeAbsent ? [[`${name}_present`, BOOLEAN] satisfies [string, DuckDBType]] : []),
  ])
  return [
    ['source', ENUM(SOURCES)],
    ['page_no', INTEGER],
    ['position', INTEGER],
    ['observed_at', TIMESTAMP],
    [idColumn, VARCHAR],
    ...own,
    ['unknown_fields', VARCHAR],
    ['mapped', VARCHAR],
  ]
}

export async function createStaged(
  db: Database,
  stream: Stream,
  table: string = `staged_${stream.name}`,
): Promise<void> {
  const columns = listStaged(stream).map(([name, type]) => `${name} ${type}`)
  await db.run(`create or replace temp table ${table} (${columns.join(', ')})`)
}

export function createStagedRows(stream: Stream) {
  const rows = createRowBuffer(listStaged(stream).map(([, type]) => type))

  return {
    /** `pageNo` is 0 for own pages. */
    push(
      {observedAt, id, fields, unknownFields, mapped}: Observation,
      place: {source: (typeof SOURCES)[number]; pageNo: number; position: number},
    ): void {
      const row: ColumnValue[] = [place.source, place.pageNo, place.position, observedAt, id]
      for (const {name, mayBeAbsent} of stream.columns) {
        row.push(fields[name] ?? null)
        if (mayBeAbsent) row.push(fields[name] !== undefined)
      }
      row.push(unknownFields, mapped ?? null)
      rows.push(row)
    },
    append(db: Database, table = `staged_${stream.name}`): Promise<void> {
      return rows.append(db, table)
    },
  }
}

/** Digest of a staged row: its columns, and which optional ones it has. */
export function buildListHashSql(stream: Stream): string {
  const optional = optionalColumnsOf(stream).map(({name}) => `case when ${name}_present then '${name}' end`)
  return buildRowHashSql(stream, optional)
}

/** Digest of the contract's columns; nulls and empty texts differ. */
export function buildRowHashSql({columns}: Stream, others: readonly string[] = []): string {
  const names = columns.map(({name}) => name)
  return buildDigestSql(names, others)
}

export async function rebuildHead(db: Database, stream: Stream): Promise<void> {
  const {head} = tablesOf(stream)
  await db.run(`delete from ${head}`)
  await db.run(`insert into ${head} by name ${buildHeadSql(stream)}`)
}

/**
 * Carries late observations in `change` over to the latest states: fields that later observations left out, and all fields of
 * records that have been absent since.
 */
export async function carryLate(db: Database, stream: Stream): Promise<void> {
  const {head} = tablesOf(stream)
  const {idColumn} = stream
  const carried = [...stream.columns.map(({name}) => name), 'row_hash']
  const late = `${idColumn} in (select ${idColumn} from temp.change where is_late)`
  await db.run(
    `update ${head} as head set ${carried.map((name) => `${name} = made.${name}`).join(', ')}
     from (${buildHeadSql(stream, late)}) as made
     where head.${idColumn} = made.${idColumn}`,
  )
}

/** A field that an observation left out keeps its last value; absences keep all fields. */
export function buildHeadSql(stream: Stream, condition = 'true'): string {
  const {idColumn} = stream
  const columns = stream.columns.map(({name, mayBeAbsent}) => {
    const isShown = mayBeAbsent ? `${name}_present` : `kind = 'seen'`
    return `last_value(case when ${isShown} then {'it': ${name}} end ignore nulls) over so_far as ${name}`
  })
  const values = stream.columns.map(({name}) => `${name}.it as ${name}`)
  return `
    with carried as (
      select
        ${idColumn},
        kind,
        walk_id,
        observed_at,
        business_date,
        coalesce(last_value(nullif(list_hash, 0) ignore nulls) over so_far, cast(0 as uhugeint)) as list_hash,
        ${columns.join(', ')},
        max(observed_at) filter (where source in ('detail', 'webhook')) over so_far as detail_at,
        row_number() over (partition by ${idColumn} order by observed_at desc, seq desc) as recency
      from ${tablesOf(stream).version}
      where ${condition}
      window so_far as (partition by ${idColumn} order by observed_at, seq)
    ),
    latest as (
      select * exclude (recency) replace (${values.join(', ')})
      from carried
      where recency = 1
    )
    select *, ${buildRowHashSql(stream)} as row_hash
    from latest`
}

/** Tables in memory for what walks have read. They end with their run; the next run fills them again from the tape. */
export async function createStage(db: Database): Promise<void> {
  for (const stream of STREAMS) await createStaged(db, stream)
  await db.run(
    ['listing', 'quarantine']
      .map((name) => `create or replace temp table staged_${name} as from history.raw.${name} limit 0`)
      .join(';'),
  )
}

export async function clearStage(db: Database, stream: Stream, walkId: string): Promise<void> {
  const ofWalk = `where walk_id = ${quoteLiteral(walkId)}`
  await db.run(
    `delete from ${tablesOf(stream).staged};
     delete from temp.staged_listing ${ofWalk}; delete from temp.staged_quarantine ${ofWalk}`,
  )
}

/** `place` is `page/position`, the id of a deal for its own page, or `deal/page/position` in a list of children. */
export type RejectedRecord = Quarantined & {source: 'list' | 'detail'; place: string}

/** Stages the places of rejected records on their tape, never their content. */
export async function stageQuarantined(
  db: Database,
  stream: Stream,
  {walkId, businessDate}: {walkId: string; businessDate: string},
  records: readonly RejectedRecord[],
): Promise<void> {
  const rows = records.map(({source, place, id, path, reason, observedAt}): ColumnValue[] => {
    const quarantineId = `q_${hash('sha256', `${walkId} ${source} ${place}`).slice(0, 12)}`
    const seen = [quarantineId, stream.name, walkId, source, id, path, reason, observedAt, businessDate]
    return [...seen, null, null, place]
  })
  const types = [...Array<DuckDBType>(7).fill(VARCHAR), TIMESTAMP, DATE, TIMESTAMP, TIMESTAMP, VARCHAR]
  await appendRows(db, {table: 'staged_quarantine', types}, rows)
}

/** Stages rows in the columns of `raw.listing`. */
export function stageLists(db: Database, lists: readonly ColumnValue[][]): Promise<void> {
  const types = [...Array<DuckDBType>(4).fill(VARCHAR), TIMESTAMP, ...Array<DuckDBType>(4).fill(BIGINT)]
  return appendRows(db, {table: 'staged_listing', types}, lists)
}
