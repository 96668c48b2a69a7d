import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import {dealStream} from '../contract/deal.ts'
import {STREAMS} from '../contract/streams.ts'
import {type ChangeCounts, NO_CHANGES, type World} from '../core/types.ts'
import {type Database, inTransaction} from '../store/database.ts'
import {buildDigestSql} from '../store/sql.ts'
import type {StateDb} from '../store/state-db.ts'
import {writeSettings} from '../store/warehouse.ts'
import {applyObservations, storeWalk} from './apply.ts'
import {judgePlan} from './guard.ts'
import {
  type Answer,
  type BesideIntake,
  type Intake,
  openIntake,
  type WalkIntake,
  type WalkTools,
} from './intake.ts'
import {findLastSettle, readStreams} from './mapped-fields.ts'
import {type ChangePlan, type OpenWalk, planChanges} from './plan-changes.ts'
import {appendRates} from './rate-feed.ts'
import {BESIDE, tablesOf} from './stream-tables.ts'
import type {Tapes} from './tapes.ts'
import {findDealsToldSince, settleWalkCoverage} from './webhook-events.ts'

/**
 * Stores what becomes history, in one transaction with a row of `raw.settle`, whose `history_id` stands for everything stored so
 * far: two histories are equal up to a settle exactly when both have its id. If nothing was appended, history is unchanged and
 * gets no row. `now` is on the business clock, microseconds since the epoch; `append` returns the tape's head. Returns
 * `recorded_at`, microseconds since the epoch, later than every one before it.
 */
export function settle(
  db: Database,
  {kind, walkId, now}: {kind: Intake['kind']; walkId: string | null; now: bigint},
  append: (recordedAt: DuckDBTimestampValue) => Promise<string>,
): Promise<bigint> {
  return inTransaction(db, async () => {
    const last = await findLastSettle(db)
    const recordedAt = last !== null && last >= now ? last + 1n : now
    const recorded = new DuckDBTimestampValue(recordedAt)
    const tapeHead = await append(recorded)
    const storedSql = await buildStoredSql(db)
    await db.run(
      `insert into history.raw.settle by name
       with stored as (${storedSql}),
       before as (
         select coalesce(max(seq), 0) as seq, coalesce(arg_max(history_id, seq), '') as history_id
         from history.raw.settle
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
       where exists (from stored)`,
      [recorded, walkId, kind, tapeHead],
    )
    await writeSettings(db, {tape_head: tapeHead})
    return recordedAt
  })
}

/**
 * Each table's number of rows stored at `$1` or with walk `$2`, and a digest of them that ignores order; no row for a table
 * without any, so that a table of a later version changes no earlier `history_id`.
 */
async function buildStoredSql(db: Database): Promise<string> {
  const own = await db.all(
    z.object({table: z.string(), columns: z.array(z.string())}),
    // Numbers of 128 bits take the engine a millisecond each as decimal text. False counts for nothing, as null does.
    `select table_name as "table",
       list(
         case data_type
           when 'UHUGEINT' then format('hex({})', column_name)
           when 'BOOLEAN' then format('nullif({}, false)', column_name)
           else column_name
         end
         order by column_name
       ) as columns
     from duckdb_columns() where database_name = 'history' and schema_name = 'raw' group by all`,
  )
  const columnsOf = new Map(own.map(({table, columns}) => [`history.raw.${table}`, columns]))
  // The name is part of every history id, so it must not depend on what the database is attached as.
  const count = (table: string, condition = 'recorded_at = $1', columns = columnsOf.get(table) ?? []) =>
    `select '${table.replace('history', 'warehouse')}' as name, count(*) as records, bit_xor(${buildDigestSql(columns)}) as digest from ${table} where ${condition} having records > 0`
  const certificate =
    'walk_id, stream, business_date, is_complete, records, quarantined, amount_total, cursor_digest'
  const ofStreams = STREAMS.flatMap((stream) => {
    const {version, confirmation} = tablesOf(stream)
    // `row_hash` is computed from the others.
    const beside = columnsOf.get(version)?.filter((own) => stream.columns.every(({name}) => name !== own))
    return [
      count(version, 'recorded_at = $1', beside),
      ...(confirmation === null ? [] : [count(confirmation)]),
    ]
  })
  return [
    ...ofStreams,
    count('history.raw.rate'),
    count('history.raw.quarantine'),
    count('history.raw.walk', 'recorded_at = $1', certificate.split(', ')),
    count('history.raw.listing', 'walk_id = $2'),
  ].join(' union all ')
}

