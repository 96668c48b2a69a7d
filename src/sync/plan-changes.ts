import {z} from 'zod'
import {type Column, optionalColumnsOf, type Stream} from '../contract/stream.ts'
import type {ChangeCounts} from '../core/types.ts'
import {type Database, quoteLiteral} from '../store/database.ts'
import type {Frame} from '../store/tape.ts'
import {
  amountOf,
  BESIDE,
  buildListHashSql,
  buildReachSql,
  buildRowHashSql,
  comparedSql,
  hasEndedSql,
  tablesOf,
} from './stream-tables.ts'
import {instant} from './tapes.ts'

export const walkBegin = z.object({
  kind: z.literal('walk'),
  stream: z.string(),
  tape: z.string(),
  baseUrl: z.string(),
  pageSize: z.number(),
  /** `status=underwriting`, or empty for every record. */
  filter: z.string(),
  /** The sha256 of what `source.json` said. */
  described: z.string().optional(),
  businessDate: z.string(),
  startedAt: instant,
  resumed: z.number(),
  /** What an operator accepted although a guard would refuse it. */
  accepted: z.object({what: z.array(z.string()), who: z.string(), why: z.string().nullable()}).nullable(),
})

/** Updated as answers are taken in. Instants are microseconds since the epoch. */
export type OpenWalk = ReturnType<typeof createWalk>

export function createWalk(begin: Frame) {
  const {tape: walkId, kind: _kind, stream: _stream, ...asked} = walkBegin.parse(begin)
  return {
    ...asked,
    walkId,
    /** Start of the last request for a list. */
    endedAt: null as bigint | null,
    /** Cursors in order; empty text for the first page. */
    cursors: [] as string[],
    nextCursor: null as string | null,
    /** When `nextCursor` was received, real clock; null before the first page. */
    cursorReceivedAt: null as bigint | null,
    envelope: null as string | null,
    isComplete: false,
    pages: 0,
    records: 0,
    quarantined: 0,
    unreadableIds: 0,
    /** Own pages or lists that could be read, and that could not. */
    details: {fetched: 0, failed: 0},
    waitedMs: 0,
    /** Null until its changes are planned. */
    certified: null as {distinct_records: number; duplicates: number; amount_total: string} | null,
  }
}

export type Batch = OpenWalk | ReadBeside

/** A look or replay: it proves nothing about records outside it. */
export interface ReadBeside {
  walkId: null
  businessDate: string
  /** When the open walk is applied, it must not supersede this. */
  isWalkOpen: boolean
}

const count = z.coerce.number()
const planRow = z.object({
  /** Rows of lists that a walk saw. The next two count a record seen twice once, by its later request. */
  listed: count,
  distinct_records: count,
  amount_total: z.string(),
  created: count,
  updated: count,
  restored: count,
  unchanged: count,
  missing: count,
  vanished: count,
  /** Records that this walk covers and that were present before, missing ones included. */
  known: count,
  absent: count,
  /** Absent for the first time. Under a filter only those that vanished, since others may have left the filter. */
  newlyAbsent: count,
  /** Versions, absences included. */
  appended: count,
  /** Records observed earlier than their latest state. */
  late: count,
})

export type ChangePlan = Awaited<ReturnType<typeof planChanges>>

/**
 * Compares the staged rows with the latest known states. Leaves the temporary table `change`, with a row for each record that
 * leaves a trace: its `kind` is `seen`, or `missing` or `vanished` if it is proved absent; two rows for one replayed that has
 * vanished since. Sets the totals of a walk's certificate. Another spelling is appended, but counts as unchanged.
 */
export async function planChanges(db: Database, stream: Stream, batch: Batch) {
  await findAbsences(db, stream, batch)
  await db.run(`create or replace temp table change as ${buildChangeSql(stream, batch)}`)
  if (batch.walkId === null && !stream.parent) await db.run(buildGoneSinceSql(stream))
  const {listed, distinct_records, amount_total, ...planned} = await db.one(
    planRow,
    buildPlanSql(stream, batch),
  )
  if (batch.walkId !== null)
    batch.certified = {distinct_records, amount_total, duplicates: listed - distinct_records}
  const {known, absent, newlyAbsent, appended, late, ...counts} = planned
  return {counts: counts satisfies ChangeCounts, known, absent, newlyAbsent, appended, late}
}

