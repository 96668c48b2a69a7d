import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import type {StateDb} from '../state/state-db.ts'
import {listTapes, type TapeRow} from '../state/tape-rows.ts'
import type {TapeKey} from '../tape/key.ts'
import type {Frame, TapeLine} from '../tape/line.ts'
import {readLines} from '../tape/read-tape.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

/** A tape that can be read: its file is kept and whole, and sealed with the key at hand. */
export interface ReadableTape extends TapeRow {
  /** Its absolute path. */
  file: string
  /** Reads it from its first line; throws UnexpectedError `TAPE_DAMAGED`. */
  lines(): Generator<TapeLine>
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
      ? {...row, file, lines: () => readLines(file, key)}
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
  /** Chain of the outcome, and of that of the unit which ended before this one began; null for the first. */
  head: string
  before: string | null
}

const when = z.object({recorded_at: z.string().optional(), after: z.string().nullish()})

/**
 * Every unit that has ended, in the order in which they were settled; one that was not follows what was settled before it.
 * Where a tape cannot be read, those before it are left out with it.
 */
export function listUnits(stateDb: StateDb, readable: readonly ReadableTape[]): TapeUnit[] {
  const byName = new Map(readable.map((tape) => [tape.unit, tape]))
  const all = listTapes(stateDb).map(({unit}) => byName.get(unit))
  const whole = all.slice(all.lastIndexOf(undefined) + 1).filter((tape) => tape !== undefined)
  const units = whole.filter(({ended_at}) => ended_at !== null).flatMap(readUnits)
  const keyed = units.map((unit) => ({unit, place: placeOf(unit.outcome)}))
  return keyed.sort((a, b) => Number(a.place > b.place) - Number(a.place < b.place)).map(({unit}) => unit)
}

/** As text that sorts: what was settled at an instant, then what ended after that. */
function placeOf(outcome: Frame): string {
  const {recorded_at, after} = when.parse(outcome)
  return recorded_at === undefined ? `${after ?? ''} 2` : `${recorded_at} 1`
}

/** The units of one tape that have ended, in their order. */
export function readUnits(tape: ReadableTape): TapeUnit[] {
  const units: TapeUnit[] = []
  let begun: Pick<TapeUnit, 'begin' | 'first' | 'before'> | undefined
  let number = 0
  for (const {frame, chain} of tape.lines()) {
    const previous = units.at(-1)
    if (frame.frame === 'begin' && frame.kind !== 'walk') begun = undefined
    if (frame.frame === 'begin') {
      const before = typeof frame.before === 'string' ? frame.before : (previous?.head ?? null)
      begun ??= {begin: frame, first: number, before}
    }
    if (frame.frame === 'outcome' && begun) {
      // What was to be settled when its run died was settled again: its last outcome counts.
      if (previous?.first === begun.first) units.pop()
      units.push({tape, ...begun, last: number, outcome: frame, head: chain})
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
