import {hash} from 'node:crypto'
import {DuckDBTimestampValue, type DuckDBValue} from '@duckdb/node-api'
import {z} from 'zod'
import {optionalColumnsOf, type Stream, type Vocabulary} from '../contract/stream.ts'
import {type Database, inTransaction, quoteLiteral} from '../store/database.ts'
import {writeSettings} from '../store/warehouse.ts'
import {applyMapped} from './mapped-fields.ts'
import {type Batch, type ChangePlan, type OpenWalk, stagedOf} from './plan-changes.ts'
import {amountOf, buildReachSql, carryLate, clearStage, comparedSql, tablesOf} from './stream-tables.ts'

/**
 * Stores what `planChanges` found, completes the certificate with its bridge, and drops the staged rows. Call it in {@link
 * settle}.
 */
export async function applyObservations(
  db: Database,
  stream: Stream,
  batch: Batch,
  {plan, recorded}: {plan: ChangePlan; recorded: DuckDBTimestampValue},
): Promise<void> {
  const {head, confirmation} = tablesOf(stream)
  const {idColumn} = stream
  const {walkId, businessDate} = batch
  await db.run(buildAppendSql(stream), [walkId, recorded])
  if (confirmation !== null) await db.run(buildConfirmSql(stream, confirmation), [recorded])
  await db.run(`delete from ${head} where ${idColumn} in (select ${idColumn} from change where not is_late)`)
  await db.run(`insert into ${head} by name ${buildNextHeadSql(stream)}`, [walkId])
  if (plan.late > 0) await carryLate(db, stream)
  await applyMapped(db, stream, {staged: stagedOf(stream, batch), businessDate, recorded})
  if (batch.walkId !== null) {
    const bridge = await db.one(z.record(z.string(), z.string()), buildBridgeSql(stream, batch))
    await insertWalk(db, stream, batch, {
      ...{state: 'applied', ended_how: 'complete', recorded_at: recorded, ...plan.counts, ...bridge},
      ...{details_fetched: batch.details.fetched, details_failed: batch.details.failed},
    })
    await db.run(buildDriftSql(stream), [walkId])
    await clearStage(db, stream, batch.walkId)
  }
  await db.run(
    'drop view temp.incoming; drop table temp.repeated; drop table temp.change; drop table temp.absence',
  )
}

/** Only ids are sorted for `seq`: a window over whole rows would run in one thread. */
function buildAppendSql(stream: Stream): string {
  const {version} = tablesOf(stream)
  const {idColumn} = stream
  const columns = stream.columns.map(({name, mayBeAbsent}) =>
    mayBeAbsent ? `case when ${name}_present then ${name} end as ${name}, ${name}_present` : name,
  )
  return `
    insert into ${version} by name
    with placed as (
      select ${idColumn}, kind, row_number() over (order by ${idColumn}, kind) as place
      from change
      where is_appended
    )
    select
      (select coalesce(max(seq), 0) from ${version}) + place as seq,
      ${idColumn},
      kind,
      source,
      $1 as walk_id,
      observed_at,
      business_date,
      $2 as recorded_at,
      row_hash,
      own_list_hash as list_hash,
      ${columns.join(', ')}
    from change
    join placed using (${idColumn}, kind)`
}

/** Own pages that confirm a value without changing it append no version. */
function buildConfirmSql({idColumn, confirmed}: Stream, confirmation: string): string {
  return `
    insert into ${confirmation} by name
    select
      (select coalesce(max(seq), 0) from ${confirmation}) + row_number() over (order by ${idColumn}) as seq,
      ${idColumn},
      observed_at,
      business_date,
      $1 as recorded_at
    from change
    where not is_appended and source in ('detail', 'webhook') and ${confirmed}_present`
}