export const stagedOf = (stream: Stream, {walkId}: Batch) =>
  walkId === null ? `temp.${BESIDE}` : tablesOf(stream).staged

/** Creates the temporary table `absence` and what it is computed from: enough to choose the own pages to fetch. */
export async function findAbsences(db: Database, stream: Stream, batch: Batch): Promise<void> {
  const {idColumn} = stream
  const staged = stagedOf(stream, batch)
  await db.run(
    `create or replace temp table repeated as
     select ${idColumn} from ${staged} group by ${idColumn} having count(*) > 1;
     ${buildIncomingSql(stream, staged)}`,
  )
  await db.run(`create or replace temp table absence as ${buildAbsenceSql(stream, batch)}`)
}

/**
 * The latest staged row of each record; at the same instant, its own page before the list. Only records staged more than once
 * are sorted.
 */
function buildIncomingSql(stream: Stream, staged: string): string {
  const {idColumn} = stream
  const latestFirst = `observed_at desc, (source <> 'list') desc, page_no desc, position desc`
  const isListed = `source = 'list'`
  const listedAmount = `case when source = 'list' then ${amountOf(stream)} end`
  const listHash = `case when source = 'list' or (source = 'replay' and page_no > 0) then ${buildListHashSql(stream)} end`
  return `
    create or replace temp view incoming as
    select
      *,
      ${isListed} as is_listed,
      ${listedAmount} as listed_amount,
      ${listHash} as list_hash
    from ${staged}
    anti join temp.repeated using (${idColumn})
    union all
    select
      *,
      bool_or(${isListed}) over same_record as is_listed,
      first_value(${listedAmount} ignore nulls) over latest_first as listed_amount,
      first_value(${listHash} ignore nulls) over latest_first as list_hash
    from ${staged}
    semi join temp.repeated using (${idColumn})
    window
      same_record as (partition by ${idColumn}),
      latest_first as (
        partition by ${idColumn}
        order by ${latestFirst}
        rows between unbounded preceding and unbounded following
      )
    qualify row_number() over (partition by ${idColumn} order by ${latestFirst}) = 1`
}

/** The value a column has after observation `i`, given the state `h` before it. */
function carry(stream: Stream, column: Column): string {
  const {name} = column
  if (column.mayBeAbsent) return `case when i.${name}_present then i.${name} else h.${name} end`
  const dated = stream.columns.find(
    (other) => other.precisionColumn && [other.name, other.precisionColumn].includes(name),
  )
  if (!dated?.precisionColumn) return `i.${name}`
  const keepsInstant = `i.${dated.precisionColumn} = 'date' and h.${dated.precisionColumn} = 'instant'
    and cast(i.${dated.name} as date) between cast(h.${dated.name} - interval 12 hour as date)
      and cast(h.${dated.name} + interval 14 hour as date)`
  return `case when ${keepsInstant} then h.${name} else i.${name} end`
}

/** Observation `i` says the same as the state `h` before it, perhaps in another spelling. */
export function buildSameSql(stream: Stream): string {
  const isSame = (column: Column) => {
    const [before, after] = [`h.${column.name}`, `(${carry(stream, column)})`].map((value) =>
      comparedSql(stream, column.name, value),
    )
    return `${before} is not distinct from ${after}`
  }
  return stream.columns.map(isSame).join(' and ')
}

