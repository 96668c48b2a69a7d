import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import type {Column, Stream} from '../contract/stream.ts'
import type {Observation, Quarantined, WireRecord} from '../types.ts'
import {type Database, inTransaction} from '../warehouse/database.ts'
import {type RejectedRecord, storeQuarantined} from './quarantine.ts'
import {createStagedRows, tablesOf} from './stream-tables.ts'
import type {OpenWalk} from './walk-state.ts'

/** Each record is looked at again within about this many days. */
const ROTATION_DAYS = 30

/** A record whose own page is to be fetched, and what is known of it without. */
export interface DetailCandidate {
  id: string
  /** Wire fields known from the list row of this walk, or from the last state. */
  known: WireRecord
}

/** What one record's own page said. */
export type StagedDetail =
  | {candidate: DetailCandidate; observation: Observation}
  | {candidate: DetailCandidate; gone: {id: string; observedAt: bigint}}
  | {candidate: DetailCandidate; rejected: Quarantined}

/**
 * The records whose own page is to be fetched, in order of need: absent ones (gone or only overlooked?), new and
 * changed ones, then those not looked at for longest. Records this walk has already fetched are left out.
 *
 * Reads the temporary tables of `planChanges`.
 *
 * The first is one that was listed, so that its answer proves the path.
 *
 * @param asked `now` on the business clock, microseconds since the epoch; at most `limit` records
 */
export async function listDetailCandidates(
  db: Database,
  stream: Stream,
  asked: {now: bigint; limit: number},
): Promise<DetailCandidate[]> {
  const {idColumn} = stream
  const {head} = tablesOf(stream)
  const inNeed = `need, ${stream.detailOrder}, detail_at nulls first, id`
  const rows = await db.all(
    z.record(z.string(), z.string().nullable()),
    `with quota as (
       select greatest(
         (select least(1, count(*)) from absence),
         ceil(count(*) / ${ROTATION_DAYS}.0) - count(*) filter (detail_at > $1 - interval 1 day)
       ) as records
       from ${head} where kind = 'seen'
     ),
     absent as (
       select ${idColumn} as id, '0' as need, null::timestamp as detail_at,
         ${listWireFields(stream, 'absence')}
       from absence
       where ${idColumn} not in (select ${idColumn} from incoming)
     ),
     listed as (
       select i.*, h.list_hash as head_list_hash, h.detail_at as head_detail_at
       from incoming i
       left join ${head} h on h.${idColumn} = i.${idColumn}
       where i.source = 'list'
     ),
     changed as (
       select ${idColumn} as id, '1' as need, head_detail_at as detail_at,
         ${listWireFields(stream, 'listed')}
       from listed
       where head_list_hash is null or list_hash <> head_list_hash or head_detail_at is null
     ),
     aged as (
       select ${idColumn} as id, '2' as need, head_detail_at as detail_at,
         ${listWireFields(stream, 'listed')}
       from listed
       where list_hash = head_list_hash and head_detail_at is not null
       qualify head_detail_at <= $1 - interval ${ROTATION_DAYS} day
         or row_number() over (order by head_detail_at, ${idColumn}) <= (select records from quota)
     ),
     candidate as (
       from absent union all by name from changed union all by name from aged
     )
     select * exclude (detail_at)
     from candidate
     order by row_number() over (order by need = '0', ${inNeed}) <> 1, ${inNeed}
     limit ${asked.limit}`,
    [new DuckDBTimestampValue(asked.now)],
  )
  return rows.map(({id, ...row}) => {
    const known: WireRecord = {[stream.idField]: id}
    for (const {name} of stream.columns) {
      const value = row[name]
      if (stream.wireFields.includes(name) && value !== null && value !== undefined) known[name] = value
    }
    return {id: id ?? '', known}
  })
}

/** The columns as wire fields in text; what a staged row left out is null. */
export function listWireFields(stream: Stream, table: 'listed' | 'absence'): string {
  const precisions = stream.columns.map(({precisionColumn}) => precisionColumn)
  return stream.columns
    .filter(({name}) => !precisions.includes(name))
    .map((column) => {
      const text = buildWireText(column)
      const isPartial = column.mayBeAbsent && table === 'listed'
      return `${isPartial ? `case when ${column.name}_present then ${text} end` : text} as ${column.name}`
    })
    .join(', ')
}

function buildWireText({name, type, precisionColumn}: Column): string {
  if (type !== 'TIMESTAMP') return `cast(${name} as varchar)`
  const instant = `strftime(${name}, '%Y-%m-%dT%H:%M:%S.%fZ')`
  if (precisionColumn === undefined) return instant
  return `case ${precisionColumn} when 'date' then strftime(${name}, '%Y-%m-%d') else ${instant} end`
}

/** Stores what a group of records' own pages said, in one transaction. */
export async function storeDetails(
  db: Database,
  stream: Stream,
  walk: OpenWalk,
  group: readonly StagedDetail[],
): Promise<void> {
  const rows = createStagedRows(stream)
  const rejected: RejectedRecord[] = []
  for (const detail of group) {
    const {id} = detail.candidate
    if ('observation' in detail) {
      rows.push(detail.observation, {source: 'detail', pageNo: 0, position: 0})
    } else if ('gone' in detail) {
      rows.pushGone(detail.gone)
    } else {
      rejected.push({...detail.rejected, id, place: id})
    }
  }
  await inTransaction(db, async () => {
    await rows.append(db)
    await storeQuarantined(db, stream, walk, 'detail', rejected)
  })
}