/** A head without a new version changes only in the digest of the list row and the time of the last own page change. */
function buildNextHeadSql({idColumn, columns}: Stream): string {
  return `
    select
      ${idColumn},
      kind,
      case when is_appended then $1 else head_walk_id end as walk_id,
      case when is_appended then observed_at else head_observed_at end as observed_at,
      case when is_appended then business_date else head_business_date end as business_date,
      row_hash,
      list_hash,
      ${columns.map(({name}) => name).join(', ')},
      case when source in ('detail', 'webhook') then observed_at else head_detail_at end as detail_at
    from change
    where not is_late`
}

/**
 * Stores a walk that was not applied. Rejected records of a refused walk stay as evidence. `tapeHead` is the chain of its
 * outcome.
 */
export function storeWalk(
  db: Database,
  stream: Stream,
  walk: OpenWalk,
  {state, how, tapeHead}: {state: 'refused' | 'abandoned'; how: string; tapeHead: string},
): Promise<void> {
  return inTransaction(db, async () => {
    await insertWalk(db, stream, walk, {state, ended_how: how})
    await writeSettings(db, {tape_head: tapeHead})
    await clearStage(db, stream, walk.walkId)
  })
}

/** Call it in a transaction. */
async function insertWalk(
  db: Database,
  stream: Stream,
  walk: OpenWalk,
  end: {state: string; ended_how: string; recorded_at?: DuckDBTimestampValue; [column: string]: DuckDBValue},
): Promise<void> {
  const instant = (micros: bigint | null) => (micros === null ? null : new DuckDBTimestampValue(micros))
  const {certified, cursors, accepted} = walk
  const row: Record<string, DuckDBValue> = {
    stream: stream.name,
    walk_id: walk.walkId,
    base_url: walk.baseUrl,
    page_size: walk.pageSize,
    filter: walk.filter,
    business_date: walk.businessDate,
    started_at: instant(walk.startedAt),
    ended_at: instant(walk.endedAt),
    envelope: walk.envelope,
    is_complete: walk.isComplete,
    resumed: walk.resumed,
    ...(accepted && {
      accepted: accepted.what.join(', '),
      accepted_by: accepted.who,
      accepted_why: accepted.why,
    }),
    waited_ms: walk.waitedMs,
    pages: walk.pages,
    records: walk.records,
    quarantined: walk.quarantined,
    unreadable_ids: walk.unreadableIds,
    ...(certified && {...certified, is_shifted: certified.duplicates > 0}),
    cursor_digest: certified && cursors.length > 0 ? hash('sha256', cursors.join('\n')) : null,
    ...end,
  }
  const names = Object.keys(row)
  await db.run(
    `insert into history.raw.walk (${names.join(', ')}) values (${names.map((_, index) => `$${index + 1}`).join(', ')})`,
    Object.values(row),
  )
  if (end.state === 'applied')
    await db.run('insert into history.raw.listing by name from temp.staged_listing where walk_id = $1', [
      walk.walkId,
    ])
  // Records of an applied walk count in releases from here on.
  if (end.state !== 'abandoned')
    await db.run(
      `insert into history.raw.quarantine by name
       select * replace ($2 as recorded_at) from temp.staged_quarantine where walk_id = $1`,
      [walk.walkId, end.recorded_at ?? null],
    )
}

/**
 * The bridge of a certificate, in records and amount: present = distinct + kept because quarantined + kept because missing +
 * adjusted by observations outside the list. Every record that the walk covers falls under exactly one term.
 */
