import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import type {Stream} from '../contract/stream.ts'
import {type Database, inTransaction, quoteLiteral} from '../warehouse/database.ts'
import type {PageGroup} from './page-group.ts'
import {tablesOf} from './stream-tables.ts'

/** What a walk asks for; a change of any of these starts anew. */
export interface WalkRequest {
  baseUrl: string
  pageSize: number
  /** `status=underwriting`, or empty for every record. */
  filter: string
}

/** A walk in progress, or complete and not yet applied. Instants are microseconds since the epoch. */
export interface OpenWalk extends WalkRequest {
  walkId: string
  businessDate: string
  startedAt: bigint
  nextCursor: string | null
  /** Real clock, when `nextCursor` was received; null before the first page. */
  cursorReceivedAt: bigint | null
  isComplete: boolean
  pages: number
  records: number
  quarantined: number
  resumed: number
  waitedMs: number
}

const walkRow = z
  .object({
    walk_id: z.string(),
    base_url: z.string(),
    page_size: z.coerce.number(),
    filter: z.string(),
    business_date: z.string(),
    started_us: z.coerce.bigint(),
    cursor_received_us: z.coerce.bigint().nullable(),
    next_cursor: z.string().nullable(),
    is_complete: z.boolean(),
    pages: z.coerce.number(),
    records: z.coerce.number(),
    quarantined: z.coerce.number(),
    resumed: z.coerce.number(),
    waited_ms: z.coerce.number(),
  })
  .transform(
    (row): OpenWalk => ({
      walkId: row.walk_id,
      baseUrl: row.base_url,
      pageSize: row.page_size,
      filter: row.filter,
      businessDate: row.business_date,
      startedAt: row.started_us,
      nextCursor: row.next_cursor,
      cursorReceivedAt: row.cursor_received_us,
      isComplete: row.is_complete,
      pages: row.pages,
      records: row.records,
      quarantined: row.quarantined,
      resumed: row.resumed,
      waitedMs: row.waited_ms,
    }),
  )

/** The walk that was begun and not yet applied, if there is one. */
export function findOpenWalk(db: Database, stream: Stream): Promise<OpenWalk | undefined> {
  return db.first(
    walkRow,
    `select *, epoch_us(started_at) as started_us, epoch_us(cursor_received_at) as cursor_received_us
     from warehouse.raw.walk where stream = $1 and state = 'walking'`,
    [stream.name],
  )
}

/** The walks that were begun and not yet applied, of every stream. */
export async function listOpenWalks(db: Database): Promise<Set<string>> {
  const rows = await db.all(
    z.object({walk_id: z.string()}),
    `select walk_id from warehouse.raw.walk where state = 'walking'`,
  )
  return new Set(rows.map(({walk_id}) => walk_id))
}

/** What the walks before have left to respect: their latest start and business date, and how much the last saw. */
export interface WalkPast {
  businessDate: string
  startedAt: bigint
  /** Records of the last walk that was applied. */
  records: number | null
}

const pastRow = z
  .object({
    business_date: z.string().nullable(),
    started_us: z.coerce.bigint().nullable(),
    records: z.coerce.number().nullable(),
  })
  .transform(({business_date, started_us, records}): WalkPast | undefined =>
    business_date === null || started_us === null
      ? undefined
      : {businessDate: business_date, startedAt: started_us, records},
  )

/** The walks before that were applied, or undefined before the first; of the others nothing is left to respect. */
export function findPast(db: Database, stream: Stream): Promise<WalkPast | undefined> {
  return db.one(
    pastRow,
    `select
       max(business_date) as business_date,
       epoch_us(max(started_at)) as started_us,
       arg_max(records, recorded_at) as records
     from warehouse.raw.walk
     where stream = $1 and state = 'applied'`,
    [stream.name],
  )
}

/** The latest instant at which a walk under way asked for something that is stored, microseconds since the epoch. */
export async function findLastAsked(db: Database, stream: Stream): Promise<bigint | null> {
  const {last} = await db.one(
    z.object({last: z.coerce.bigint().nullable()}),
    `select epoch_us(max(greatest(started_at, ended_at, (select max(observed_at) from ${tablesOf(stream).staged})))) as last
     from warehouse.raw.walk where stream = $1 and state = 'walking'`,
    [stream.name],
  )
  return last
}