interface Settling {
  /** Business clock, microseconds since the epoch. */
  now: bigint
  /** Throws if the planned changes are not believable. */
  judge?: ((plan: ChangePlan) => Promise<void>) | undefined
  /** Writes to the tape that the unit is stored at this instant, and returns the chain of that line. */
  conclude: (recordedAt: bigint) => string
}

/**
 * Makes the staged rows of a unit history: for the first time, or again from its tape. Counts records or values that could be
 * read, and versions or values appended.
 */
export async function settleUnit(db: Database, unit: Intake, settling: Settling) {
  const {now, judge, conclude} = settling
  let counted = {read: 0, appended: 0}
  if (unit.kind === 'rates') {
    await settle(db, {kind: unit.kind, walkId: null, now}, async (recorded) => {
      counted = await appendRates(db, unit.reading, recorded)
      return conclude(recorded.micros)
    })
    return counted
  }
  const {kind, stream} = unit
  if (unit.kind === 'replay' && !(await stagesKept(db, unit))) return counted
  const batch = unit.kind === 'walk' ? unit.walk : unit.batch
  const plan = await planChanges(db, stream, batch)
  await judge?.(plan)
  await settle(db, {kind, walkId: batch.walkId, now}, async (recorded) => {
    await applyObservations(db, stream, batch, {plan, recorded})
    if (unit.kind === 'replay')
      await db.run(
        `update history.raw.quarantine set replayed_at = $2 where quarantine_id in (select id from (${ENTRIES}))`,
        [JSON.stringify(unit.entries), recorded],
      )
    return conclude(recorded.micros)
  })
  const read = unit.kind === 'walk' ? unit.walk.records - unit.walk.quarantined : unit.entries.length
  return {read, appended: plan.appended}
}

/** The ids in `$1`, a JSON array, with their positions. */
const ENTRIES = `select unnest(ids) as id, unnest(range(len(ids))) as position
  from (select from_json($1, '["varchar"]') as ids)`

/**
 * Drops staged records that are no longer in quarantine, since their walk may have been taken back. Returns whether any are
 * left.
 */
async function stagesKept(db: Database, {entries}: BesideIntake): Promise<boolean> {
  await db.run(
    `delete from temp.${BESIDE} where position in (
       select position from (${ENTRIES}) where id not in (select quarantine_id from history.raw.quarantine)
     )`,
    [JSON.stringify(entries)],
  )
  return db.value(z.boolean(), `select count(*) > 0 from temp.${BESIDE}`)
}

/** Settles a unit that is not a walk. `said` is in its first line on the tape. */
export function settleBeside(
  {db, tapes}: {db: Database; tapes: Tapes},
  date: string,
  unit: {said: Record<string, unknown>; lines: readonly Answer[]; judge?: Settling['judge']},
  {clock}: Pick<World, 'clock'>,
) {
  const now = BigInt(Math.floor(clock.now())) * 1000n
  return tapes.settleOfDay(date, unit.said, async ({name, begin, conclude}) => {
    const intake = openIntake(db, await readStreams(db), begin)
    if (!intake) throw new Error(`Unit of kind '${begin.kind}': it cannot be settled.`)
    for (const {frame, body, received} of unit.lines) intake.take(tapes.take(name, frame, received), body)
    tapes.store(name)
    await intake.stage()
    return settleUnit(db, intake, {now, judge: unit.judge, conclude})
  })
}

/**
 * Applies a walk. If it is refused, its certificate and its rejected records are kept.
 * @throws ContractError `SOURCE_QUARANTINE`; GuardError; DeferredError `CLOCK_STEPPED`
 */