function buildBridgeSql(stream: Stream, {walkId, unreadableIds}: OpenWalk): string {
  const {idColumn} = stream
  return `
    with present as (
      select ${idColumn} as id, kind, ${amountOf(stream)} as amount
      from ${tablesOf(stream).head}
      where kind in ('seen', 'missing') and ${buildReachSql(stream, walkId)}
    ),
    listed as (
      select ${idColumn} as id, listed_amount as amount
      from incoming
      where is_listed
    ),
    rejected as (
      select distinct record_id as id
      from temp.staged_quarantine
      where walk_id = ${quoteLiteral(walkId)}
    ),
    termed as (
      select
        present.id is not null as is_present,
        listed.id is not null as is_listed,
        coalesce(present.amount, 0) as present_amount,
        coalesce(listed.amount, 0) as listed_amount,
        case
          when listed.id is not null then 'adjusted'
          when rejected.id is not null then 'quarantined'
          when present.kind = 'missing' then 'missing'
          when ${unreadableIds} > 0 then 'quarantined'
          else 'adjusted'
        end as term
      from present
      full join listed on listed.id = present.id
      left join rejected on rejected.id = present.id
    )
    select
      count(*) filter (is_present) as present_deals,
      coalesce(sum(present_amount), 0) as present_amount,
      count(*) filter (term = 'quarantined') as kept_quarantined_deals,
      coalesce(sum(present_amount) filter (term = 'quarantined'), 0) as kept_quarantined_amount,
      count(*) filter (term = 'missing') as kept_missing_deals,
      coalesce(sum(present_amount) filter (term = 'missing'), 0) as kept_missing_amount,
      coalesce(sum(cast(is_present as bigint) - cast(is_listed as bigint)) filter (term = 'adjusted'), 0)
        as adjusted_deals,
      coalesce(sum(present_amount - listed_amount) filter (term = 'adjusted'), 0) as adjusted_amount
    from termed`
}

/** Most findings of each kind, so that a source with ids as field names cannot flood a report. */
const MOST_FINDINGS = 100

export type DriftFinding = z.output<typeof findingRow>
const findingRow = z.object({
  kind: z.enum(['new_field', 'missing_field', 'unknown_value']),
  /** `borrower.name` */
  path: z.string(),
  /** Null except for an `unknown_value`. */
  value: z.string().nullable(),
  records: z.coerce.number(),
})

export function listLastDrift(db: Database, {name}: Stream): Promise<DriftFinding[]> {
  return db.all(
    findingRow,
    `select kind, path, value, records
     from history.raw.drift
     where stream = $1 and walk_id = (
       select arg_max(walk_id, recorded_at) from history.raw.walk where stream = $1 and state = 'applied'
     )
     order by kind, path, value`,
    [name],
  )
}

/** List rows are shorter by design, so only own pages can miss a field. */
function buildDriftSql(stream: Stream): string {
  const {staged} = tablesOf(stream)
  const missing = optionalColumnsOf(stream).map(
    ({name}) => `
      select id, 'missing_field' as kind, '${name}' as path, null as value
      from observed where source = 'detail' and not ${name}_present`,
  )
  const unknown = stream.vocabularies.map(({column, known}) => {
    const value = comparedSql(stream, column)
    return `
      select id, 'unknown_value' as kind, '${column}' as path, ${value} as value
      from observed where ${buildUnknownSql(stream, known, value)}`
  })
  return `
    insert into history.raw.drift by name
    with observed as (
      select *, ${stream.idColumn} as id from ${staged} where source in ('list', 'detail')
    ),
    finding as (
      select id, 'new_field' as kind, unnest(string_split(unknown_fields, chr(10))) as path, cast(null as varchar) as value
      from observed where unknown_fields is not null
      ${[...missing, ...unknown].map((sql) => `union all ${sql}`).join('\n      ')}
    )
    select $1 as walk_id, ${quoteLiteral(stream.name)} as stream, kind, path, value, count(distinct id) as records
    from finding
    group by kind, path, value
    qualify row_number() over (partition by kind order by count(distinct id) desc, path, value) <= ${MOST_FINDINGS}
    order by kind, path, value`
}

/** Without a fixed list, the values stored before are the vocabulary, if there are any. */
function buildUnknownSql(stream: Stream, known: Vocabulary['known'], value: string): string {
  if (known !== null) return `${value} not in (${known.map(quoteLiteral).join(', ')})`
  const {version} = tablesOf(stream)
  const before = `(select distinct ${value} from ${version} where ${value} is not null and walk_id is distinct from $1)`
  return `exists ${before} and ${value} not in ${before}`
}
