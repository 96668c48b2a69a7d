import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import {STREAMS} from '../contract/streams.ts'
import {type Database, inTransaction} from '../warehouse/database.ts'
import {replaceSetting} from '../warehouse/stored-settings.ts'
import {tablesOf} from './stream-tables.ts'

/** What is stored for good at once. */
export interface Settle {
  kind: 'walk' | 'look' | 'replay' | 'rates'
  /** The walk whose lists become history with it. */
  walkId: string | null
  /** Business clock, microseconds since the epoch. */
  now: bigint
}

/**
 * Takes down on a tape that something is stored at this instant, last in the transaction that stores it.
 *
 * @returns the chain of that line
 */
export type Conclude = (recordedAt: bigint) => Promise<string>

/**
 * Stores what becomes history, in one transaction with a row of `raw.settle`: its `history_id` stands for everything
 * stored up to here, so that two histories are the same up to a settle exactly when both have it. Where nothing was
 * appended the history is as it was, and there is no row.
 *
 * @param append stores rows with the `recorded_at` it is given, and tells where the tape stands then; it leaves
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

/** An instant to record at: the business clock, but later than every one before it; microseconds since the epoch. */
async function nextRecordedAt(db: Database, now: bigint): Promise<bigint> {
  const last = await findLastSettle(db)
  return last !== null && last >= now ? last + 1n : now
}

/** SQL: of each table how many rows were stored at `$1`, or with walk `$2`, and a digest of them that knows no order. */
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