export async function settleWalk(tools: WalkTools, unit: WalkIntake, world: World): Promise<ChangeCounts> {
  const {db, stateDb, config, tapes} = tools
  const {walk, stream} = unit
  const now = BigInt(world.clock.now()) * 1000n
  world.onProgress({step: 'applying'})
  let counts = NO_CHANGES
  await settleUnit(db, unit, {
    now,
    async judge(plan) {
      counts = plan.counts
      world.onStep('changes planned')
      try {
        await judgePlan(db, unit, plan, config, tools.accepted)
      } catch (refusal) {
        await endWalk(tools, unit, {state: 'refused', how: String(refusal)})
        throw refusal
      }
      if (!stream.parent && config.webhookSecret !== undefined) await settleCoverage(db, stateDb, walk, world)
    },
    conclude: (recordedAt) =>
      tapes.conclude(
        walk.walkId,
        {outcome: 'settled', ...describeEnd(walk), details: walk.details, counts},
        recordedAt,
      ),
  })
  tools.walks.delete(stream.name)
  tapes.finish(walk.walkId)
  world.onStep('changes applied')
  return counts
}

/** What no other line of a walk's tape holds. */
const describeEnd = ({isComplete, waitedMs, certified}: OpenWalk) => ({
  is_complete: isComplete,
  waited_ms: waitedMs,
  is_certified: certified !== null,
})

export async function dropWalks(
  tools: Pick<WalkTools, 'db' | 'tapes' | 'walks'>,
  how: string,
  isDropped: (walk: OpenWalk) => boolean = () => true,
): Promise<void> {
  const dropped = [...tools.walks.values()].filter(({walk}) => isDropped(walk))
  for (const unit of dropped) await endWalk(tools, unit, {state: 'abandoned', how})
}

/** Ends a walk that will not be applied, first on its tape. */
export async function endWalk(
  {db, tapes, walks}: Pick<WalkTools, 'db' | 'tapes' | 'walks'>,
  {walk, stream}: WalkIntake,
  end: {state: 'abandoned' | 'refused'; how: string},
): Promise<void> {
  const outcome = end.how === 'dry run' ? end.how : end.state
  const tapeHead = tapes.conclude(walk.walkId, {outcome, why: end.how, ...describeEnd(walk)})
  await storeWalk(db, stream, walk, {...end, tapeHead})
  walks.delete(stream.name)
  tapes.finish(walk.walkId)
}

/**
 * The certificate of a walk and what settling it would change. Drops the walk, unless another run began it.
 * @throws as {@link settleWalk} does
 */
export async function previewWalk(tools: WalkTools, unit: WalkIntake) {
  const {db, config, accepted} = tools
  const {walk, stream} = unit
  try {
    const plan = await planChanges(db, stream, walk)
    await judgePlan(db, unit, plan, config, accepted)
    return {certificate: certificateOf(walk), changes: plan.counts}
  } finally {
    if (walk.resumed === 0) await endWalk(tools, unit, {state: 'abandoned', how: 'dry run'})
  }
}

/**
 * Compares what a planned walk of deals found (deals new, different, back or newly absent) with what webhooks announced since
 * the previous walk began; the first walk under webhooks is only a baseline. The walk is not applied yet: if the run dies now,
 * the next one counts again.
 */
async function settleCoverage(
  db: Database,
  stateDb: StateDb,
  {walkId}: {walkId: string},
  {realClock, log}: World,
): Promise<void> {
  const before = await db.value(
    z.string().nullable(),
    `select arg_max(walk_id, recorded_at) from history.raw.walk
     where stream = '${dealStream.name}' and state = 'applied'`,
  )
  const told = findDealsToldSince(stateDb, before)
  const found =
    told === undefined
      ? null
      : await db.one(
          z.object({changes: z.coerce.number(), missed: z.coerce.number()}),
          `select
             count(*) as changes,
             count(*) filter (deal_id not in (select unnest(from_json($1, '["varchar"]')))) as missed
           from temp.change
           where (is_listed and content not in ('unchanged', 'respelled')) or (kind <> 'seen' and head_kind = 'seen')`,
          [told],
        )
  settleWalkCoverage(stateDb, walkId, found, realClock.now())
  if (found)
    log.info(
      {walk_id: walkId, changes: found.changes, count: found.missed},
      'changes that no webhook had told of',
    )
}

/** Requires that the walk's changes were planned. `sync --json` prints it. */
export function certificateOf(walk: OpenWalk) {
  return {
    walk_id: walk.walkId,
    business_date: walk.businessDate,
    pages: walk.pages,
    records: walk.records,
    distinct: walk.certified?.distinct_records ?? 0,
    duplicates: walk.certified?.duplicates ?? 0,
    quarantined: walk.quarantined,
    resumed: walk.resumed,
    details: walk.details,
  }
}
