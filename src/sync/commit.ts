import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import {type Database, inTransaction} from '../store/database.ts'
import {replaceSetting} from '../store/warehouse.ts'
import {buildRowHashSql, tablesOf} from './stream-tables.ts'

/** What one transaction stores for good. */
export interface Settle {
  kind: 'walk' | 'look' | 'replay' | 'rates'
  /** The walk whose lists are stored with it. */
  walkId: string | null
  /** Business clock, microseconds since the epoch. */
  now: bigint
}

/**
 * Writes to a tape that something is stored at this instant; it is the last step of the transaction.
 *
 * @returns the chain of that line
 */
export type Conclude = (recordedAt: bigint) => Promise<string>

/**
 * Stores what becomes history, in one transaction with a row of `raw.settle`: its `history_id` stands for everything
 * stored up to here, so two histories are the same up to a settle exactly when both have it. If nothing was appended, history is
 * unchanged and gets no row.
 *
 * @param append stores rows with the `recorded_at` it is given, and returns the head of the tape then; it leaves
 * nothing behind when it fails
 * @returns `recorded_at`, microseconds since the epoch; later than every one before it
 */
export function settle(
  db: Database,
  {kind, walkId, now}: Settle,
  append: (recordedAt: DuckDBTimestampValue) => Promise<string>,
): Promise<bigint> {
  return inTransaction(db, async () => {
    const recordedAt = await nextRecordedAt(db, now)
    const recorded = new DuckDBTimestampValue(recordedAt)
    const tapeHead = await append(recorded)
    await db.run(
      `insert into warehouse.raw.settle by name
       with stored as (${buildStoredSql()}),
       before as (
         select coalesce(max(seq), 0) as seq, coalesce(arg_max(history_id, seq), '') as history_id
         from warehouse.raw.settle
       )
       select
         before.seq + 1 as seq,
         $3 as kind,
         $1 as recorded_at,
         sha256(
           concat_ws(
             ' ',
             before.history_id,
             epoch_us($1::timestamp),
             (select string_agg(concat_ws(' ', name, records, digest), ' ' order by name) from stored)
           )
         ) as history_id,
         $4 as tape_head
       from before
       where (select sum(records) from stored) > 0`,
      [recorded, walkId, kind, tapeHead],
    )
    await replaceSetting(db, 'tape_head', tapeHead)
    return recordedAt
  })
}

/** `recorded_at` of the last settle, microseconds since the epoch; null before the first. */
export async function findLastSettle(db: Database): Promise<bigint | null> {
  const {last} = await db.one(
    z.object({last: z.coerce.bigint().nullable()}),
    'select epoch_us(max(recorded_at)) as last from warehouse.raw.settle',
  )
  return last
}

/** An instant to record at, microseconds since the epoch: the business clock, but later than every earlier record. */
async function nextRecordedAt(db: Database, now: bigint): Promise<bigint> {
  const last = await findLastSettle(db)
  return last !== null && last >= now ? last + 1n : now
}

/** SQL: for each table the number of rows stored at `$1` or with walk `$2`, and a digest of them that ignores order. */
function buildStoredSql(): string {
  const ofMoment = [
    ...STREAMS.map((stream) => tablesOf(stream).version),
    ...STREAMS.map((stream) => tablesOf(stream).confirmation).filter((table) => table !== null),
    'warehouse.raw.rate',
    'warehouse.raw.quarantine',
  ].map((table) => [table, 'hash(told)', 'recorded_at = $1'] as const)
  const certificate =
    'hash(walk_id, stream, business_date, is_complete, records, quarantined, amount_total, cursor_digest)'
  return [
    ...ofMoment,
    ['warehouse.raw.walk', certificate, 'recorded_at = $1'] as const,
    ['warehouse.raw.listing', 'hash(told)', 'walk_id = $2'] as const,
  ]
    .map(
      ([table, digest, condition]) =>
        `select '${table}' as name, count(*) as records, bit_xor(${digest}) as digest from ${table} as told where ${condition}`,
    )
    .join(' union all ')
}

/** Computes the latest states of a stream again from its versions. */
export async function rebuildHead(db: Database, stream: Stream): Promise<void> {
  const {head} = tablesOf(stream)
  await db.run(`delete from ${head}`)
  await db.run(`insert into ${head} by name ${buildHeadSql(stream)}`)
}

/**
 * Carries late observations in `change` over to the latest states: the fields that a later observation left out, and all fields
 * of a record that has been absent since.
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

/** Records that count as present: those listed last, and missing ones. */
export async function countPresent(db: Database, stream: Stream): Promise<number> {
  const {present} = await db.one(
    z.object({present: z.coerce.number()}),
    `select count(*) as present from ${tablesOf(stream).head} where kind in ('seen', 'missing')`,
  )
  return present
}

/** The latest request time of anything applied, microseconds since the epoch. */
export async function findLastObserved(db: Database): Promise<bigint | null> {
  const heads = STREAMS.map(
    (stream) => `(select max(greatest(observed_at, detail_at)) from ${tablesOf(stream).head})`,
  )
  const {last} = await db.one(
    z.object({last: z.coerce.bigint().nullable()}),
    `select epoch_us(greatest(
       ${heads.join(',\n       ')},
       (select max(ended_at) from warehouse.raw.walk where state = 'applied')
     )) as last`,
  )
  return last
}

/** The records whose latest state was observed after `instant` (microseconds since the epoch), by id. */
export async function listHeadsAfter(db: Database, stream: Stream, instant: bigint): Promise<string[]> {
  const {idColumn} = stream
  const rows = await db.all(
    z.object({id: z.string()}),
    `select ${idColumn} as id from ${tablesOf(stream).head}
     where greatest(observed_at, detail_at) > $1 order by id`,
    [new DuckDBTimestampValue(instant)],
  )
  return rows.map(({id}) => id)
}

/** SQL of the latest states. A field that an observation left out keeps its last value; absences keep all fields. */
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
        list_hash,
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
