import type {Clock, RealClock} from './clock.ts'
import type {Log} from './log.ts'
import {groupThousands, quantity} from './money.ts'

/**
 * The named points of a run, in order. `pages stored`, `details stored` and `lists stored` repeat, and each child stream repeats
 * `changes planned` to `changes applied`. From `outcome written` on, the walk counts even if its run fails.
 */
export const RUN_STEPS = [
  'warehouse opened',
  'walk begun',
  'pages stored',
  'walk read',
  'details stored',
  'changes planned',
  'outcome written',
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

export const JOURNAL_STEPS = [
  'journal planned',
  'act written',
  'journal issued',
  'journal written',
  'journal in place',
  'journal handed over',
] as const

export type RunStep = (typeof RUN_STEPS)[number] | (typeof JOURNAL_STEPS)[number]

export interface Progress {
  /** Shown to people; `schedule/supervisor.ts` knows `opening`, `walking` and `details`. */
  step: string
  unit?: string
  done?: number
  total?: number | null
  pages?: number
  /** Since when the source has made us wait (real clock, or null), and for how long in all (ms). */
  source?: {readonly waitedMs: number; readonly waitingSince: number | null}
}

/** Formats how much of a step is done: `1,240 of 3,000 deals`. A unit that is also the step's name is left out. */
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
  onProgress: (progress: Progress) => void
  /** Who acts; by default the user of the operating system. */
  who?: string | undefined
  /** Limits every build to these models, as in `--select`; only tests set it. */
  select?: string
  /** Called at each named point of a run. A run that crashes there can be resumed. */
  onStep: (step: RunStep) => void
}

/** The part of the history that a release is built from. */
export interface Moment {
  /** `YYYY-MM-DD`; rows of business dates up to it count. */
  asOf: string
  /** `YYYY-MM-DD HH:MM:SS[.ssssss]`, UTC; only rows stored by then count. */
  knownAt: string
}

/** As the source sent it. */
export type WireRecord = Record<string, unknown>

/** A request and its unchanged answer: a line of a tape. */
export interface Received {
  path: string
  /** Without the API key and the query of the base URL. */
  query: Record<string, string | number>
  status: number
  /** Headers about the answer, not about the connection. */
  headers: Record<string, string>
  /** When the request began, business clock, microseconds since the epoch. */
  requestedAt: bigint
  /** When the whole answer was received, real clock, ms since the epoch. */
  receivedAt: number
  /** Decompressed. */
  body: Buffer
  /** What a described source really answered, without its body if that repeats a secret. `at` is where the records stand in it. */
  original?: Omit<Received, 'body' | 'original'> & {body?: Buffer; at: string[]}
}

/** A bigint is cents or microseconds. */
export type ColumnValue = string | number | bigint | boolean | null

/** One record as one request showed it, parsed. */
export interface Observation {
  id: string
  /** Values by column; undefined if the record left the field out. */
  fields: Readonly<Record<string, ColumnValue | undefined>>
  /** Paths of fields outside the contract, one per line; null if there are none. */
  unknownFields: string | null
  observedAt: bigint
  /** The values of mapped fields as JSON text; null if the record has none of them. */
  mapped?: string | null | undefined
}

export interface RateObservation {
  rate: string
  /** `YYYY-MM-DD` */
  rateDate: string
  /** Microseconds since the epoch; orders the values of one day. */
  instant: bigint
  /** The value in units of 10⁻⁸. */
  units: bigint
}

export interface Quarantined {
  /** Null if not even the id could be read. */
  id: string | null
  /** The path of the bad field in the record: `loan_amount`. */
  path: string
  /** Why, without the value. */
  reason: string
  /** Its index in the response, from 0. */
  position: number
  observedAt: bigint
}

export interface NormalisedPage {
  observations: Observation[]
  quarantined: Quarantined[]
}

export const NO_CHANGES = {created: 0, updated: 0, missing: 0, vanished: 0, restored: 0, unchanged: 0}

export type ChangeCounts = typeof NO_CHANGES

/** One model file: a SELECT that becomes a table. */
export interface Model {
  /** `core.deal` */
  name: string
  schema: string
  file: string
  /** The whole file without a closing semicolon. */
  sql: string
  description: string
  /** Columns that are unique together. */
  grain: string[]
  /** Columns that order the table; with the grain at the end, no two rows share a place. */
  order: string[]
  columns: {name: string; meaning: string; line: number}[]
  /** The checks in its header. `rule` is `unique`, `not_null`, `accepted`, `references` or `between`; `line` counts from 1. */
  checks: {rule: string; args: string[]; line: number}[]
  isPublished: boolean
  /** `-- per: deal_id`: each row depends only on rows of its own deal. */
  isOfDeals: boolean
  /** Whether it is built for changed deals alone where that is possible. */
  isPerDeal: boolean
  /** `-- contract: 2`: 1 by default; higher once published columns were removed, moved or changed their type. */
  contract: number
  /** `-- adds_up:` columns whose values over the parts of a portfolio sum to the total. */
  addsUp: string[]
}

/** A SELECT over a release that returns wrong rows, their id first. */
export interface Check {
  name: string
  /** `error` stops the release; `warn` is only recorded. */
  severity: 'error' | 'warn'
  description: string
  /** What to do about the rows found. */
  next?: string | undefined
  file: string
  /** Of its tag in the header of a model; otherwise 1. */
  line: number
  sql: string
  /** Whether rows of one deal can only make rows of the same deal wrong. */
  isPerDeal: boolean
}

/** One CSV of reference data that becomes the table `seed.<name>`. */
export interface Seed {
  name: string
  file: string
  text: string
  /** Column types by name, from headers such as `funded_on:date` or `scope:open|funded`; the default is VARCHAR. */
  types: Record<string, string>
  /** Column names, the key first. */
  columns: string[]
  /** Columns that may be null and that a replacing seed may leave out; marked with `?` in headers, such as `ending:canonical?`. */
  optional?: string[]
  /** The rows: values by column, with file and first line; an empty field is null. */
  rows: {values: Record<string, string | null>; file: string; line: number}[]
  /** Computed from validated data, not read from a seed file. */
  isComputed?: boolean
  /** A change of it is no reason for a whole build. */
  isApart?: boolean
}

export interface ModelSource {
  models: readonly Model[]
  seeds: readonly Seed[]
  checks: readonly Check[]
}

/** The models of a release in dependency order, and its seeds. */
export interface BuildPlan extends Pick<ModelSource, 'models' | 'seeds'> {
  /** What each model reads: models, seeds and raw tables. */
  reads: ReadonlyMap<string, readonly string[]>
  checkReads: ReadonlyMap<string, readonly string[]>
  /** Columns and types of each model's table, in order. */
  columns: ReadonlyMap<string, readonly {name: string; type: string}[]>
}
