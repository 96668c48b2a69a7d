import {hash} from 'node:crypto'
import {DuckDBTimestampValue, type DuckDBValue} from '@duckdb/node-api'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import type {ChangeCounts} from '../core/types.ts'
import {type Database, inTransaction, quoteLiteral} from '../store/database.ts'
import {writeSettings} from '../store/warehouse.ts'
import {clearStage, tablesOf} from './stream-tables.ts'

/** What a walk asks for; if any of it changes, a new walk begins. */
export interface WalkRequest {
  baseUrl: string
  pageSize: number
  /** `status=underwriting`, or empty for every record. */
  filter: string
}

/** A walk that has begun; `startedAt` in microseconds since the epoch. */
export interface AskedWalk extends WalkRequest {
  walkId: string
  businessDate: string
  startedAt: bigint
}

/** The progress of an open walk, updated as answers are taken in. Instants in microseconds since the epoch. */
export interface OpenWalk extends AskedWalk {
  /** Start of the last request for a list. */
  endedAt: bigint | null
  /** The cursors of its pages, in order; empty for the first. */
  cursors: string[]
  nextCursor: string | null
  /** When `nextCursor` was received, real clock; null before the first page. */
  cursorReceivedAt: bigint | null
  envelope: string | null
  isComplete: boolean
  pages: number
  records: number
  quarantined: number
  unreadableIds: number
  resumed: number
  waitedMs: number
  /** Answers taken in. */
  answers: number
  /** What `certifyWalk` found; null before. */
  certified: {distinct: number; duplicates: number; amountTotal: string} | null
}

/** The progress of a walk that has asked for nothing. */
export const NOT_ASKED: Omit<OpenWalk, keyof AskedWalk | 'cursors' | 'resumed'> = {
  endedAt: null,
  nextCursor: null,
  cursorReceivedAt: null,
  envelope: null,
  isComplete: false,
  pages: 0,
  records: 0,
  quarantined: 0,
  unreadableIds: 0,
  waitedMs: 0,
  answers: 0,
  certified: null,
}

/** The ids of all records a walk has read, quarantined ones included. */
export async function* listReadIds(db: Database, stream: Stream, walk: OpenWalk): AsyncGenerator<string> {
  if (walk.pages === 0) return
  const rows = db.stream(
    `select ${stream.idColumn} from ${tablesOf(stream).staged}
     union all
     select record_id from temp.staged_quarantine
     where walk_id = ${quoteLiteral(walk.walkId)} and record_id is not null`,
  )
  for await (const ids of rows) yield* ids.map(String)
}

/**
 * Stores a walk that ended without being applied, and clears it from the stage. A refused walk's rejected records stay as
 * evidence.
 *
 * @param tapeHead chain of the line that says how it ended
 */
export function storeWalk(
  db: Database,
  stream: Stream,
  walk: OpenWalk,
  {tapeHead, ...end}: {state: 'refused' | 'abandoned'; how: string; tapeHead: string},
): Promise<void> {
  return inTransaction(db, async () => {
    await insertWalk(db, stream, walk, end)
    await writeSettings(db, {tape_head: tapeHead})
    await clearStage(db, stream, walk.walkId)
  })
}

/** Stores a walk, its lists if it is applied, and its rejected records unless it was abandoned. Call it in a transaction. */
export async function insertWalk(
  db: Database,
  stream: Stream,
  walk: OpenWalk,
  {state, how, applied}: {state: 'applied' | 'refused' | 'abandoned'; how: string; applied?: Applied},
): Promise<void> {
  const {counts, details, recorded} = applied ?? {}
  const row = {
    ...describeWalk(walk),
    ...{stream: stream.name, state, ended_how: how, ...counts},
    ...(recorded && {recorded_at: recorded}),
    ...(applied && {details_fetched: details?.fetched ?? 0, details_failed: details?.failed ?? 0}),
  }
  const names = Object.keys(row)
  await db.run(
    `insert into warehouse.raw.walk (${names.join(', ')}) values (${names.map((_, index) => `$${index + 1}`).join(', ')})`,
    Object.values(row),
  )
  if (state === 'applied')
    await db.run('insert into warehouse.raw.listing by name from temp.staged_listing where walk_id = $1', [
      walk.walkId,
    ])
  // From here on they count in releases.
  if (state !== 'abandoned')
    await db.run(
      `insert into warehouse.raw.quarantine by name
       select * replace ($2 as recorded_at) from temp.staged_quarantine where walk_id = $1`,
      [walk.walkId, recorded ?? null],
    )
}

/** How many own pages or lists were fetched for a walk. */
export interface Fetched {
  fetched: number
  failed: number
}

/** The result of applying a walk. */
interface Applied {
  counts: ChangeCounts
  details: Fetched | undefined
  recorded: DuckDBTimestampValue
}

/** The columns of `raw.walk` about a walk's progress. */
function describeWalk(walk: OpenWalk): Record<string, DuckDBValue> {
  const instant = (micros: bigint | null) => (micros === null ? null : new DuckDBTimestampValue(micros))
  const {certified, cursors} = walk
  return {
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
    waited_ms: walk.waitedMs,
    pages: walk.pages,
    records: walk.records,
    quarantined: walk.quarantined,
    unreadable_ids: walk.unreadableIds,
    distinct_records: certified?.distinct ?? null,
    duplicates: certified?.duplicates ?? null,
    amount_total: certified?.amountTotal ?? null,
    is_shifted: certified && certified.duplicates > 0,
    cursor_digest: certified && cursors.length > 0 ? hash('sha256', cursors.join('\n')) : null,
  }
}

/** The latest start and business date of earlier walks. */
interface WalkPast {
  businessDate: string
  startedAt: bigint
}

const pastRow = z
  .object({business_date: z.string().nullable(), started_us: z.coerce.bigint().nullable()})
  .transform(({business_date, started_us}): WalkPast | undefined =>
    business_date === null || started_us === null
      ? undefined
      : {businessDate: business_date, startedAt: started_us},
  )

/** Reads them from the applied walks; undefined before the first. */
export function findPast(db: Database, stream: Stream): Promise<WalkPast | undefined> {
  return db.one(
    pastRow,
    `select max(business_date) as business_date, epoch_us(max(started_at)) as started_us
     from warehouse.raw.walk
     where stream = $1 and state = 'applied'`,
    [stream.name],
  )
}

/** The latest request time of what a walk has staged, microseconds since the epoch. */
export async function findLastAsked(db: Database, stream: Stream, walk: OpenWalk): Promise<bigint> {
  const {last} = await db.one(
    z.object({last: z.coerce.bigint()}),
    `select epoch_us(greatest($1, $2, (select max(observed_at) from ${tablesOf(stream).staged}))) as last`,
    [new DuckDBTimestampValue(walk.startedAt), new DuckDBTimestampValue(walk.endedAt ?? walk.startedAt)],
  )
  return last
}
