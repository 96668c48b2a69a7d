import {BIGINT, DuckDBTimestampValue, type DuckDBType, TIMESTAMP, VARCHAR} from '@duckdb/node-api'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {ColumnValue, NormalisedPage} from '../types.ts'
import {type Database, inTransaction, quoteLiteral} from '../warehouse/database.ts'
import {withEnoughMemory} from '../warehouse/load-memory.ts'
import {appendRows} from '../warehouse/row-buffer.ts'
import {createTempTable, inParts, isInPart, partOf} from './parts.ts'
import {type RejectedRecord, storeQuarantined} from './quarantine.ts'
import {createStagedRows, isSettledSql, tablesOf} from './stream-tables.ts'
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
  walk: Pick<OpenWalk, 'walkId' | 'businessDate'>
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
export function listParentsInNeed(db: Database, stream: Stream, asked: ParentsAsked): Promise<string[]> {
  return withEnoughMemory(db, () => rankParents(db, stream, asked))
}

async function rankParents(db: Database, stream: Stream, asked: ParentsAsked): Promise<string[]> {
  const {parent} = stream
  if (!parent) return []
  const parents = tablesOf(parent.stream).head
  const known = buildKnownParentsSql(stream, parent.stream, asked.walk.walkId)
  await createTempTable(db, 'known', known)
  await inParts(db, [parents], () => db.run(`insert into temp.known ${known}`))
  const rows = await db.all(
    z.object({id: z.string()}),
    `with doubted as (
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
       from temp.known
     ),
     ranked as (
       select *, row_number() over (order by listed_at nulls last, id) as age_rank from temp.known
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
     where need is not null and not is_in_walk
     order by
       coalesce(attempted_at > listed_at, attempted_at is not null),
       need,
       ${isSettledSql(parent.stream)} desc,
       attempted_at nulls first,
       id
     limit ${asked.limit}`,
    [new DuckDBTimestampValue(asked.now), asked.walk.businessDate, JSON.stringify(asked.announced)],
  )
  await db.run('drop table temp.known')
  return rows.map(({id}) => id)
}

/** The parents of the part under way, each with when its list was read or tried before this walk, and whether it was in it. */
function buildKnownParentsSql(stream: Stream, parents: Stream, walkId: string): string {
  const isThisWalk = `walk_id = ${quoteLiteral(walkId)}`
  return `
    with attempt as (
      select
        parent_id,
        max(observed_at) filter (outcome = 'listed' and not ${isThisWalk}) as listed_at,
        max(observed_at) filter (not ${isThisWalk}) as attempted_at,
        bool_or(${isThisWalk}) as is_in_walk
      from warehouse.raw.listing
      where stream = ${quoteLiteral(stream.name)} and ${isInPart('parent_id')}
      group by parent_id
    )
    select
      p.*,
      p.${parents.idColumn} as id,
      listed_at,
      attempted_at,
      coalesce(is_in_walk, false) as is_in_walk
    from ${partOf(tablesOf(parents).head, parents)} p
    left join attempt on attempt.parent_id = p.${parents.idColumn}
    where p.kind = 'seen'`
}

/** Whether a list of this stream has ever been read to its end. */
export async function hasListed(db: Database, stream: Stream): Promise<boolean> {
  const {has_listed} = await db.one(
    z.object({has_listed: z.boolean()}),
    `select exists (from warehouse.raw.listing where stream = $1 and outcome = 'listed') as has_listed`,
    [stream.name],
  )
  return has_listed
}

const listingTypes: DuckDBType[] = [
  ...Array<DuckDBType>(4).fill(VARCHAR),
  TIMESTAMP,
  ...Array<DuckDBType>(4).fill(BIGINT),
]

/**
 * Stores lists of single parents: their records and their certificates in one transaction, so that a killed run goes on
 * with the next parent.
 *
 * @returns the walk as it stands now
 */
export async function storeListings(
  db: Database,
  stream: Stream,
  walk: OpenWalk,
  group: readonly StagedListing[],
): Promise<OpenWalk> {
  const rows = createStagedRows(stream)
  const rejected: RejectedRecord[] = []
  const certificates: ColumnValue[][] = []
  const total = {pages: 0, records: 0, quarantined: 0, unreadable: 0}
  for (const listing of group) {
    const pages = listing.outcome === 'listed' ? listing.pages : []
    const bad = pages.flatMap(({quarantined}) => quarantined)
    const read = pages.flatMap(({observations}, index) =>
      observations.map((observation, position) => ({observation, pageNo: index + 1, position})),
    )
    for (const {observation, ...place} of read) rows.push(observation, {source: 'list', ...place})
    bad.forEach((record, position) => {
      rejected.push({...record, place: `${listing.parentId}/${position}`})
    })
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
    total.pages += pages.length
    total.records += records
    total.quarantined += bad.length
    total.unreadable += unreadable
  }
  const next: OpenWalk = {
    ...walk,
    pages: walk.pages + total.pages,
    records: walk.records + total.records,
    quarantined: walk.quarantined + total.quarantined,
  }
  const endedAt =
    group
      .map(({observedAt}) => observedAt)
      .toSorted()
      .at(-1) ?? walk.startedAt
  await inTransaction(db, async () => {
    await rows.append(db)
    await appendRows(
      db,
      {catalog: 'warehouse', schema: 'raw', table: 'listing', types: listingTypes},
      certificates,
    )
    await storeQuarantined(db, stream, walk, 'list', rejected)
    await db.run(
      `update warehouse.raw.walk set pages = $2, records = $3, quarantined = $4,
         unreadable_ids = unreadable_ids + $5, ended_at = greatest(ended_at, $6)
       where walk_id = $1`,
      [
        walk.walkId,
        next.pages,
        next.records,
        next.quarantined,
        total.unreadable,
        new DuckDBTimestampValue(endedAt),
      ],
    )
  })
  return next
}

/** Notes whether every list that was needed was read. */
export async function closeListings(
  db: Database,
  walk: OpenWalk,
  end: {isComplete: boolean; waitedMs: number},
): Promise<OpenWalk> {
  await db.run(
    'update warehouse.raw.walk set is_complete = $2, waited_ms = waited_ms + $3 where walk_id = $1',
    [walk.walkId, end.isComplete, end.waitedMs],
  )
  return {...walk, isComplete: end.isComplete, waitedMs: walk.waitedMs + end.waitedMs}
}
