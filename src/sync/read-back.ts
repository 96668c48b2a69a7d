import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import type {World} from '../core/types.ts'
import type {DataFolder} from '../store/data-folder.ts'
import type {Database} from '../store/database.ts'
import {listTapes, type TapeRow} from '../store/recorded.ts'
import type {StateDb} from '../store/state-db.ts'
import {type NumberedLine, readLines} from '../store/tape.ts'
import type {Frame, TapeKey, TapeLine} from '../store/tape-format.ts'
import {writeChanged, writeSetting} from '../store/warehouse.ts'
import {createReader, instant, type Known, type ReadBack, readKnown} from './intake.ts'
import {settleUnit} from './settle.ts'
import {createStage} from './stream-tables.ts'
import {isHistory, parseOutcome, type Tapes} from './tapes.ts'
import {certifyWalk, storeWalk} from './walk-state.ts'

/** A tape that can be read: its file is kept and whole, and sealed with the key at hand. */
export interface ReadableTape extends TapeRow {
  /** Its absolute path. */
  file: string
  /** Reads it from its first line, or the lines whose text is wanted; throws UnexpectedError `TAPE_DAMAGED`. */
  lines(isWanted?: (text: string) => boolean): Generator<NumberedLine>
}

/** The tapes that can be read, oldest first; none of them without a key. */
export function listReadableTapes(
  {root}: DataFolder,
  stateDb: StateDb,
  key: TapeKey | undefined,
): ReadableTape[] {
  return listTapes(stateDb).flatMap((row) => {
    const file = join(root, row.path)
    const isKept = row.removed_at === null && row.outcome !== 'lost' && existsSync(file)
    return key && isKept && row.fingerprint === key.fingerprint
      ? {...row, file, lines: (isWanted) => readLines(file, key, isWanted)}
      : []
  })
}

/** The body of a line as text. */
export const textOf = ({body}: TapeLine) => new TextDecoder().decode(body)

/** What stands on a tape from a `begin` to its outcome: a walk, or what was read beside the walks. */
export interface TapeUnit {
  tape: ReadableTape
  /** Its lines, counted from 0; the outcome is the last. */
  first: number
  last: number
  begin: Frame
  outcome: Frame
  /** Its number in the record, the chain of its outcome, and that of the unit before; null for the first. */
  no: number
  head: string
  before: string | null
}

/** Every unit that has ended, in the order of the record. Where a tape cannot be read, those before it are left out with it. */
export function listUnits(stateDb: StateDb, readable: readonly ReadableTape[]): TapeUnit[] {
  const byName = new Map(readable.map((tape) => [tape.unit, tape]))
  const all = listTapes(stateDb).filter(isOfHistory)
  const whole = all
    .map(({unit}) => byName.get(unit))
    .slice(all.findLastIndex(({unit}) => !byName.has(unit)) + 1)
    .filter((tape) => tape !== undefined)
  const units = whole.filter(({ended_at}) => ended_at !== null).flatMap(readUnits)
  return units.sort((a, b) => a.no - b.no)
}

/** Whether a tape may hold something of history. */
export const isOfHistory = ({unit}: TapeRow) => !unit.startsWith('act_')

/** The units of one tape that have ended, in their order. */
export function readUnits(tape: ReadableTape): TapeUnit[] {
  const units: TapeUnit[] = []
  let begun: Pick<TapeUnit, 'begin' | 'first'> | undefined
  let number = 0
  for (const line of tape.lines()) {
    const {frame, chain} = line
    if (frame.frame === 'begin' && frame.kind !== 'walk') begun = undefined
    if (frame.frame === 'begin') begun ??= {begin: frame, first: number}
    if (frame.frame === 'outcome' && begun) {
      const {no, previous: before} = parseOutcome(line)
      units.push({tape, ...begun, last: number, outcome: frame, no, head: chain, before})
    }
    number += 1
  }
  return units
}

/** The lines of a unit. */
function readUnit({tape, first, last}: TapeUnit): Iterable<TapeLine> {
  return tape
    .lines()
    .drop(first)
    .take(last + 1 - first)
}

const takenBackBegin = z.object({kind: z.literal('without'), walk: z.string(), why: z.string()})

/** Why walks that were taken back count no more, by their ids. */
export function readTakenBack(units: readonly TapeUnit[]): Map<string, string> {
  const begins = units.flatMap(({begin}) => takenBackBegin.safeParse(begin).data ?? [])
  return new Map(begins.map(({walk, why}) => [walk, why]))
}

/**
 * Makes the stage and puts on it what runs that died had read: a walk that has not ended stands where its tape ends. Those that
 * nobody can continue are ended on their tapes.
 */
export async function resumeWalks(
  {db, tapes}: {db: Database; tapes: Tapes},
  {log}: Pick<World, 'log'>,
): Promise<Known> {
  await createStage(db)
  const known = await readKnown(db)
  for (const unit of await tapes.listLeft()) {
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
    const tapeHead = await tapes.conclude(unit, {outcome: 'abandoned', why})
    if (walk) await storeWalk(db, walk.stream, walk.walk, {state: 'abandoned', how: why, tapeHead})
    else if (isHistory(kind, 'abandoned')) await writeSetting(db, 'tape_head', tapeHead)
    await tapes.finish(unit)
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
 * Does again what a run did with a unit, at the instant at which that run did it: what it read is on the tape, and what it was
 * judged by does not matter any more. The stage is there.
 *
 * @param without why a walk counts no more, by its id
 * @throws UnexpectedError `DATA_NEWER` where this version cannot read what stands there
 */
export async function settleAgain(
  db: Database,
  unit: TapeUnit,
  without: ReadonlyMap<string, string>,
): Promise<void> {
  const {outcome, why, recorded_at: now, is_certified, details} = outcomeFrame.parse(unit.outcome)
  const kind = String(unit.begin.kind)
  if (!isHistory(kind, outcome)) return
  const takenBack = without.get(unit.tape.unit)
  const isSettled = outcome === 'settled' && now !== undefined && takenBack === undefined
  const {intake, problem} = isSettled || kind === 'walk' ? await readBack(db, unit) : {problem: null}
  if (outcome === 'settled' && problem !== null)
    throw newError(
      'DATA_NEWER',
      `Tape '${unit.tape.file}' of '${unit.tape.unit}' cannot be read by this version: ${problem}.`,
    )
  const conclude = async () => unit.head
  if (intake?.kind === 'walk' && is_certified) await certifyWalk(db, intake.stream, intake.walk)
  if (intake && isSettled) {
    await settleUnit(db, intake, {now, details, conclude})
  } else if (intake?.kind === 'walk') {
    const state = outcome === 'refused' ? outcome : 'abandoned'
    const how = takenBack === undefined ? String(why) : `taken back: ${takenBack}`
    await storeWalk(db, intake.stream, intake.walk, {state, how, tapeHead: unit.head})
  }
  // A unit that stored nothing is contained, too.
  await writeChanged(db, {tape_head: unit.head})
}

async function readBack(db: Database, unit: TapeUnit): Promise<ReadBack> {
  const reader = createReader(db, await readKnown(db))
  let hashKey: string | undefined
  for (const line of readUnit(unit)) {
    if (line.frame.frame === 'begin') ({hashKey} = hashKeyFrame.parse(line.frame))
    await reader.take(line)
  }
  const read = await reader.finish()
  if (read.intake) await writeChanged(db, {hash_key: hashKey})
  return read
}
