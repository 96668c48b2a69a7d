import type {Clock, RealClock} from './clock.ts'
import type {Log} from './log.ts'
import {groupThousands, quantity} from './money.ts'

/**
 * The named points of a run, in their order; `pages stored`, `details stored` and `lists stored` come many times, and what follows
 * the last comes once more for each stream.
 */
export const RUN_STEPS = [
  'warehouse opened',
  'walk begun',
  'pages stored',
  'walk certified',
  'details stored',
  'changes planned',
  'changes applied',
  'lists stored',
  'history copied',
  'models compiled',
  'models built',
  'checks passed',
  'tables written',
  'release published',
  'current moved',
] as const

/** The named points of a journal's export, in their order. */
export const JOURNAL_STEPS = [
  'journal planned',
  'act written',
  'journal issued',
  'journal written',
  'journal in place',
  'journal handed over',
] as const

/** A point of {@link RUN_STEPS} or {@link JOURNAL_STEPS}. */
export type RunStep = (typeof RUN_STEPS)[number] | (typeof JOURNAL_STEPS)[number]

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

/** Everything outside the program, handed down from `main.ts`. */
export interface World {
  /** The business clock: stamps observations, records and business dates; `LOANTAPE_NOW` freezes it. */
  clock: Clock
  /** The real clock: HTTP, waiting, locks, heartbeats. */
  realClock: RealClock
  /** Uniform in [0, 1), for jitter and ids. */
  random: () => number
  log: Log
  /** Aborts when the process is asked to stop. */
  signal: AbortSignal
  /** Is told how a run gets on. */
  onProgress: (progress: Progress) => void
  /** What was compiled in this process, as text, by the fingerprint of its sources. */
  plans: Map<string, string>
  /** Limits every build to these models, as `--select` names them. Only tests do, which need few of them. */
  select?: string
  /** Is told each point of a run that what follows can be begun again from. */
  onStep: (step: RunStep) => void
}

/** What a release is made for: which part of the history counts. */
export interface Moment {
  /** `YYYY-MM-DD`; rows of business days up to it count. */
  asOf: string
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC; of these, what was stored by then. */
  knownAt: string
}

/** One JSON object as a source sent it. */
export type WireRecord = Record<string, unknown>

/** One response of a list endpoint. */
export interface Page {
  /** The cursor this page was asked with; null for the first page. */
  cursor: string | null
  /** Records in the order of the response; not yet known to be objects. */
  records: unknown[]
  /** The cursor of the next page; null exactly when the walk is complete. */
  nextCursor: string | null
  /** Where `has_more` and `next_cursor` stood: `top level` or the path of the object. */
  envelope: string
  /** Length of the answer's text. */
  length: number
  /** The whole answer, parsed. */
  body: unknown
  received: Received
}

/** An answer as it came, and what was asked: a line of a tape. */
export interface Received {
  path: string
  /** The key and the query of the base URL are not among them. */
  query: Record<string, string | number>
  status: number
  /** Those that say something about the answer, not about the connection. */
  headers: Record<string, string>
  /** Business instant at which the request began, microseconds since the epoch. */
  requestedAt: bigint
  /** Real instant at which the whole answer was there, ms since the epoch. */
  receivedAt: number
  /** After its content coding was taken off. */
  body: Buffer
}

/** A typed column value: text, a count or cents or microseconds, a truth, or nothing. */
export type ColumnValue = string | number | bigint | boolean | null

/** One record as one request showed it, normalised. */
export interface Observation {
  id: string
  /** Values in the order of the stream's columns; null when absent or null. */
  values: ColumnValue[]
  /** Whether each of the stream's `mayBeAbsent` columns was in the record, in their order. */
  present: boolean[]
  /** Paths of the fields the contract does not know, one a line; null when there are none. */
  unknownFields: string | null
  observedAt: bigint
  /** What it said of mapped fields, as JSON text; null where it named none of them. */
  mapped?: string | null | undefined
}

/** One value of a reference rate as a feed showed it. */
export interface RateObservation {
  rate: string
  /** `YYYY-MM-DD` */
  rateDate: string
  /** Microseconds since the epoch, where the feed gives one; orders the values of one day. */
  instant: bigint
  /** The value in units of 10⁻⁸. */
  units: bigint
}

