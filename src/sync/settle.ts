import {DuckDBTimestampValue} from '@duckdb/node-api'
import {z} from 'zod'
import {dealStream} from '../contract/deal.ts'
import {STREAMS} from '../contract/streams.ts'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import {type ChangeCounts, NO_CHANGES, type World} from '../core/types.ts'
import {type Database, inTransaction} from '../store/database.ts'
import type {StateDb} from '../store/state-db.ts'
import {writeSettings} from '../store/warehouse.ts'
import {applyObservations, type Fetched, storeWalk} from './apply.ts'
import {judgePlan} from './guard.ts'
import {
  type Answer,
  type BesideIntake,
  type Intake,
  openIntake,
  readKnown,
  type WalkIntake,
  type WalkTools,
} from './intake.ts'
import {findLastSettle} from './mapped-fields.ts'
import {type ChangePlan, countUntold, type OpenWalk, planChanges} from './plan-changes.ts'
import {listKept, noteReplayed} from './quarantine.ts'
import {appendRates} from './rate-feed.ts'
import {BESIDE, tablesOf} from './stream-tables.ts'
import type {Tapes} from './tapes.ts'
import {findDealsToldSince, settleWalkCoverage} from './webhook-events.ts'

/**
 * Stores what becomes history, in one transaction with a row of `raw.settle`: its `history_id` stands for everything
 * stored up to here, so two histories are the same up to a settle exactly when both have it. If nothing was appended, history is
 * unchanged and gets no row.
 *
 * @param what `walkId`: the walk whose lists are stored with it; `now`: business clock, microseconds since the epoch
 * @param append stores rows with the `recorded_at` it is given, and returns the head of the tape then; it leaves
 * nothing behind when it fails
 * @returns `recorded_at`, microseconds since the epoch; later than every one before it
 */
export function settle(
  db: Database,
  {kind, walkId, now}: {kind: Intake['kind']; walkId: string | null; now: bigint},
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
    await writeSettings(db, {tape_head: tapeHead})
    return recordedAt
  })
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

interface Settling {
  /** Business clock, microseconds since the epoch. */
  now: bigint
  details?: Fetched | undefined
  /** Throws if the planned changes are not believable. */
  judge?: ((plan: ChangePlan) => Promise<void>) | undefined
  /** Writes to the tape that it is stored at this instant; returns the chain of that line. */
  conclude: (recordedAt: bigint) => string
}

/**
 * Makes the staged rows of a unit history, in one transaction: for the first time, or again from its tape.
 *
 * @returns how many records or values could be read, and how many versions or values were appended
 */
export async function settleUnit(db: Database, unit: Intake, settling: Settling) {
  const {now, details, judge, conclude} = settling
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
  // A refused walk pins neither source nor envelope.
  if (unit.kind === 'walk')
    await writeSettings(db, {
      source_base_url: unit.walk.baseUrl,
      ...(!stream.parent && {envelope: unit.walk.envelope}),
    })
  await settle(db, {kind, walkId: batch.walkId, now}, async (recorded) => {
    await applyObservations(db, stream, batch, {plan, details, recorded})
    if (unit.kind === 'replay') await noteReplayed(db, unit.entries, now)
    return conclude(recorded.micros)
  })
  const read = unit.kind === 'walk' ? unit.walk.records - unit.walk.quarantined : unit.entries.length
  return {read, appended: plan.appended}
}

/** Drops staged records that are no longer in quarantine: their walk may have been taken back meanwhile. */
async function stagesKept(db: Database, {entries}: BesideIntake): Promise<boolean> {
  const kept = new Set(await listKept(db, entries))
  const gone = entries.flatMap((id, position) => (kept.has(id) ? [] : [position]))
  if (gone.length > 0) await db.run(`delete from temp.${BESIDE} where position in (${gone.join(', ')})`)
  return kept.size > 0
}

/**
 * Writes a unit that is not a walk to the tape of a day, takes it in, and settles it.
 *
 * @param unit what its first line says, its lines with their parsed bodies, and who judges it
 */
export function settleBeside(
  {db, tapes}: {db: Database; tapes: Tapes},
  date: string,
  unit: {said: Record<string, unknown>; lines: readonly Answer[]; judge?: Settling['judge']},
  {clock}: Pick<World, 'clock'>,
) {
  const now = BigInt(Math.floor(clock.now())) * 1000n
  return tapes.settleOfDay(date, unit.said, async ({name, begin, conclude}) => {
    const intake = openIntake(db, await readKnown(db), begin)
    if (!intake) throw new Error(`Unit of kind '${begin.kind}': it cannot be settled.`)
    for (const {frame, body, received} of unit.lines) intake.take(tapes.take(name, frame, received), body)
    tapes.store(name)
    await intake.stage()
    return settleUnit(db, intake, {now, judge: unit.judge, conclude})
  })
}

/**
 * Applies a walk, unless too much of it is unreadable or a guard refuses it: then nothing is applied, and
 * its certificate and its rejected records are kept.
 *
 * @throws ContractError `SOURCE_QUARANTINE`; GuardError; DeferredError `CLOCK_STEPPED`
 */