function buildChangeSql(stream: Stream, batch: Batch): string {
  const isKept = batch.walkId === null && batch.isWalkOpen
  const date = `date '${batch.businessDate}'`
  const {idColumn} = stream
  const {head} = tablesOf(stream)
  // A list that lags would otherwise undo what an own page said, whenever that page is not read.
  const saysNothingNew = `i.source = 'list' and h.kind = 'seen' and i.list_hash = h.list_hash and i.observed_at >= h.observed_at`
  const carried = stream.columns.map((column) => {
    const {name} = column
    return `case when ${saysNothingNew} then h.${name} else ${carry(stream, column)} end as ${name}`
  })
  const flags = optionalColumnsOf(stream).map(({name}) => `${name}_present`)
  // An unchanged record leaves no row here, so an unchanged walk costs no memory.
  return `
    with joined as (
      select
        i.${idColumn},
        i.source,
        i.is_listed,
        i.observed_at,
        coalesce(i.list_hash, 0) as own_list_hash,
        coalesce(i.list_hash, h.list_hash, 0) as list_hash,
        ${[...carried, ...flags.map((flag) => `i.${flag}`)].join(',\n        ')},
        h.kind as head_kind,
        h.walk_id as head_walk_id,
        h.observed_at as head_observed_at,
        h.business_date as head_business_date,
        h.row_hash as head_row_hash,
        h.list_hash as head_list_hash,
        h.detail_at as head_detail_at,
        coalesce(i.observed_at < h.observed_at, false) as is_late,
        ${buildSameSql(stream)} as is_same,
        exists (
          from (
            select record_id, observed_at
            from history.raw.quarantine
            where stream = ${quoteLiteral(stream.name)} and replayed_at is null
            union all
            select record_id, observed_at
            from temp.staged_quarantine
            where walk_id = ${quoteLiteral(batch.walkId ?? '')}
          ) q
          where q.record_id = i.${idColumn} and q.observed_at > h.observed_at
        ) or ${isKept} as is_kept_anyway
      from incoming i
      left join ${head} h on h.${idColumn} = i.${idColumn}
      where i.source <> 'gone'
    ),
    hashed as (
      select *, ${buildRowHashSql(stream)} as row_hash
      from joined
    ),
    classified as (
      select
        *,
        case
          when is_late then 'unchanged'
          when head_kind is null then 'created'
          when head_kind = 'vanished' then 'restored'
          when row_hash <> head_row_hash then if(is_same, 'respelled', 'updated')
          else 'unchanged'
        end as content
      from hashed
    )
    select
      *,
      'seen' as kind,
      case when is_late then ${date} else greatest(${date}, head_business_date) end as business_date,
      content <> 'unchanged' or is_late or head_kind = 'missing' or is_kept_anyway as is_appended
    from classified
    where is_appended or source not in ('list', 'replay') or list_hash <> head_list_hash
    union all by name
    select
      * exclude (walk_id, detail_at, is_news),
      ${flags.map((flag) => `false as ${flag},`).join(' ')}
      'list' as source,
      cast(0 as uhugeint) as own_list_hash,
      false as is_listed,
      detail_at as head_detail_at,
      false as is_late,
      'absent' as content,
      true as is_appended
    from absence
    where is_news`
}

/**
 * Known records that this walk proves absent, or whose own page says they are gone. Only a complete walk, or a list of the
 * parent, proves absence, and every id in it must have been readable. A record absent twice in a row has vanished; a child only
 * if on two business dates, since a list may be read again at once. A record absent from a filtered walk may only have left the
 * filter: it stays missing until its own page is read, then keeps the state of that page, and is looked for until it has ended.
 */
function buildAbsenceSql(stream: Stream, batch: Batch): string {
  const {idColumn, name, parent} = stream
  const {head} = tablesOf(stream)
  const {column = ''} = stream.settled ?? {}
  const [status, asked] = [`h.${column}`, `regexp_replace(walk.filter, '^[^=]*=', '')`].map((value) =>
    comparedSql(stream, column, value),
  )
  const list = parent
    ? {
        join: `left join temp.staged_listing as listing on listing.walk_id = walk.walk_id
            and listing.stream = ${quoteLiteral(name)} and listing.parent_id = h.${parent.column}
            and listing.outcome = 'listed'`,
        startedAt: 'listing.observed_at',
        proves: `listing.unreadable_ids = 0 and (h.kind = 'seen' or h.business_date < walk.business_date)`,
        vanished: `h.kind = 'missing'`,
        isNews: 'true',
      }
    : {
        join: '',
        startedAt: 'walk.started_at',
        proves: `walk.is_complete and walk.unreadable_ids = 0
          and (walk.filter = '' or ${status} = ${asked} or not ${hasEndedSql(stream, `h.${column}`)})`,
        vanished: `walk.filter = '' and h.kind = 'missing' and h.walk_id = (select walk_id from last_applied)`,
        isNews: `walk.filter = '' or (h.kind = 'seen' and ${status} = ${asked})`,
      }
  return `
    with walk as (
      ${buildWalkSql(batch)}
    ),
    last_applied as (
      select arg_max(walk_id, recorded_at) as walk_id
      from history.raw.walk
      where stream = ${quoteLiteral(name)} and state = 'applied'
    )
    select
      h.* replace (
        case
          when i.source = 'gone' then 'vanished'
          when ${list.vanished} then 'vanished'
          else 'missing'
        end as kind,
        coalesce(i.observed_at, ${list.startedAt}) as observed_at,
        greatest(h.business_date, walk.business_date) as business_date,
        walk.walk_id as walk_id
      ),
      h.kind as head_kind,
      i.source is not distinct from 'gone' or ${list.isNews} as is_news
    from ${head} h
    cross join walk
    left join incoming i on i.${idColumn} = h.${idColumn}
    ${list.join}
    where h.kind in ('seen', 'missing')
      and (
        (i.source = 'gone' and i.observed_at >= h.observed_at)
        or (
          i.source is null
          and ${list.proves}
          and h.observed_at <= ${list.startedAt}
          and h.walk_id is distinct from walk.walk_id
          and not exists (
            from temp.staged_quarantine q
            where q.walk_id = walk.walk_id and q.record_id = h.${idColumn}
          )
        )
      )`
}

