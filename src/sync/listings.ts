import {BIGINT, DuckDBTimestampValue, type DuckDBType, TIMESTAMP, VARCHAR} from '@duckdb/node-api'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {ColumnValue, NormalisedPage} from '../core/types.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import {appendRows} from '../store/row-buffer.ts'
import {type RejectedRecord, stageQuarantined} from './quarantine.ts'
import {createStagedRows, isSettledSql, STAGE, tablesOf} from './stream-tables.ts'
import type {OpenWalk} from './walk-state.ts'

/** Each parent's list is read again within about this many days. */
const ROTATION_DAYS = 30

/** What one parent's list said: every page of it, or that it could not be read. */
export type StagedListing = {parentId: string; observedAt: bigint} & (
  | {outcome: 'listed'; pages: NormalisedPage[]}
  | {outcome: 'gone' | 'failed'}
)

/** A parent of which the source has told something, and when: ISO 8601. */
export interface Announcement {
  id: string
  at: string
}

interface ParentsAsked {
  businessDate: string
  now: bigint
  limit: number
  announced: readonly Announcement[]
}

/**
 * The parents whose lists are to be read, in order of need: those with a child that was missed on an earlier day, those
 * never listed, or changed or announced since, then those not listed for longest; last those whose list could not be read the last
 * time, so that one of them holds up no other. It depends on the walks before alone: a walk that is taken up again goes
 * through the same parents, without those it has listed.
 *
 * @param asked `now` on the business clock, microseconds since the epoch; at most `limit` parents
 */
export async function listParentsInNeed(
  db: Database,
  stream: Stream,
  asked: ParentsAsked,
): Promise<string[]> {
  const {parent} = stream
  if (!parent) return []
  const rows = await db.all(
    z.object({id: z.string()}),
    `with known as materialized (${buildKnownParentsSql(stream, parent.stream)}),
     doubted as (
       select distinct ${parent.column} as id
       from ${tablesOf(stream).head}
       where kind = 'missing' and business_date < cast($2 as date)
     ),
     announced as (
       select deal ->> 'id' as id, cast(deal ->> 'at' as timestamp) as announced_at
       from (select unnest(cast($3 as json[])) as deal)
     ),
     quota as (
       select ceil(count(*) / ${ROTATION_DAYS}.0) - count(*) filter (listed_at > $1 - interval 1 day) as lists
       from known
     ),
     ranked as (
       select *, row_number() over (order by listed_at nulls last, id) as age_rank from known
     ),
     needed as (
       select
         *,
         case
           when id in (from doubted) then 0
           when listed_at is null or greatest(observed_at, announced_at) > listed_at then 1
           when listed_at <= $1 - interval ${ROTATION_DAYS} day or age_rank <= (from quota) then 2
         end as need
       from ranked
       left join announced using (id)
     )
     select id
     from needed
     where need is not null
       and id not in (select parent_id from temp.staged_listing where stream = ${quoteLiteral(stream.name)})
     order by
       coalesce(attempted_at > listed_at, attempted_at is not null),
       need,
       ${isSettledSql(parent.stream)} desc,
       attempted_at nulls first,
       id
     limit ${asked.limit}`,
    [new DuckDBTimestampValue(asked.now), asked.businessDate, JSON.stringify(asked.announced)],
  )
  return rows.map(({id}) => id)
}

/** SQL of the parents, each with when its list was read or tried before this walk. */
function buildKnownParentsSql(stream: Stream, parents: Stream): string {
  return `
    with attempt as (
      select
        parent_id,
        max(observed_at) filter (outcome = 'listed') as listed_at,
        max(observed_at) as attempted_at
      from warehouse.raw.listing
      where stream = ${quoteLiteral(stream.name)}
      group by parent_id
    )
    select p.*, p.${parents.idColumn} as id, listed_at, attempted_at
    from ${tablesOf(parents).head} p
    left join attempt on attempt.parent_id = p.${parents.idColumn}
    where p.kind = 'seen'`
}

/** Whether a list of this stream has ever been read to its end. */
export async function hasListed(db: Database, stream: Stream): Promise<boolean> {
  const {has_listed} = await db.one(
    z.object({has_listed: z.boolean()}),
    `select exists (
       from (from warehouse.raw.listing union all from temp.staged_listing) where stream = $1 and outcome = 'listed'
     ) as has_listed`,
    [stream.name],
  )
  return has_listed
}

const listingTypes: DuckDBType[] = [
  ...Array<DuckDBType>(4).fill(VARCHAR),
  TIMESTAMP,
  ...Array<DuckDBType>(4).fill(BIGINT),
]

/** Stages lists of single parents: their records and their certificates. */
export async function stageListings(
  db: Database,
  stream: Stream,
  walk: OpenWalk,
  group: readonly StagedListing[],
): Promise<void> {
  const rows = createStagedRows(stream)
  const rejected: RejectedRecord[] = []
  const certificates: ColumnValue[][] = []
  for (const listing of group) {
    const pages = listing.outcome === 'listed' ? listing.pages : []
    const bad = pages.flatMap(({quarantined}, index) =>
      quarantined.map((record) => ({
        ...record,
        place: `${listing.parentId}/${index + 1}/${record.position}`,
      })),
    )
    const read = pages.flatMap(({observations}, index) =>
      observations.map((observation, position) => ({observation, pageNo: index + 1, position})),
    )
    for (const {observation, ...place} of read) rows.push(observation, {source: 'list', ...place})
    rejected.push(...bad)
    const unreadable = bad.filter(({id}) => id === null).length
    const records = read.length + bad.length
    const counts = [pages.length, records, bad.length, unreadable].map(BigInt)
    certificates.push([
      walk.walkId,
      stream.name,
      listing.parentId,
      listing.outcome,
      listing.observedAt,
      ...counts,
    ])
    walk.pages += pages.length
    walk.records += records
    walk.quarantined += bad.length
    walk.unreadableIds += unreadable
    if (walk.endedAt === null || listing.observedAt > walk.endedAt) walk.endedAt = listing.observedAt
  }
  await rows.append(db)
  await appendRows(db, {...STAGE, table: 'staged_listing', types: listingTypes}, certificates)
  await stageQuarantined(db, stream, walk, 'list', rejected)
}
