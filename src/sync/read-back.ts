import {z} from 'zod'
import {messageOf, newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {Database} from '../store/database.ts'
import {isOfActs, listRecorded, type RecordedUnit} from '../store/recorded.ts'
import type {StateDb} from '../store/state-db.ts'
import type {Frame, TapeLine} from '../store/tape.ts'
import {writeSettings} from '../store/warehouse.ts'
import {storeWalk} from './apply.ts'
import {type Intake, instant, type Known, openIntake, parseBody, readKnown} from './intake.ts'
import {certifyWalk, settleUnit} from './settle.ts'
import {clearStage, createStage} from './stream-tables.ts'
import {isHistory, type ReadableTape, type Tapes} from './tapes.ts'

/** A unit of history whose tape can be read: a walk, a look, a replay, a feed of rates, or a walk taken back. */
export interface HistoryUnit extends Omit<RecordedUnit, 'tape'> {
  tape: ReadableTape
  /** The chain of the unit before it on its tape. */
  after: string | undefined
}

/**
 * The units of history after number `from` of the record, in order, without those given up; `lacking` are those whose tapes
 * cannot be read.
 */
export function listUnits(
  stateDb: StateDb,
  readable: readonly ReadableTape[],
  from = 0,
): {units: HistoryUnit[]; lacking: RecordedUnit[]} {
  const tapes = new Map(readable.map((tape) => [tape.unit, tape]))
  const units: HistoryUnit[] = []
  const lacking: RecordedUnit[] = []
  const chains = new Map<string, string>()
  const sql = 'select what from record_loss where is_in_history = 0'
  const losses = new Set(stateDb.column(z.string(), sql))
  for (const unit of listRecorded(stateDb)) {
    const after = chains.get(unit.tape)
    chains.set(unit.tape, unit.chain)
    if (unit.no <= from || isOfActs(unit.tape)) continue
    const tape = tapes.get(unit.tape)
    if (tape) units.push({...unit, tape, after})
    else if (!losses.has(unit.chain)) lacking.push(unit)
  }
  return {units, lacking}
}

/**
 * The lines of a unit, its outcome last.
 *
 * @throws UnexpectedError `TAPE_DAMAGED`
 */
function* readUnit({tape, no, chain, after}: HistoryUnit): Generator<TapeLine> {
  let isOwn = after === undefined
  for (const line of tape.lines()) {
    if (isOwn) yield line
    if (line.chain === chain) return
    isOwn ||= line.chain === after
  }
  throw newError('TAPE_DAMAGED', `Tape '${tape.file}': it lacks unit ${no} of the record.`)
}

/** The last begin of a unit, and its outcome. */
export function readFrames(unit: HistoryUnit): {begin: Frame; outcome: Frame} {
  let begin: Frame = {frame: 'begin'}
  let outcome = begin
  for (const {frame} of readUnit(unit)) {
    if (frame.frame === 'begin') begin = frame
    outcome = frame
  }
  return {begin, outcome}
}

const takenBackBegin = z.object({walk: z.string(), why: z.string()})

/** Why each walk that was taken back no longer counts, by its id. */
export function readTakenBack(units: readonly HistoryUnit[]): Map<string, string> {
  const begins = units
    .filter(({kind}) => kind === 'without')
    .map((unit) => takenBackBegin.parse(readFrames(unit).begin))
  return new Map(begins.map(({walk, why}) => [walk, why]))
}

/** Lines of a tape that are staged together. */
const LINES_AT_ONCE = 200

function createReader(db: Database, known: Known) {
  let intake: Intake | undefined
  let kind = ''
  let waiting = 0
  let problem: string | null = null

  async function read(line: TapeLine): Promise<void> {
    const {frame} = line
    if (frame.frame === 'begin' && intake?.kind !== 'walk') {
      kind = String(frame.kind)
      intake = openIntake(db, known, frame)
      return
    }
    intake?.take(frame, parseBody(line))
    waiting += 1
    if (intake?.kind !== 'walk' || waiting < LINES_AT_ONCE) return
    waiting = 0
    await intake.stage()
  }

  async function attempt(work: () => Promise<void> | undefined): Promise<void> {
    if (problem !== null) return
    try {
      await work()
    } catch (error) {
      problem = messageOf(error)
    }
  }

  return {
    take: (line: TapeLine) => attempt(() => read(line)),
    /** Its kind; the unit, if it is readable and has answers; the first problem. */
    async finish(): Promise<{intake?: Intake | undefined; kind: string; problem: string | null}> {
      await attempt(() => intake?.stage())
      if (problem === null) return {intake, kind, problem}
      if (intake?.kind === 'walk') await clearStage(db, intake.stream, intake.walk.walkId)
      return {kind, problem}
    },
  }
}

/**
 * Makes the stage and reads back what dead runs had read: an open walk resumes where its tape ends. Walks that cannot be
 * continued are ended on their tapes.
 *
 * @param left the units that {@link Tapes.listLeft} names
 */
export async function resumeWalks(
  {db, tapes}: {db: Database; tapes: Tapes},
  left: readonly string[],
  {log}: Pick<World, 'log'>,
): Promise<Known> {
  await createStage(db)
  const known = await readKnown(db)
  for (const unit of left) {
    const reader = createReader(db, known)
    if (!(await tapes.reopen(unit, reader.take))) continue
    const {intake, kind, problem} = await reader.finish()
    const walk = intake?.kind === 'walk' ? intake : undefined
    if (walk && walk.walk.answers > 0) {
      known.walks.set(walk.stream.name, walk)
      continue
    }
    if (problem !== null) log.warn({unit, reason: problem}, 'what a run had read cannot be continued')
    const why = problem ?? 'its run died'
    const tapeHead = tapes.conclude(unit, {outcome: 'abandoned', why})
    if (walk) await storeWalk(db, walk.stream, walk.walk, {state: 'abandoned', how: why, tapeHead})
    else if (isHistory(kind, 'abandoned')) await writeSettings(db, {tape_head: tapeHead})
    tapes.finish(unit)
  }
  return known
}

const outcomeFrame = z.object({
  outcome: z.string(),
  why: z.string().optional(),
  recorded_at: instant.optional(),
  is_certified: z.boolean().optional(),
  details: z.object({fetched: z.number(), failed: z.number()}).optional(),
})
const hashKeyFrame = z.object({hashKey: z.string().optional()})

/**
 * Settles a unit again from its tape, at the same instant as its run; the guards are not asked again. Requires the stage.
 *
 * @param without why each walk that was taken back no longer counts, by its id
 * @returns its outcome
 * @throws UnexpectedError `DATA_NEWER` if this version cannot read the tape; `TAPE_DAMAGED`
 */
export async function settleAgain(
  db: Database,
  unit: HistoryUnit,
  without: ReadonlyMap<string, string>,
): Promise<Frame> {
  const reader = createReader(db, await readKnown(db))
  let hashKey: string | undefined
  let end: Frame = {frame: 'begin'}
  for (const line of readUnit(unit)) {
    end = line.frame
    if (end.frame === 'begin') ({hashKey} = hashKeyFrame.parse(end))
    await reader.take(line)
  }
  const {intake, problem} = await reader.finish()
  const {outcome, why, recorded_at: now, is_certified, details} = outcomeFrame.parse(end)
  if (!isHistory(unit.kind, outcome)) return end
  if (outcome === 'settled' && problem !== null)
    throw newError(
      'DATA_NEWER',
      `Tape '${unit.tape.file}' of '${unit.tape.unit}' cannot be read by this version: ${problem}.`,
    )
  const takenBack = without.get(unit.tape.unit)
  if (intake?.kind === 'walk' && is_certified) await certifyWalk(db, intake.stream, intake.walk)
  if (intake && outcome === 'settled' && now !== undefined && takenBack === undefined) {
    await settleUnit(db, intake, {now, details, conclude: () => unit.chain})
  } else if (intake?.kind === 'walk') {
    const state = outcome === 'refused' ? outcome : 'abandoned'
    const how = takenBack === undefined ? String(why) : `taken back: ${takenBack}`
    await storeWalk(db, intake.stream, intake.walk, {state, how, tapeHead: unit.chain})
  }
  // A unit that stored nothing counts as contained.
  await writeSettings(db, {tape_head: unit.chain, ...(intake && {hash_key: hashKey})})
  return end
}
