import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import type {DataFolder} from '../store/data-folder.ts'
import {
  listHistoryLosses,
  listRecorded,
  listTapes,
  type RecordedUnit,
  type TapeRow,
} from '../store/recorded.ts'
import type {StateDb} from '../store/state-db.ts'
import {type NumberedLine, readLines} from '../store/tape.ts'
import type {Frame, TapeKey, TapeLine} from '../store/tape-format.ts'

/** A tape that can be read: its file exists and was sealed with the present key. */
export interface ReadableTape extends TapeRow {
  /** Its absolute path. */
  file: string
  /** Reads all lines, or only those whose text is wanted; throws UnexpectedError `TAPE_DAMAGED`. */
  lines(isWanted?: (text: string) => boolean): Generator<NumberedLine>
}

/** The readable tapes, oldest first; none without a key. */
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
  const losses = listHistoryLosses(stateDb)
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

/** Whether a tape holds an act, which is not history. */
export const isOfActs = (unit: string) => unit.startsWith('act_')

/**
 * The lines of a unit, its outcome last.
 *
 * @throws UnexpectedError `TAPE_DAMAGED`
 */
export function* readUnit({tape, no, chain, after}: HistoryUnit): Generator<TapeLine> {
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
