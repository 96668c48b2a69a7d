import {businessDateOf} from '../clock.ts'
import {type Config, requireSource, type SourceConfig} from '../config.ts'
import {dealStream} from '../contract/deal.ts'
import {findLearntRate, storeLearntRate} from '../ledger/learnt-rate.ts'
import {type Ledger, openLedger} from '../ledger/ledger.ts'
import {withRun} from '../ledger/runs.ts'
import {addSourceAnswers} from '../ledger/source-answers.ts'
import {listWaitingEvents, settleEvents} from '../ledger/webhook-events.ts'
import {applyLooks, listKnownFields} from '../load/looks.ts'
import {findPast} from '../load/walk-state.ts'
import {createNormaliser} from '../normalise/record.ts'
import {syncDeals} from '../pipeline.ts'
import {createClient} from '../source/client.ts'
import {type DetailAnswer, fetchDetails} from '../source/detail.ts'
import type {Frame} from '../tape/line.ts'
import type {Observation, Received, WireRecord, World} from '../types.ts'
import {type DataFolder, dataFolderAt, requireWritable} from '../warehouse/data-folder.ts'
import type {Database} from '../warehouse/database.ts'
import {refreshHistory} from '../warehouse/history.ts'
import {openWarehouse} from '../warehouse/warehouse.ts'
import {restageWalks} from './restage.ts'
import {openTapes} from './tapes.ts'
import {requireOwnSource} from './walk.ts'
import {createWalkClock} from './walk-clock.ts'

/** What the events that waited came to. */
export interface EventsResult {
  /** `walked`: what they were about could only be seen by a walk. */
  outcome: 'applied' | 'walked' | 'unchanged'
  events: number
  deals: number
  /** Versions appended; a deal that is as it was appends none. */
  appended: number
}

/**
 * Looks again at the deals that webhooks named and appends what is new; the next release shows it. Where a deal's own page
 * is not to be had, or says the deal is gone, a walk is made instead: only that proves an absence.
 */
export async function applyEvents(config: Config, world: World): Promise<EventsResult> {
  const source = requireSource(config)
  const folder = dataFolderAt(config.dataDir)
  requireWritable(folder)
  using ledger = openLedger(folder.ledger)
  const events = listWaitingEvents(ledger)
  const ids = [...new Set(events.map(({deal_id}) => deal_id))]
  if (ids.length === 0) return {outcome: 'unchanged', events: 0, deals: 0, appended: 0}
  const looked = config.detail === 'off' ? undefined : await lookAgain({folder, ledger, source, ids}, world)
  const outcome = looked?.isComplete ? 'applied' : 'walked'
  if (outcome === 'walked') await syncDeals(config, {}, world)
  const eventIds = events.map(({event_id}) => event_id)
  settleEvents(ledger, {eventIds, outcome}, world.realClock.now())
  return {outcome, events: events.length, deals: ids.length, appended: looked?.appended ?? 0}
}

async function lookAgain(
  {folder, ledger, source, ids}: {folder: DataFolder; ledger: Ledger; source: SourceConfig; ids: string[]},
  outside: World,
): Promise<{isComplete: boolean; appended: number; outcome: 'applied'}> {
  return withRun(folder.ledger, 'events', outside, async () => {
    await using tapes = openTapes(source, {folder, ledger}, outside)
    await using db = await openWarehouse(folder, outside, source.memoryMb)
    const walks = await restageWalks({db, tapes}, outside)
    await requireOwnSource({db, tapes, walks}, source.baseUrl, new Set())
    const world = {...outside, clock: await createWalkClock(db, walks, outside.clock)}
    const learntRate = findLearntRate(ledger, source.baseUrl, world)
    await using client = createClient({...source, learntRate}, world)
    const answers: DetailAnswer[] = []
    const request = {
      path: source.detailPath,
      mode: 'on' as const,
      concurrency: source.detailConcurrency,
      budgetMs: source.detailBudgetMinutes * 60_000,
    }
    try {
      for await (const answer of fetchDetails(ids, request, client, world)) answers.push(answer)
    } finally {
      storeLearntRate(ledger, source.baseUrl, client.stats.ratePerSecond, world)
      addSourceAnswers(ledger, client.stats.answers)
    }
    const past = await findPast(db, dealStream)
    const today = businessDateOf(world.clock.now(), source)
    const businessDate = past && past.businessDate > today ? past.businessDate : today
    const {lines, observations} = await readObservations(db, answers)
    const told = {businessDate, isWalkOpen: walks.has(dealStream.name)}
    const unit = {said: {kind: 'look', stream: dealStream.name, ...told}, lines}
    const appended = await tapes.settleOfDay(businessDate, unit, (alongside) =>
      applyLooks(db, dealStream, {
        ...told,
        observations,
        limits: source,
        now: BigInt(world.clock.now()) * 1000n,
        alongside,
      }),
    )
    if (appended > 0) await refreshHistory(db, folder)
    return {isComplete: observations.length === ids.length, appended, outcome: 'applied'}
  })
}

/** What was read of each record, and its line on the tape. */
async function readObservations(
  db: Database,
  answers: readonly DetailAnswer[],
): Promise<{lines: [Frame, Received][]; observations: Observation[]}> {
  const found = answers.filter((answer) => answer.outcome === 'found')
  const known = await listKnownFields(
    db,
    dealStream,
    found.map(({id}) => id),
  )
  return {
    lines: found.map(({id, received}) => [{frame: 'look', id, known: known.get(id)}, received]),
    observations: found.flatMap(createLookReader(known)),
  }
}

/** A fetched record is one observation: the fields of its own page over those last known. */
export function createLookReader(
  known: ReadonlyMap<string, WireRecord>,
): (look: {id: string; record: WireRecord; observedAt: bigint}) => Observation[] {
  const normalise = createNormaliser(dealStream)
  return ({id, record, observedAt}) => normalise([{...known.get(id), ...record}], observedAt).observations
}
