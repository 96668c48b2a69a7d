import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import type {WireRecord} from '../core/types.ts'
import {readAnswer} from '../source/ask-each.ts'
import type {Database} from '../store/database.ts'
import {writeSetting} from '../store/warehouse.ts'
import {applyObservations, applyReplay} from './apply.ts'
import {applyLooks, createLookReader} from './details.ts'
import {readDealStream, readStreams} from './mapped-fields.ts'
import {planChanges} from './plan-changes.ts'
import {createReader, findQuarantined, findQuarantinedRecords} from './quarantine.ts'
import {appendRates, feedParser, isObservation, parseRates} from './rate-feed.ts'
import {createRestager, instant} from './restage.ts'
import {pinSource} from './settle-walk.ts'
import {createStage} from './stream-tables.ts'
import {type ReadableTape, readUnit, type TapeUnit, textOf} from './tape-units.ts'
import {isHistory} from './tapes.ts'
import {certifyWalk, storeWalk} from './walk-state.ts'

/** What units are settled again with. */
export interface ResettleTools {
  db: Database
  /** Why a walk counts no more, by its id. */
  without: ReadonlyMap<string, string>
  tapes: readonly ReadableTape[]
}

/**
 * Does again what a run did with a unit, at the instant at which that run did it: what it read is on the tape, and what it was
 * judged by does not matter any more.
 *
 * @throws UnexpectedError `DATA_NEWER` where this version cannot read what stands there
 */
export async function resettle(tools: ResettleTools, unit: TapeUnit): Promise<void> {
  await createStage(tools.db)
  await resettleKind(tools, unit)
  // A unit that stored nothing is contained, too.
  if (isHistory(String(unit.begin.kind), String(unit.outcome.outcome)))
    await writeSetting(tools.db, 'tape_head', unit.head)
}

async function resettleKind(tools: ResettleTools, unit: TapeUnit): Promise<void> {
  const {kind} = unit.begin
  if (kind === 'walk') return resettleWalk(tools, unit)
  if (unit.outcome.outcome !== 'settled' || tools.without.has(unit.tape.unit)) return
  const settled = {now: recorded.parse(unit.outcome).recorded_at, conclude: async () => unit.head}
  if (kind === 'look') return resettleLooks(tools, unit, settled)
  if (kind === 'rates') return resettleRates(tools, unit, settled)
  if (kind === 'replay') return resettleReplay(tools, unit, settled)
}

/** When a unit was settled, and where its tape stood then. */
interface Settled {
  now: bigint
  conclude: () => Promise<string>
}
const recorded = z.object({recorded_at: instant})

const walkOutcome = z.object({
  outcome: z.string(),
  why: z.string().optional(),
  recorded_at: instant.optional(),
  is_certified: z.boolean().optional(),
  details: z.object({fetched: z.number(), failed: z.number()}).optional(),
})

async function resettleWalk({db, without}: ResettleTools, unit: TapeUnit): Promise<void> {
  const restager = createRestager(db, {streams: await readStreams(db), walks: new Map()})
  let {begin} = unit
  for (const line of readUnit(unit)) {
    if (line.frame.frame === 'begin') begin = line.frame
    await restager.take(line)
  }
  const {staged, problem} = await restager.finish()
  const {outcome, why, recorded_at: now, is_certified, details} = walkOutcome.parse(unit.outcome)
  // Nothing of a walk that nobody could continue is in the warehouse.
  if (!staged && outcome !== 'settled') return
  if (!staged)
    throw newError(
      'DATA_NEWER',
      `Tape '${unit.tape.file}' of '${unit.tape.unit}' cannot be read by this version: ${problem ?? 'it does not say how the walk began'}.`,
    )
  const {stream, walk} = staged
  if (typeof begin.hashKey === 'string') await writeSetting(db, 'hash_key', begin.hashKey)
  if (is_certified) await certifyWalk(db, stream, walk)
  const takenBack = without.get(walk.walkId)
  if (outcome !== 'settled' || now === undefined || takenBack !== undefined) {
    const state = outcome === 'refused' ? outcome : 'abandoned'
    const how = takenBack === undefined ? String(why) : `taken back: ${takenBack}`
    return storeWalk(db, stream, walk, {state, how, tapeHead: unit.head})
  }
  const plan = await planChanges(db, stream, walk)
  await pinSource(db, stream, walk)
  await applyObservations(db, stream, walk, {plan, now, details, conclude: async () => unit.head})
}

const lookBegin = z.object({businessDate: z.string(), isWalkOpen: z.boolean()})
const lookFrame = z.object({
  id: z.string(),
  status: z.number(),
  requested_at: instant,
  known: z.record(z.string(), z.unknown()).optional(),
})

async function resettleLooks({db}: ResettleTools, unit: TapeUnit, settled: Settled): Promise<void> {
  const observations = []
  const deals = await readDealStream(db)
  for (const line of readUnit(unit)) {
    if (line.frame.frame !== 'look') continue
    const {id, status, requested_at: observedAt, known} = lookFrame.parse(line.frame)
    const answer = readAnswer(id, {status, body: parseJson(textOf(line)), observedAt})
    const before = new Map<string, WireRecord>(known ? [[id, known]] : [])
    if (answer.outcome === 'found') observations.push(...createLookReader(deals, before)(answer))
  }
  await applyLooks(db, deals, {...lookBegin.parse(unit.begin), ...settled, observations, limits: null})
}

const ratesBegin = z.object({
  feed: feedParser,
  businessDate: z.string(),
  startedAt: instant,
  timeZone: z.string(),
})

async function resettleRates({db}: ResettleTools, unit: TapeUnit, settled: Settled): Promise<void> {
  const {feed, businessDate, startedAt: observedAt, timeZone} = ratesBegin.parse(unit.begin)
  const observations = []
  for (const line of readUnit(unit)) {
    if (line.frame.frame === 'rates')
      observations.push(...parseRates(feed, textOf(line), timeZone).filter(isObservation))
  }
  await appendRates(db, {feed: feed.name, observations, observedAt, businessDate, ...settled})
}

const replayBegin = z.object({stream: z.string(), entries: z.array(z.string()), isWalkOpen: z.boolean()})

async function resettleReplay(
  {db, tapes}: ResettleTools,
  {begin}: TapeUnit,
  settled: Settled,
): Promise<void> {
  const {stream: name, entries: ids, isWalkOpen} = replayBegin.parse(begin)
  const stream = (await readStreams(db)).find((one) => one.name === name)
  if (!stream) return
  const found = await Promise.all(ids.map((id) => findQuarantined(db, 'warehouse', id)))
  const entries = found.flatMap((entry) => entry ?? [])
  const records = entries.flatMap(createReader(stream, findQuarantinedRecords(entries, tapes)))
  const [first] = entries
  if (!first || records.length === 0) return
  await applyReplay(db, stream, {businessDate: first.business_date, isWalkOpen, records, ...settled})
}
