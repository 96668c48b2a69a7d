import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import type {DataFolder} from '../store/data-folder.ts'
import {listTapes, type TapeRow} from '../store/recorded.ts'
import type {StateDb} from '../store/state-db.ts'
import {type NumberedLine, readLines} from '../store/tape.ts'
import type {Frame, TapeKey, TapeLine} from '../store/tape-format.ts'
import {parseOutcome} from './tapes.ts'

/** A tape that can be read: its file is there and was sealed with the present key. */
export interface ReadableTape extends TapeRow {
  /** Its absolute path. */
  file: string
  /** Reads all lines, or those whose text is wanted; throws UnexpectedError `TAPE_DAMAGED`. */
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

/** A stretch of a tape from a `begin` line to its outcome: a walk, or a look, replay or rate feed. */
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

/** Every unit that has ended, in the order of the record, after the last tape that cannot be read. */
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

/** Whether a tape can hold history. */
export const isOfHistory = ({unit}: TapeRow) => !unit.startsWith('act_')

/** The ended units of one tape, in order. */
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
export function readUnit({tape, first, last}: TapeUnit): Iterable<TapeLine> {
  return tape
    .lines()
    .drop(first)
    .take(last + 1 - first)
}

const takenBackBegin = z.object({kind: z.literal('without'), walk: z.string(), why: z.string()})

/** Why each walk that was taken back no longer counts, by its id. */
export function readTakenBack(units: readonly TapeUnit[]): Map<string, string> {
  const begins = units.flatMap(({begin}) => takenBackBegin.safeParse(begin).data ?? [])
  return new Map(begins.map(({walk, why}) => [walk, why]))
}