/**
 * Records unknown before a replay that two later walks lacked have vanished with the second, as if they had been readable from
 * the start. One that a single walk lacked stays: it would be missing, and count as well.
 */
function buildGoneSinceSql(stream: Stream): string {
  const {idColumn} = stream
  const name = quoteLiteral(stream.name)
  const flags = optionalColumnsOf(stream).map((column) => `false as ${column.name}_present`)
  return `
    insert into temp.change by name
    with met as (
      select ${idColumn}, greatest(change.observed_at, max(q.observed_at)) as last_at
      from temp.change
      left join history.raw.quarantine q on q.record_id = ${idColumn} and q.stream = ${name}
      where head_kind is null
      group by ${idColumn}, change.observed_at
    ),
    gone as (
      select ${idColumn}, list({'at': walk.started_at, 'on': walk.business_date} order by walk.started_at)[2] as second
      from met
      join history.raw.walk on walk.started_at > last_at
      where walk.stream = ${name} and state = 'applied' and is_complete and unreadable_ids = 0 and filter = ''
      group by ${idColumn}
      having count(*) > 1
    )
    select change.* replace (
      'vanished' as kind,
      'list' as source,
      'absent' as content,
      cast(0 as uhugeint) as own_list_hash,
      gone.second['at'] as observed_at,
      greatest(change.business_date, gone.second['on']) as business_date,
      ${flags.join(', ')}
    )
    from temp.change
    join gone using (${idColumn});
    update temp.change set is_late = true
    where kind = 'seen' and ${idColumn} in (select ${idColumn} from temp.change where kind = 'vanished')`
}

/** No row for looks and replays. */
function buildWalkSql(batch: Batch): string {
  if (batch.walkId === null) return 'from history.raw.walk where false'
  const {walkId, businessDate, startedAt, isComplete, filter, unreadableIds} = batch
  return `select ${quoteLiteral(walkId)} as walk_id, date '${businessDate}' as business_date, make_timestamp(${startedAt}) as started_at,
    ${isComplete} as is_complete, ${quoteLiteral(filter)} as filter, ${unreadableIds} as unreadable_ids`
}

function buildPlanSql(stream: Stream, batch: Batch): string {
  const {head} = tablesOf(stream)
  const isReached = buildReachSql(stream, batch.walkId ?? '')
  const isFiltered = batch.walkId !== null && batch.filter !== ''
  return `
    with listed as materialized (
      select count(*) as records, cast(coalesce(sum(listed_amount), 0) as decimal(38, 2)) as amount
      from incoming
      where is_listed
    )
    select
      (select count(*) from ${stagedOf(stream, batch)} where source = 'list') as listed,
      (select records from listed) as distinct_records,
      (select amount from listed) as amount_total,
      count(*) filter (is_listed and content = 'created') as created,
      count(*) filter (is_listed and content = 'updated') as updated,
      count(*) filter (is_listed and content = 'restored') as restored,
      (select records from listed) - count(*) filter (is_listed and content not in ('unchanged', 'respelled'))
        as unchanged,
      count(*) filter (kind = 'missing' and head_kind = 'seen') as missing,
      count(*) filter (kind = 'vanished') as vanished,
      missing + vanished as absent,
      ${isFiltered ? 'vanished' : `count(*) filter (kind <> 'seen' and head_kind = 'seen')`} as "newlyAbsent",
      count(*) filter (is_appended) as appended,
      count(*) filter (is_late) as late,
      (select count(*) from ${head} where kind in ('seen', 'missing') and ${isReached}) as known
    from change`
}
