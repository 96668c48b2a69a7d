import {z} from 'zod'
import {dealStream} from '../contract/deal.ts'
import type {Stream} from '../contract/stream.ts'
import {STREAMS} from '../contract/streams.ts'
import type {SourceConfig} from '../core/config.ts'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import type {Certificate, ChangeCounts, World} from '../core/types.ts'
import type {SourceClient} from '../source/client.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import type {StateDb} from '../store/state-db.ts'
import type {Warehouse} from '../store/warehouse.ts'
import {readSetting, writeSetting} from '../store/warehouse.ts'
import {applyObservations} from './apply.ts'
import {type Acceptance, guardChanges} from './guard.ts'
import {planChanges} from './plan-changes.ts'
import {findLastAppliedWalk, listChangedIds} from './settle.ts'
import type {Tapes} from './tapes.ts'
import {certifyWalk, type OpenWalk, type OpenWalks, storeWalk} from './walk-state.ts'
import {findDealsToldSince, settleWalkCoverage} from './webhook-events.ts'

/** What a run at the source works with. */
export interface WalkTools {
  runId: string
  db: Warehouse
  stateDb: StateDb
  folder: DataFolder
  tapes: Tapes
  walks: OpenWalks
  /** What is read: at first the deals, with the fields that are mapped. */
  stream: Stream
  client: SourceClient
  config: SourceConfig
  accepted: ReadonlySet<Acceptance>
}

/**
 * Applies a certified walk, unless too much of it could not be read or a guard finds it unbelievable: then nothing is
 * applied, and its certificate and its rejected records are kept.
 *
 * @throws ContractError `SOURCE_QUARANTINE`; GuardError; DeferredError `CLOCK_STEPPED`
 */
export async function settleWalk(
  tools: WalkTools,
  walk: OpenWalk,
  details: {fetched: number; failed: number},
  world: World,
): Promise<ChangeCounts> {
  const {db, stateDb, stream, config, accepted, tapes} = tools
  const now = BigInt(world.clock.now()) * 1000n
  world.onProgress({step: 'applying'})
  const plan = await planChanges(db, stream, walk)
  world.onStep('changes planned')
  try {
    await requireBoundedQuarantine(db, walk)
    guardChanges(plan, config, accepted, stream)
  } catch (refusal) {
    await endWalk(tools, walk, {state: 'refused', how: String(refusal)})
    throw refusal
  }
  await pinSource(db, stream, walk)
  if (!stream.parent && config.webhookSecret !== undefined) await settleCoverage(db, stateDb, walk, world)
  const conclude = (recordedAt: bigint) =>
    tapes.conclude(walk.walkId, {
      outcome: 'settled',
      recordedAt,
      ...describeEnd(walk),
      details,
      counts: plan.counts,
    })
  await applyObservations(db, stream, walk, {plan, now, details, conclude})
  tools.walks.delete(stream.name)
  await tapes.finish(walk.walkId)
  world.onStep('changes applied')
  return plan.counts
}

/** What of a walk stands in no other line of its tape. */
function describeEnd({isComplete, waitedMs, certified}: OpenWalk): Record<string, unknown> {
  return {is_complete: isComplete, waited_ms: waitedMs, is_certified: certified !== null}
}

/** Drops the walks under way, of every stream, that `isDropped` picks. */
export async function dropWalks(
  tools: Pick<WalkTools, 'db' | 'tapes' | 'walks'>,
  how: string,
  isDropped: (walk: OpenWalk) => boolean = () => true,
): Promise<void> {
  for (const stream of STREAMS) {
    const open = tools.walks.get(stream.name)
    if (open && isDropped(open)) await endWalk({...tools, stream}, open, {state: 'abandoned', how})
  }
}

/** Ends a walk that will not be applied: its tape says so first. */
export async function endWalk(
  {db, stream, tapes, walks}: Pick<WalkTools, 'db' | 'stream' | 'tapes' | 'walks'>,
  walk: OpenWalk,
  end: {state: 'abandoned' | 'refused'; how: string},
): Promise<void> {
  const outcome = end.how === 'dry run' ? end.how : end.state
  const tapeHead = await tapes.conclude(walk.walkId, {outcome, why: end.how, ...describeEnd(walk)})
  await storeWalk(db, stream, walk, {...end, tapeHead})
  walks.delete(stream.name)
  await tapes.finish(walk.walkId)
}

/** Binds a data folder to the source of a walk that is believed, and to the form of its pages; one that is not binds nothing. */
export async function pinSource(db: Database, stream: Stream, walk: OpenWalk): Promise<void> {
  const pins = {source_base_url: walk.baseUrl, ...(!stream.parent && {envelope: walk.envelope})}
  for (const name of ['source_base_url', 'envelope'] as const) {
    const value = pins[name] ?? null
    if (value !== null && value !== (await readSetting(db, name))) await writeSetting(db, name, value)
  }
}

/**
 * The certificate of a walk, and what settling it would change; the walk is dropped.
 *
 * @throws what {@link settleWalk} would
 */
export async function previewWalk(
  tools: WalkTools,
  walk: OpenWalk,
): Promise<{certificate: Certificate; changes: ChangeCounts}> {
  const {db, stream, config, accepted} = tools
  try {
    const certificate = await certifyWalk(db, stream, walk)
    const plan = await planChanges(db, stream, walk)
    await requireBoundedQuarantine(db, walk)
    guardChanges(plan, config, accepted, stream)
    return {certificate, changes: plan.counts}
  } finally {
    await endWalk(tools, walk, {state: 'abandoned', how: 'dry run'})
  }
}

/** A walk may have this many bad records whatever their share. */
const TOLERATED_RECORDS = 3
const TOLERATED_PCT = 5

/**
 * Refuses a walk too many of whose records could not be read: then the source changed, not the records.
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
 * Compares what a planned walk of deals found with what webhooks had told of. Events count for a walk when they were received
 * after the walk before it had begun, looked at or not; the first walk under webhooks only gives the next something to count from.
 * The walk is not applied yet: if the run dies now, the run that continues it counts again.
 */
async function settleCoverage(
  db: Database,
  stateDb: StateDb,
  {walkId}: {walkId: string},
  {realClock, log}: World,
): Promise<void> {
  const found = await compareWithEvents(db, stateDb)
  settleWalkCoverage(stateDb, walkId, found, realClock.now())
  if (found === null) return
  log.info(
    {walk_id: walkId, changes: found.changes, count: found.missed},
    'changes that no webhook had told of',
  )
}

async function compareWithEvents(
  db: Database,
  stateDb: StateDb,
): Promise<{changes: number; missed: number} | null> {
  const before = await findLastAppliedWalk(db, dealStream)
  const told = before === null ? undefined : findDealsToldSince(stateDb, before)
  if (!told) return null
  const found = {changes: 0, missed: 0}
  for await (const id of listChangedIds(db, dealStream)) {
    found.changes += 1
    if (!told.has(id)) found.missed += 1
  }
  return found
}
