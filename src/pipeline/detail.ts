import {burstOf} from '../config.ts'
import type {Stream} from '../contract/stream.ts'
import {type DetailCandidate, listDetailCandidates, type StagedDetail, stageDetails} from '../load/details.ts'
import {findAbsences} from '../load/plan-changes.ts'
import type {OpenWalk} from '../load/walk-state.ts'
import {createNormaliser, type Normaliser} from '../normalise/record.ts'
import {type DetailSaid, fetchDetails} from '../source/ask-record.ts'
import type {Observation, WireRecord, World} from '../types.ts'
import type {WalkTools} from './settle-walk.ts'

/** The path of one deal, below the base URL. */
export const DETAIL_PATH = '/deals/{id}'

/** Details are stored together up to this many. */
const GROUP_DETAILS = 200

/**
 * Fetches, within the budget, the records whose own page says more than the list does, and stages what they say.
 * A detail path that fails or is not there costs nothing but the fields it would have brought.
 */
export async function fetchMissingDetails(
  {db, stream, client, config, tapes}: WalkTools,
  walk: OpenWalk,
  world: World,
): Promise<{fetched: number; failed: number}> {
  if (config.detail === 'off') return {fetched: 0, failed: 0}
  await findAbsences(db, stream, walk)
  const budgetMs = config.detailBudgetMinutes * 60_000
  const most = Math.ceil((budgetMs / 1000) * config.ratePerSecond) + burstOf(config)
  const candidates = await listDetailCandidates(db, stream, {
    now: BigInt(world.clock.now()) * 1000n,
    limit: most,
    mode: config.detail,
  })
  if (candidates.length === 0) return {fetched: 0, failed: 0}
  const byId = new Map(candidates.map((candidate) => [candidate.id, candidate]))
  const normalise = createNormaliser(stream)
  const request = {
    path: DETAIL_PATH,
    mode: config.detail,
    concurrency: config.detailConcurrency,
    budgetMs,
  }
  let group: StagedDetail[] = []
  let [done, fetched] = [0, 0]
  const report = () =>
    world.onProgress({step: 'details', unit: 'details', done, total: byId.size, source: client})
  const store = async () => {
    await tapes.store(walk.walkId)
    await stageDetails(db, stream, walk, group)
    group = []
    world.onStep('details stored')
  }
  report()
  const answers = fetchDetails(byId.keys(), request, client, world)
  return db.closedWhile(async () => {
    for (let next = await answers.next(); ; next = await answers.next()) {
      if (next.done) {
        await store()
        const {ended, proven, failed} = next.value
        world.log.info(
          {detail: ended, count: fetched, reason: proven ? 'proven' : 'not proven'},
          'details ended',
        )
        return {fetched, failed}
      }
      done += 1
      report()
      const candidate = byId.get(next.value.id)
      const staged = candidate && readDetail(normalise, candidate, next.value)
      if (staged) group.push(staged)
      if (next.value.outcome !== 'failed') {
        const {id, outcome, received} = next.value
        tapes.take(walk.walkId, {frame: 'detail', id, outcome, listed: candidate?.known}, received)
      }
      if (next.value.outcome === 'found') fetched += 1
      if (group.length >= GROUP_DETAILS) await store()
    }
  })
}

/** What a record's own page said is one observation: its fields over those of its list row; undefined where it said nothing. */
export function readDetail(
  normalise: Normaliser,
  candidate: DetailCandidate,
  answer: DetailSaid,
): StagedDetail | undefined {
  if (answer.outcome === 'failed') return undefined
  if (answer.outcome === 'gone') return {candidate, gone: answer}
  const merged = {...candidate.known, ...answer.record}
  const {observations, quarantined} = normalise([merged], answer.observedAt)
  const [observation] = observations
  const [rejected] = quarantined
  if (observation) return {candidate, observation}
  return rejected && {candidate, rejected}
}

/** A fetched record is one observation: the fields of its own page over those last known. */
export function createLookReader(
  deals: Stream,
  known: ReadonlyMap<string, WireRecord>,
): (look: {id: string; record: WireRecord; observedAt: bigint}) => Observation[] {
  const normalise = createNormaliser(deals)
  return ({id, record, observedAt}) => normalise([{...known.get(id), ...record}], observedAt).observations
}
