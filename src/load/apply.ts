import type {DuckDBTimestampValue} from '@duckdb/node-api'
import type {Stream} from '../contract/stream.ts'
import type {Database} from '../warehouse/database.ts'
import {buildBridgeSql} from './bridge.ts'
import {recordDrift} from './drift.ts'
import {carryLate} from './head.ts'
import {applyMapped} from './mapped-fields.ts'
import {type Batch, type ChangePlan, dropPlan} from './plan-changes.ts'
import {type Conclude, type Settle, settle} from './settle.ts'
import {clearStage} from './stage.ts'
import {listColumns, tablesOf} from './stream-tables.ts'
import {insertWalk} from './walk-state.ts'

/** Which rows of `change` replace the latest state. */
const MOVES_HEAD = `not is_late and source <> 'gone'`

/** What an apply needs beside the walk. */
export interface Application {
  plan: ChangePlan
  /** What brought the observations: a walk by default. */
  kind?: Settle['kind']
  /** Business clock, microseconds since the epoch. */
  now: bigint
  details?: {fetched: number; failed: number} | undefined
  conclude: Conclude
}

/**
 * Stores what `planChanges` found, in one transaction: versions are appended, the latest states replaced, the
 * certificate completed with its bridge, and the staged rows dropped.
 *
 * @returns `recorded_at` of this apply, microseconds since the epoch; later than every one before it
 */
export function applyObservations(
  db: Database,
  stream: Stream,
  batch: Batch,
  {plan, kind = 'walk', now, details, conclude}: Application,
): Promise<bigint> {
  const {head, confirmation} = tablesOf(stream)
  const store = async (recorded: DuckDBTimestampValue) => {
    if (batch.walkId !== null) {
      await insertWalk(db, stream, batch, {state: 'applied', how: 'complete'})
      await recordDrift(db, stream, batch)
    }
    await db.run(buildAppendSql(stream), [batch.walkId, batch.businessDate, recorded])
    if (confirmation !== null) {
      await db.run(buildConfirmSql(stream, confirmation), [batch.businessDate, recorded])
    }
    await db.run(buildReplacedSql(stream))
    await db.run(`insert into ${head} by name ${buildNextHeadSql(stream)}`, [
      batch.walkId,
      batch.businessDate,
    ])
    await carryLate(db, stream)
    await applyMapped(db, stream, {staged: plan.staged, businessDate: batch.businessDate, recorded})
    if (batch.walkId !== null) await completeCertificate(db, stream, batch.walkId, {plan, details, recorded})
    await dropPlan(db)
    return conclude(recorded.micros)
  }
  return settle(db, {kind, walkId: batch.walkId, now}, store)
}

/** The walk is applied: its certificate says what changed, what it could not read counts, and what it staged has served. */
async function completeCertificate(
  db: Database,
  stream: Stream,
  walkId: string,
  {plan, details, recorded}: Pick<Application, 'plan' | 'details'> & {recorded: DuckDBTimestampValue},
): Promise<void> {
  await db.run(
    `update warehouse.raw.walk set recorded_at = $2, created = $3, updated = $4, missing = $5,
       vanished = $6, restored = $7, unchanged = $8, details_fetched = $9, details_failed = $10
     where walk_id = $1`,
    [
      walkId,
      recorded,
      plan.counts.created,
      plan.counts.updated,
      plan.counts.missing,
      plan.counts.vanished,
      plan.counts.restored,
      plan.counts.unchanged,
      details?.fetched ?? 0,
      details?.failed ?? 0,
    ],
  )
  await db.run('update warehouse.raw.quarantine set recorded_at = $2 where walk_id = $1', [walkId, recorded])
  await db.run(buildBridgeSql(stream), [walkId])
  await clearStage(db, stream, walkId)
}

/**
 * Version rows: what was observed as it was observed, and for absences the state that was last known. Only ids are sorted for
 * `seq`: a window over whole rows would pass them all through one thread.
 */
function buildAppendSql(stream: Stream): string {
  const {version} = tablesOf(stream)
  const {idColumn} = stream
  const observed = stream.columns.map(({name, mayBeAbsent}) =>
    mayBeAbsent ? `case when ${name}_present then ${name} end as ${name}, ${name}_present` : name,
  )
  const absent = stream.columns.map(({name, mayBeAbsent}) =>
    mayBeAbsent ? `null as ${name}, false as ${name}_present` : name,
  )
  return `
    insert into ${version} by name
    with appended as (
      select
        ${idColumn},
        'seen' as kind,
        source,
        observed_at,
        case when is_late then cast($2 as date) else greatest(cast($2 as date), head_business_date) end
          as business_date,
        row_hash,
        list_hash,
        ${observed.join(', ')}
      from change
      where is_appended
      union all by name
      select
        ${idColumn},
        kind,
        'list' as source,
        observed_at,
        business_date,
        row_hash,
        list_hash,
        ${absent.join(', ')}
      from absence
    ),
    placed as (
      select ${idColumn}, row_number() over (order by ${idColumn}) as place
      from appended
    )
    select
      (select coalesce(max(seq), 0) from ${version}) + place as seq,
      ${idColumn},
      kind,
      source,
      $1 as walk_id,
      observed_at,
      business_date,
      $3 as recorded_at,
      row_hash,
      list_hash,
      ${listColumns(stream)}
    from appended
    join placed using (${idColumn})`
}

/** Answers of a record's own page that held the column which is confirmed, and said nothing new: no version tells of them. */
function buildConfirmSql({idColumn, confirmed}: Stream, confirmation: string): string {
  return `
    insert into ${confirmation} by name
    select
      (select coalesce(max(seq), 0) from ${confirmation}) + row_number() over (order by ${idColumn}) as seq,
      ${idColumn},
      observed_at,
      greatest(cast($1 as date), head_business_date) as business_date,
      $2 as recorded_at
    from change
    where not is_appended and source in ('detail', 'webhook') and ${confirmed}_present`
}

/** Drops the latest states that are replaced. */
function buildReplacedSql(stream: Stream): string {
  const {idColumn} = stream
  return `
    delete from ${tablesOf(stream).head}
    where ${idColumn} in (
      select ${idColumn} from change where ${MOVES_HEAD}
      union all
      select ${idColumn} from absence
    )`
}

/**
 * The latest states that change. Without a new version only what steers the next detail requests moves: the digest
 * of the list row and the instant of the last detail.
 */
function buildNextHeadSql(stream: Stream): string {
  const {idColumn} = stream
  const columns = stream.columns.map(({name}) => name).join(', ')
  return `
    select
      ${idColumn},
      'seen' as kind,
      case when is_appended then $1 else head_walk_id end as walk_id,
      case when is_appended then observed_at else head_observed_at end as observed_at,
      case when is_appended then greatest(cast($2 as date), head_business_date) else head_business_date end
        as business_date,
      row_hash,
      list_hash,
      ${columns},
      case when source in ('detail', 'webhook') then observed_at else head_detail_at end as detail_at
    from change
    where ${MOVES_HEAD}
    union all by name
    select
      ${idColumn},
      kind,
      walk_id,
      observed_at,
      business_date,
      row_hash,
      list_hash,
      ${columns},
      detail_at
    from absence`
}