/** Begins a walk. */
export async function startWalk(
  db: Database,
  stream: Stream,
  walk: WalkRequest & {walkId: string; businessDate: string; startedAt: bigint},
): Promise<OpenWalk> {
  await db.run(
    `insert into warehouse.raw.walk
       (walk_id, stream, state, base_url, page_size, filter, business_date, started_at,
        is_complete, resumed, waited_ms, pages, records, quarantined, unreadable_ids)
     values ($1, $2, 'walking', $3, $4, $5, $6, $7, false, 0, 0, 0, 0, 0, 0)`,
    [
      walk.walkId,
      stream.name,
      walk.baseUrl,
      walk.pageSize,
      walk.filter,
      walk.businessDate,
      new DuckDBTimestampValue(walk.startedAt),
    ],
  )
  return {
    ...walk,
    nextCursor: null,
    cursorReceivedAt: null,
    isComplete: false,
    pages: 0,
    records: 0,
    quarantined: 0,
    resumed: 0,
    waitedMs: 0,
  }
}

/** Notes that an interrupted walk goes on from its cursor. */
export async function resumeWalk(db: Database, walk: OpenWalk): Promise<OpenWalk> {
  await db.run('update warehouse.raw.walk set resumed = resumed + 1 where walk_id = $1', [walk.walkId])
  return {...walk, resumed: walk.resumed + 1}
}

/** Ends a walk that will not be applied and drops what it staged. */
export async function dropWalk(
  db: Database,
  stream: Stream,
  walkId: string,
  end: {state: 'abandoned' | 'refused'; how: string},
): Promise<void> {
  await inTransaction(db, async () => {
    await db.run(`delete from ${tablesOf(stream).staged}`)
    await db.run('delete from warehouse.raw.page where walk_id = $1', [walkId])
    await db.run('delete from warehouse.raw.listing where walk_id = $1', [walkId])
    // A walk that starts anew sees its bad records again; those of a refused walk are the evidence.
    if (end.state === 'abandoned') {
      await db.run('delete from warehouse.raw.quarantine where walk_id = $1 and replayed_at is null', [
        walkId,
      ])
    }
    await db.run('update warehouse.raw.walk set state = $2, ended_how = $3 where walk_id = $1', [
      walkId,
      end.state,
      end.how,
    ])
  })
}

/** The cursors a walk has used and been given, in order. */
export async function readCursors(db: Database, walk: OpenWalk): Promise<string[]> {
  const rows = await db.all(
    z.object({cursor: z.string()}),
    'select cursor from warehouse.raw.page where walk_id = $1 and cursor is not null order by page_no',
    [walk.walkId],
  )
  return [...rows.map(({cursor}) => cursor), ...(walk.nextCursor === null ? [] : [walk.nextCursor])]
}

/** The ids of the records a walk has read, those in quarantine included. */
export async function* listReadIds(db: Database, stream: Stream, walk: OpenWalk): AsyncGenerator<string> {
  if (walk.pages === 0) return
  const rows = db.stream(
    `select ${stream.idColumn} from ${tablesOf(stream).staged}
     union all
     select record_id from warehouse.raw.quarantine
     where walk_id = ${quoteLiteral(walk.walkId)} and record_id is not null`,
  )
  for await (const ids of rows) yield* ids.map(String)
}

/**
 * Stores a group of pages: their records, the pages and the next cursor in one transaction, so that a killed run
 * continues exactly after the last page it has.
 *
 * @returns the walk as it stands now
 */
export async function storePages(
  db: Database,
  walk: OpenWalk,
  group: PageGroup,
  waitedMs: number,
): Promise<OpenWalk> {
  const {last, quarantined} = group
  if (!last) return walk
  const unreadableIds = quarantined.filter(({id}) => id === null).length
  const next: OpenWalk = {
    ...walk,
    nextCursor: last.nextCursor,
    cursorReceivedAt: BigInt(last.receivedAt) * 1000n,
    isComplete: last.nextCursor === null,
    pages: walk.pages + group.pages,
    records: walk.records + group.records,
    quarantined: walk.quarantined + quarantined.length,
    waitedMs: walk.waitedMs + waitedMs,
  }
  await inTransaction(db, async () => {
    await group.store(db)
    await db.run(
      `update warehouse.raw.walk set next_cursor = $2, cursor_received_at = $3, is_complete = $4, pages = $5,
         records = $6, quarantined = $7, unreadable_ids = unreadable_ids + $8, waited_ms = $9, envelope = $10,
         ended_at = $11
       where walk_id = $1`,
      [
        walk.walkId,
        next.nextCursor,
        new DuckDBTimestampValue(BigInt(last.receivedAt) * 1000n),
        next.isComplete,
        next.pages,
        next.records,
        next.quarantined,
        unreadableIds,
        next.waitedMs,
        last.envelope,
        new DuckDBTimestampValue(last.observedAt),
      ],
    )
  })
  return next
}
