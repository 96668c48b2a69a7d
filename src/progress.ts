import {groupThousands, quantity} from './money.ts'

/** How far the step under way has got. */
export interface Progress {
  /** What is done now: `walking`, `details`, `borrowers`, `applying`, `models`, `checks`. */
  step: string
  /** What the step counts; a step without counts nothing. */
  unit?: string
  done?: number
  /** Null where nobody knows. */
  total?: number | null
  /** Pages that a walk has read. */
  pages?: number
  /** The source that is asked: since when it makes us wait, real clock, or null; and for how long it has so far, ms. */
  source?: {readonly waitedMs: number; readonly waitingSince: number | null}
}

/** What of a step is done, `1,240 of 3,000 deals`; a unit that the step is named after is not said again. */
export function countOf({step, unit, done = 0, total}: Progress): string {
  if (unit === undefined) return ''
  const counted = groupThousands(done)
  if (typeof total !== 'number' || done > total) return quantity(done, unit.replace(/s$/, ''))
  return `${counted} of ${groupThousands(total)}${unit === step ? '' : ` ${unit}`}`
}
