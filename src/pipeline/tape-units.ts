import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import type {TapeRow} from '../ledger/tapes.ts'
import type {TapeKey} from '../tape/key.ts'
import type {Frame, TapeLine} from '../tape/line.ts'
import {readLines} from '../tape/read-tape.ts'
import type {DataFolder} from '../warehouse/data-folder.ts'

/** What stands on a tape from a `begin` to its outcome: a walk, or what was read beside the walks. */
export interface TapeUnit {
  /** Id of the walk; of other units their day. */
  name: string
  path: string
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
 * Where a tape is not kept, or sealed with another key, those before it are left out with it.
 *
 * @param rows every tape, oldest first
 */
export function listUnits(folder: DataFolder, rows: readonly TapeRow[], key: TapeKey): TapeUnit[] {
  const gap = rows.findLastIndex((row) => !isAtHand(folder, row, key))
  const whole = rows.slice(gap + 1).filter(({ended_at}) => ended_at !== null)
  const units = whole.flatMap(({unit, path}) => readUnits({name: unit, path: join(folder.root, path)}, key))
  const keyed = units.map((unit) => ({unit, place: placeOf(unit.outcome)}))
  return keyed.sort((a, b) => Number(a.place > b.place) - Number(a.place < b.place)).map(({unit}) => unit)
}

/** Whether a tape can be read: its file is kept and whole, and sealed with this key. */
export function isAtHand(
  {root}: DataFolder,
  {path, removed_at, outcome, fingerprint}: TapeRow,
  key: TapeKey,
): boolean {
  const isKept = removed_at === null && outcome !== 'lost' && existsSync(join(root, path))
  return isKept && fingerprint === key.fingerprint
}

/** As text that sorts: what was settled at an instant, then what ended after that. */
function placeOf(outcome: Frame): string {
  const {recorded_at, after} = when.parse(outcome)
  return recorded_at === undefined ? `${after ?? ''} 2` : `${recorded_at} 1`
}

const readBefore = ({before}: Frame): string | undefined => (typeof before === 'string' ? before : undefined)

/** The units of one tape that have ended, in their order. */
export function readUnits(tape: Pick<TapeUnit, 'name' | 'path'>, key: TapeKey): TapeUnit[] {
  const units: TapeUnit[] = []
  let begun: Pick<TapeUnit, 'begin' | 'first' | 'before'> | undefined
  let number = 0
  for (const {frame, chain} of readLines(tape.path, key)) {
    const before = units.at(-1)
    if (frame.frame === 'begin' && frame.kind !== 'walk') begun = undefined
    if (frame.frame === 'begin')
      begun ??= {begin: frame, first: number, before: readBefore(frame) ?? units.at(-1)?.head ?? null}
    if (frame.frame === 'outcome' && begun) {
      // What was to be settled when its run died was settled again: its last outcome counts.
      if (before?.first === begun.first) units.pop()
      units.push({...tape, ...begun, last: number, outcome: frame, head: chain})
    }
    number += 1
  }
  return units
}

/** The lines of a unit. */
export function* readUnit({path, first, last}: TapeUnit, key: TapeKey): Generator<TapeLine> {
  let number = 0
  for (const line of readLines(path, key)) {
    if (number >= first) yield line
    if (number === last) return
    number += 1
  }
}
