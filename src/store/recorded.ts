import {randomBytes} from 'node:crypto'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import type {DataFolder} from './data-folder.ts'
import {type WentOn, wentOnSchema} from './release.ts'
import type {StateDb} from './state-db.ts'

/** A finished unit of the record. `no` counts from 1 without gaps; `chain` is that of its outcome. */
export type RecordedUnit = z.output<typeof unitRow>
const unitRow = z.object({
  no: z.number(),
  tape: z.string(),
  /** `walk`, `look`, `rates`, `replay` or `act`. */
  kind: z.string(),
  chain: z.string(),
})

/** Whether a tape holds an act; acts are not history. */
export const isOfActs = (tape: string) => tape.startsWith('act_')

/** Returns number and chain of the last unit that this state database knows; 0 and null before the first. */
export function findHead(stateDb: StateDb): {no: number; chain: string | null} {
  const last = stateDb.first(unitRow, 'select * from tape_unit order by no desc limit 1')
  return {no: last?.no ?? 0, chain: last?.chain ?? null}
}

/** Adds a unit to the record. If it is history, the warehouse must contain it too. Call it in a transaction. */
export function noteUnit(stateDb: StateDb, unit: RecordedUnit, isHistory: boolean): void {
  stateDb.insert('tape_unit', unit)
  if (isHistory) writeFact(stateDb, 'history_head', unit.chain)
}

/** Lists the units of the record, oldest first. */
export function listRecorded(stateDb: StateDb): RecordedUnit[] {
  return stateDb.all(unitRow, 'select * from tape_unit order by no')
}

/** Finds the unit whose outcome has this chain. */
export function findRecorded(stateDb: StateDb, chain: string): RecordedUnit | undefined {
  return stateDb.first(unitRow, 'select * from tape_unit where chain = ?', [chain])
}

type FactName = 'folder_id' | 'history_head' | 'stores_seen' | 'source_described' | 'described_since'

/** Reads a fact about the record; undefined if it is not stored. */
export function readFact(stateDb: StateDb, name: FactName): string | undefined {
  return stateDb.column(z.string(), 'select value from record_fact where name = ?', [name])[0]
}

/** Stores or replaces a fact. */
export function writeFact(stateDb: StateDb, name: FactName, value: string): void {
  if (readFact(stateDb, name) !== value) stateDb.insert('record_fact', {name, value}, 'or replace')
}

/** Returns the id of the data folder, 16 hex digits, made at first use. */
export function requireFolderId(stateDb: StateDb): string {
  const id = randomBytes(8).toString('hex')
  stateDb.insert('record_fact', {name: 'folder_id', value: id}, 'or ignore')
  return readFact(stateDb, 'folder_id') ?? id
}

/** Lists what was given up: chains of units, and batches. */
export function listLosses(stateDb: StateDb): Set<string> {
  return new Set(stateDb.column(z.string(), 'select what from record_loss'))
}

/** Reads the manifest's entry about what the data folder went on without; empty if nothing was lost. */
export function readWentOn(stateDb: StateDb): {went_on?: WentOn[]} {
  const wentOn = stateDb.all(wentOnSchema, 'select * from went_on order by rowid')
  return wentOn.length > 0 ? {went_on: wentOn} : {}
}

/** A tape in the state database; instants are ISO 8601 of the real clock. */
export type TapeRow = z.output<typeof tapeRow>
const tapeRow = z.object({
  /** The walk, act or day that it belongs to: `2026-11-22`. */
  name: z.string(),
  /** Relative to the data folder. */
  path: z.string(),
  fingerprint: z.string(),
  begun_at: z.string(),
  /** Null while it is being written. */
  ended_at: z.string().nullable(),
  /** `lost` if it is unreadable or was given up. */
  outcome: z.string().nullable(),
  /** Null until its first lines are stored. */
  bytes: z.number().nullable(),
  sha256: z.string().nullable(),
  removed_at: z.string().nullable(),
})

/** Whether `prune` removed a tape. */
export const isPruned = ({removed_at, outcome}: Pick<TapeRow, 'removed_at' | 'outcome'>): boolean =>
  removed_at !== null && outcome !== 'lost'

/** Records a tape that is begun or continued, with whatever else is known about it. */
export function noteTape(
  stateDb: StateDb,
  tape: Pick<TapeRow, 'name' | 'path' | 'fingerprint' | 'begun_at'> & Partial<TapeRow>,
): void {
  const {name, path, fingerprint, begun_at, ...more} = tape
  stateDb.insert('tape', {name, path, fingerprint, begun_at}, 'or ignore')
  changeTape(stateDb, name, {ended_at: null, ...more})
}

/** Updates the row of a tape. */
export function changeTape(stateDb: StateDb, name: string, changes: Partial<TapeRow>): void {
  stateDb.update('tape', {name}, changes)
}

/** Lists all tapes, oldest first, removed ones included. */
export function listTapes(stateDb: StateDb): TapeRow[] {
  return stateDb.all(tapeRow, 'select * from tape order by tape_no')
}

/** Finds the tape of a walk or a day. */
export function findTape(stateDb: StateDb, name: string): TapeRow | undefined {
  return stateDb.first(tapeRow, 'select * from tape where name = ?', [name])
}

/** Returns the fingerprint of the present tape key; undefined if there is none yet. */
export function findTapeKey(stateDb: StateDb): string | undefined {
  const sql = 'select fingerprint from tape_key order by since desc, rowid desc limit 1'
  return stateDb.column(z.string(), sql).at(0)
}

/** A store that contradicts another one or belongs to another data folder. */
export interface Disagreement {
  /** Relative to the data folder: `state.sqlite`, `tape`, `warehouse.duckdb`, `current`, `exports`. */
  store: string
  problem: string
  /** What is given up by going on: chains of units, and batches. */
  losses: string[]
}

/** Refuses a data folder whose stores disagree. @throws ConfigError `STORES_DISAGREE` */
export function refuse({root}: DataFolder, [first, ...others]: readonly Disagreement[]): void {
  if (!first) return
  const more = others.length > 0 ? ` (${quantity(others.length, 'more problem')}: \`loantape verify\`.)` : ''
  throw newError('STORES_DISAGREE', `Data folder '${root}', ${first.store}: ${first.problem}${more}`, {
    details: [first, ...others].map(({store, problem}) => ({store, problem})),
  })
}

/** Shortens a chain for messages. */
export const short = (chain: string | null) => (chain === null ? 'none' : chain.slice(0, 12))
