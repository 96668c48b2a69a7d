import {hash} from 'node:crypto'
import {DATE, type DuckDBType, TIMESTAMP, VARCHAR} from '@duckdb/node-api'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {ColumnValue, Quarantined} from '../types.ts'
import type {Database} from '../warehouse/database.ts'
import {appendRows} from '../warehouse/row-buffer.ts'
import {STAGE} from './stream-tables.ts'

/**
 * A rejected record and where it stands in its walk: page and position, or the deal's id where it is its own page; in a list of children the deal,
 * page and position.
 */
export type RejectedRecord = Quarantined & {place: string}

const stagedTypes: DuckDBType[] = [
  ...Array<DuckDBType>(7).fill(VARCHAR),
  TIMESTAMP,
  DATE,
  TIMESTAMP,
  TIMESTAMP,
  VARCHAR,
]

/**
 * Stages where rejected records stand on their tape, never what they hold; they count in releases from the moment at which their
 * walk is applied.
 */
export async function stageQuarantined(
  db: Database,
  stream: Stream,
  walk: {walkId: string; businessDate: string},
  source: 'list' | 'detail',
  records: readonly RejectedRecord[],
): Promise<void> {
  const rows = records.map((record): ColumnValue[] => [
    `q_${hash('sha256', `${walk.walkId} ${source} ${record.place}`).slice(0, 12)}`,
    stream.name,
    walk.walkId,
    source,
    record.id,
    record.path,
    record.reason,
    record.observedAt,
    walk.businessDate,
    null,
    null,
    record.place,
  ])
  await appendRows(db, {...STAGE, table: 'staged_quarantine', types: stagedTypes}, rows)
}

/** A record in quarantine. */
export type QuarantineEntry = z.output<typeof entryRow>
const entryRow = z.object({
  quarantine_id: z.string(),
  stream: z.string(),
  walk_id: z.string(),
  /** `list` or `detail`. */
  source: z.string(),
  record_id: z.string().nullable(),
  /** Where in the record, as a zod path. */
  path: z.string(),
  reason: z.string(),
  /** `YYYY-MM-DD` */
  business_date: z.string(),
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC. */
  observed_at: z.string(),
  replayed_at: z.string().nullable(),
  /** Where it stands on the tape of its walk; null once it is pruned, or that tape is not kept any more. */
  place: z.string().nullable(),
})

/** A record that is on no tape can never be read again: it waits for nothing. */
const WAITS = 'replayed_at is null and place is not null'

/**
 * The records in quarantine that wait to be replayed, oldest first.
 *
 * @param catalog `warehouse` where it is written, `history` where it is only read
 */
export function listWaiting(db: Database, catalog: 'warehouse' | 'history'): Promise<QuarantineEntry[]> {
  return db.all(
    entryRow,
    `from ${catalog}.raw.quarantine where ${WAITS} order by observed_at, walk_id, quarantine_id`,
  )
}

/** Why records wait, and how many of them; instants as an entry has them. */
export type WaitingReason = z.output<typeof reasonRow>
const reasonRow = z.object({
  path: z.string(),
  reason: z.string(),
  /** Different records. */
  records: z.coerce.number(),
  /** Times they were seen. */
  times: z.coerce.number(),
  /** When the first of them was seen, and the last. */
  since: z.string(),
  until: z.string(),
})

/** A record that waits, once for each reason, however often it was seen. */
export type WaitingRecord = z.output<typeof waitingRow>
const waitingRow = z.object({
  /** Of the last time. */
  quarantine_id: z.string(),
  walk_id: z.string(),
  stream: z.string(),
  record_id: z.string().nullable(),
  path: z.string(),
  reason: z.string(),
  times: z.coerce.number(),
  since: z.string(),
  until: z.string(),
})

/** Reasons that are told; a source that breaks in more ways than these has to be looked at anyway. */
const MOST_REASONS = 100

/** Why records wait, the reason of most records first. */
export function listReasons(db: Database, catalog: 'warehouse' | 'history'): Promise<WaitingReason[]> {
  return db.all(
    reasonRow,
    `select path, reason, count(distinct concat(stream, ' ', coalesce(record_id, quarantine_id))) as records,
       count(*) as times, min(observed_at) as since, max(observed_at) as until
     from ${catalog}.raw.quarantine where ${WAITS}
     group by path, reason order by records desc, path, reason limit ${MOST_REASONS}`,
  )
}

/**
 * Records that wait, without what they hold, the latest first.
 *
 * @param asked `path` and `reason` are one of {@link listReasons}; by default all
 */
export function listWaitingRecords(
  db: Database,
  catalog: 'warehouse' | 'history',
  asked: {path?: string | undefined; reason?: string | undefined; limit: number; offset: number},
): Promise<WaitingRecord[]> {
  return db.all(
    waitingRow,
    `select arg_max(quarantine_id, observed_at) as quarantine_id, arg_max(walk_id, observed_at) as walk_id,
       stream, record_id, path, reason, count(*) as times, min(observed_at) as since, max(observed_at) as until
     from ${catalog}.raw.quarantine
     where ${WAITS} and path = coalesce($1, path) and reason = coalesce($2, reason)
     group by stream, record_id, coalesce(record_id, quarantine_id), path, reason
     order by until desc, stream, record_id, quarantine_id
     limit ${asked.limit} offset ${asked.offset}`,
    [asked.path ?? null, asked.reason ?? null],
  )
}

/** How many records in quarantine wait to be replayed. */
export async function countWaiting(db: Database, catalog: 'warehouse' | 'history'): Promise<number> {
  const {waiting} = await db.one(
    z.object({waiting: z.coerce.number()}),
    `select count(*) as waiting from ${catalog}.raw.quarantine where ${WAITS}`,
  )
  return waiting
}

/** How many records in quarantine were never replayed and cannot be any more: they or their tapes have been pruned. */
export async function countPruned(db: Database, catalog: 'warehouse' | 'history'): Promise<number> {
  const {pruned} = await db.one(
    z.object({pruned: z.coerce.number()}),
    `select count(*) as pruned from ${catalog}.raw.quarantine where replayed_at is null and place is null`,
  )
  return pruned
}

/** The record of this id in quarantine, replayed or not. */
export function findQuarantined(
  db: Database,
  catalog: 'warehouse' | 'history',
  quarantineId: string,
): Promise<QuarantineEntry | undefined> {
  return db.first(entryRow, `from ${catalog}.raw.quarantine where quarantine_id = $1`, [quarantineId])
}