/** A record that failed normalisation. */
export interface Quarantined {
  /** Null when not even the id could be read. */
  id: string | null
  /** Where in the record, as a zod path: `loan_amount`. */
  path: string
  /** Why, in words that never repeat the value. */
  reason: string
  /** The whole record as it was parsed; of people as it was made unreadable. */
  record: unknown
  /** Among the records it came with, from 0. */
  position: number
  observedAt: bigint
}

/** What became of the records of one page. */
export interface NormalisedPage {
  observations: Observation[]
  quarantined: Quarantined[]
}

/** The stored proof of what one walk saw. */
export interface Certificate {
  walkId: string
  businessDate: string
  pages: number
  records: number
  distinct: number
  duplicates: number
  quarantined: number
  /** Sum of the stream's amount column over the distinct records, as decimal text. */
  amountTotal: string
  resumed: number
}

/** Nothing changed. */
export const NO_CHANGES = {created: 0, updated: 0, missing: 0, vanished: 0, restored: 0, unchanged: 0}

/** How many records a walk changed, and how. */
export type ChangeCounts = typeof NO_CHANGES

/** One model file: a SELECT that becomes a table. */
export interface Model {
  /** `core.deal` */
  name: string
  schema: string
  file: string
  /** The whole file, without a closing semicolon. */
  sql: string
  description: string
  /** Columns whose values together are unique. */
  grain: string[]
  /** Columns by which the table is ordered: the grain, where the header says nothing else. */
  order: string[]
  columns: {name: string; meaning: string; line: number}[]
  /** The checks of its header; `rule` is `unique`, `not_null`, `accepted`, `references` or `between`, `line` from 1. */
  checks: {rule: string; args: string[]; line: number}[]
  /** `-- depends_on:` names, for what the parser cannot see. */
  declaredDependencies: {name: string; line: number}[]
  isPublished: boolean
  /** `-- per: deal_id`: each row depends on rows of its own deal alone. */
  isPerDeal: boolean
  /** `-- adds_up:` columns whose values over the deals of each part of a portfolio add up to the whole's. */
  addsUp: string[]
}

/** A SELECT over a release that returns the rows that are wrong, their id first. */
export interface Check {
  name: string
  /** `error`: nothing is released; `warn`: recorded. */
  severity: 'error' | 'warn'
  description: string
  /** What to do about the rows it finds. */
  next?: string | undefined
  file: string
  /** Line of a comment tag; null when the file is the check. */
  line: number | null
  sql: string
  /**
   * What is run where only the rows of changed deals are new and the check held before: the tables it names hold those
   * rows, under `release.` every row. Undefined where that would not find all that is wrong.
   */
  changedSql?: string | undefined
}

/** One CSV of reference data that becomes the table `seed.<name>`. */
export interface Seed {
  name: string
  file: string
  text: string
  /** Column types by name, from the headers `funded_on:date`; a column without one is VARCHAR. */
  types: Record<string, string>
  /** The names of its columns, the key first. */
  columns: string[]
  /** Columns that a seed in its place may leave out, from the headers `ending:canonical?`: they are null then. */
  optional?: string[]
  /** The rows, each with the line it begins at, its text, and the file it is from with the columns there; null where nothing stands. */
  rows: {
    values: (string | null)[]
    line: number
    text: string
    origin?: {file: string; columns: readonly string[]}
  }[]
  /** Computed from something that was validated, not read from a file of seeds. */
  isComputed?: boolean
}

/** What a release is built from: models in the order of their dependencies, and seeds. */
export interface BuildPlan {
  models: readonly Model[]
  seeds: readonly Seed[]
  /** What each model reads: models, seeds and raw tables. */
  reads: ReadonlyMap<string, readonly string[]>
  /** What each check reads. */
  checkReads: ReadonlyMap<string, readonly string[]>
  /** Columns and types of each model's table, in order. */
  columns: ReadonlyMap<string, readonly {name: string; type: string}[]>
}

/** A term of a month's roll-forward as the books have it: `amount` = `booked` + `unbooked`. Amounts are decimal text, USD. */
export interface TiedTerm {
  term: string
  amount: string
  booked: string
  unbooked: string
  /** Why something is not booked: an opening balance that nobody asked for, or an ending that another system books. */
  because: 'opening balance' | 'booked elsewhere' | null
  /** What is neither: always 0. */
  difference: string
}