export async function settleWalk(
  tools: WalkTools,
  unit: WalkIntake,
  details: Fetched,
  world: World,
): Promise<ChangeCounts> {
  const {db, stateDb, config, tapes} = tools
  const {walk, stream} = unit
  const now = BigInt(world.clock.now()) * 1000n
  world.onProgress({step: 'applying'})
  let counts = NO_CHANGES
  await settleUnit(db, unit, {
    now,
    details,
    async judge(plan) {
      counts = plan.counts
      world.onStep('changes planned')
      try {
        await requireBelievable(tools, unit, plan)
      } catch (refusal) {
        await endWalk(tools, unit, {state: 'refused', how: String(refusal)})
        throw refusal
      }
      if (!stream.parent && config.webhookSecret !== undefined) await settleCoverage(db, stateDb, walk, world)
    },
    conclude: (recordedAt) =>
      tapes.conclude(walk.walkId, {outcome: 'settled', recordedAt, ...describeEnd(walk), details, counts}),
  })
  tools.walks.delete(stream.name)
  tapes.finish(walk.walkId)
  world.onStep('changes applied')
  return counts
}

async function requireBelievable(
  {db, config, accepted}: WalkTools,
  {walk, stream}: WalkIntake,
  plan: ChangePlan,
): Promise<void> {
  await requireBoundedQuarantine(db, walk)
  await judgePlan(db, stream, plan, config, accepted)
}

/** The facts of a walk that no other line of its tape holds. */
function describeEnd({isComplete, waitedMs, certified}: OpenWalk): Record<string, unknown> {
  return {is_complete: isComplete, waited_ms: waitedMs, is_certified: certified !== null}
}

/** Drops the open walks that `isDropped` picks, of any stream. */
export async function dropWalks(
  tools: Pick<WalkTools, 'db' | 'tapes' | 'walks'>,
  how: string,
  isDropped: (walk: OpenWalk) => boolean = () => true,
): Promise<void> {
  const dropped = [...tools.walks.values()].filter(({walk}) => isDropped(walk))
  for (const unit of dropped) await endWalk(tools, unit, {state: 'abandoned', how})
}

/** Ends a walk that will not be applied, on its tape first. */
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
 * Returns the certificate of a walk and what settling it would change, and drops the walk.
 *
 * @throws what {@link settleWalk} would
 */
export async function previewWalk(
  tools: WalkTools,
  unit: WalkIntake,
): Promise<{certificate: ReturnType<typeof certificateOf>; changes: ChangeCounts}> {
  const {walk, stream} = unit
  try {
    const plan = await planChanges(tools.db, stream, walk)
    await requireBelievable(tools, unit, plan)
    return {certificate: certificateOf(walk), changes: plan.counts}
  } finally {
    await endWalk(tools, unit, {state: 'abandoned', how: 'dry run'})
  }
}

/** This many bad records are always tolerated. */
const TOLERATED_RECORDS = 3
const TOLERATED_PCT = 5

/**
 * Refuses a walk with too many unreadable records: then the source has changed, not single records.
 *
 * @throws ContractError `SOURCE_QUARANTINE` naming the most frequent places
 */
export async function requireBoundedQuarantine(db: Database, walk: OpenWalk): Promise<void> {
  const {quarantined, records} = walk
  if (quarantined <= TOLERATED_RECORDS || quarantined * 100 <= records * TOLERATED_PCT) return
  const places = await db.all(
    z.object({path: z.string(), reason: z.string(), records: z.string()}),
    `select path, any_value(reason) as reason, count(*) as records from temp.staged_quarantine
     where walk_id = $1 group by path order by count(*) desc, path limit 3`,
    [walk.walkId],
  )
  const worst = places.map((place) => `${place.path} (${place.records}: ${place.reason})`).join('; ')
  throw newError(
    'SOURCE_QUARANTINE',
    `${quarantined} of ${quantity(records, 'record')} could not be read, more than ${TOLERATED_PCT} %: ${worst}.`,
  )
}

/**
 * Compares what a planned walk of deals found with what webhooks announced. An event counts for a walk if it was received after
 * the previous walk began, looked at or not; the first walk under webhooks is only a baseline for the next. The walk is not
 * applied yet: if the run dies now, the run that continues it counts again.
 */
async function settleCoverage(
  db: Database,
  stateDb: StateDb,
  {walkId}: {walkId: string},
  {realClock, log}: World,
): Promise<void> {
  const before = await db.value(
    z.string().nullable(),
    `select arg_max(walk_id, recorded_at) from warehouse.raw.walk
     where stream = '${dealStream.name}' and state = 'applied'`,
  )
  const told = before === null ? undefined : findDealsToldSince(stateDb, before)
  const found = told ? await countUntold(db, dealStream, told) : null
  settleWalkCoverage(stateDb, walkId, found, realClock.now())
  if (found === null) return
  log.info(
    {walk_id: walkId, changes: found.changes, count: found.missed},
    'changes that no webhook had told of',
  )
}

/** The certificate of a walk whose changes were planned; `sync --json` prints it. */
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
  }
}
