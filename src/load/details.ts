import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import {type Column, optionalColumnsOf, type Stream} from '../contract/stream.ts'
import type {Observation, Quarantined, WireRecord} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {type RejectedRecord, stageQuarantined} from './quarantine.ts'
import {createStagedRows, isSettledSql, tablesOf} from './stream-tables.ts'
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
 * changed ones, then those not looked at for longest. Records this walk has already fetched are left out, and in mode `auto`
 * those whose list rows lack nothing.
 *
 * Reads the temporary tables of `findAbsences`.
 *
 * The first is one that was listed, so that its answer proves the path.
 *
 * @param asked `now` on the business clock, microseconds since the epoch; at most `limit` records
 */
export async function listDetailCandidates(
  db: Database,
  stream: Stream,
  asked: {now: bigint; limit: number; mode: 'auto' | 'on'},
): Promise<DetailCandidate[]> {
  const isWhole =
    asked.mode === 'auto' && (await namesMappedFields(db, stream)) ? buildWholeSql(stream) : 'false'
  const {head} = tablesOf(stream)
  const inNeed = `need, ${isSettledSql(stream)} desc, detail_at nulls first, id`
  const rows = await db.all(
    z.record(z.string(), z.string().nullable()),
    `with candidate as materialized (${buildCandidatesSql(stream, isWhole)}),
     quota as (
       select greatest(
         (select least(1, count(*)) from absence),
         ceil(count(*) / ${ROTATION_DAYS}.0) - count(*) filter (detail_at > $1 - interval 1 day)
       ) as records
       from ${head} where kind = 'seen'
     ),
     needed as (
       from candidate where need in ('0', '1')
       union all
       from candidate where need = '2'
       qualify detail_at <= $1 - interval ${ROTATION_DAYS} day
         or row_number() over (order by detail_at, id) <= (select records from quota)
       union all
       from candidate where need = '3'
       qualify row_number() over (order by id) <= (select least(1, count(*)) from absence)
     )
     select * exclude (detail_at)
     from needed
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

/** SQL condition: a list row holds every field of the contract. */
function buildWholeSql(stream: Stream): string {
  return ['true', ...optionalColumnsOf(stream).map(({name}) => `${name}_present`)].join(' and ')
}

/** Whether the list names each mapped field: a row of such a list that leaves one out has none. */
async function namesMappedFields(db: Database, {mapped = []}: Stream): Promise<boolean> {
  if (mapped.length === 0) return true
  const {named} = await db.one(
    z.object({named: z.coerce.number()}),
    `select count(distinct said.name) as named
     from (select unnest(from_json(mapped, '[{"name":"varchar"}]')) as said from incoming where source = 'list')`,
  )
  return named === mapped.length
}

/** SQL of absent records (need 0), new and changed ones (1), those that are as they were (2), and those that lack nothing (3). */
function buildCandidatesSql(stream: Stream, isWhole: string): string {
  const {idColumn} = stream
  return `
    with listed as (
      select
        i.*,
        h.detail_at,
        case
          when ${isWhole} then '3'
          when h.list_hash is null or i.list_hash <> h.list_hash or h.detail_at is null then '1'
          else '2'
        end as need
      from incoming i
      left join ${tablesOf(stream).head} h on h.${idColumn} = i.${idColumn}
      where i.source = 'list'
    )
    select ${idColumn} as id, '0' as need, null::timestamp as detail_at, ${listWireFields(stream, 'absence')}
    from absence
    where ${idColumn} not in (select ${idColumn} from incoming)
    union all by name
    select ${idColumn} as id, need, detail_at, ${listWireFields(stream, 'listed')}
    from listed`
}

/**
 * The columns as wire fields in text; what a staged row left out is null. What a record may leave out is not told from its
 * last state: it is carried on anyway, and would pass for an answer.
 */
export function listWireFields(stream: Stream, table: 'listed' | 'absence'): string {
  const precisions = stream.columns.map(({precisionColumn}) => precisionColumn)
  return stream.columns
    .filter(({name, mayBeAbsent}) => !precisions.includes(name) && !(mayBeAbsent && table === 'absence'))
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

/** Stages what a group of records' own pages said. */
export async function stageDetails(
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
  await rows.append(db)
  await stageQuarantined(db, stream, walk, 'detail', rejected)
}
