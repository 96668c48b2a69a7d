import {randomBytes} from 'node:crypto'
import {z} from 'zod'
import {newError} from '../core/errors.ts'
import {quantity} from '../core/money.ts'
import type {DataFolder} from './data-folder.ts'
import {type WentOn, wentOnSchema} from './release.ts'
import type {StateDb} from './state-db.ts'

/** `no` counts from 1 without gaps; `chain` is that of the unit's outcome. */
export type RecordedUnit = z.output<typeof unitRow>
const unitRow = z.object({
  no: z.number(),
  tape: z.string(),
  /** `walk`, `look`, `rates`, `replay`, `without` or `act`. */
  kind: z.string(),
  chain: z.string(),
})

/** Acts are not history. */
export const isOfActs = (tape: string) => tape.startsWith('act_')

/** 0 and null before the first. */
export function findHead(stateDb: StateDb): {no: number; chain: string | null} {
  const last = stateDb.first(unitRow, 'select * from tape_unit order by no desc limit 1')
  return {no: last?.no ?? 0, chain: last?.chain ?? null}
}

/** If the unit is history, the warehouse must contain it too. Call it in a transaction. */
export function noteUnit(stateDb: StateDb, unit: RecordedUnit, isHistory: boolean): void {
  stateDb.insert('tape_unit', unit)
  if (isHistory) writeFact(stateDb, 'history_head', unit.chain)
}

export function listRecorded(stateDb: StateDb): RecordedUnit[] {
  return stateDb.all(unitRow, 'select * from tape_unit order by no')
}

export function findRecorded(stateDb: StateDb, chain: string): RecordedUnit | undefined {
  return stateDb.first(unitRow, 'select * from tape_unit where chain = ?', [chain])
}

type FactName = 'folder_id' | 'history_head' | 'stores_seen' | 'source_described' | 'described_since'

export function readFact(stateDb: StateDb, name: FactName): string | undefined {
  return stateDb.column(z.string(), 'select value from record_fact where name = ?', [name])[0]
}

export function writeFact(stateDb: StateDb, name: FactName, value: string): void {
  if (readFact(stateDb, name) !== value) stateDb.insert('record_fact', {name, value}, 'or replace')
}

/** 16 hex digits, made at first use. */
export function requireFolderId(stateDb: StateDb): string {
  const id = randomBytes(8).toString('hex')
  stateDb.insert('record_fact', {name: 'folder_id', value: id}, 'or ignore')
  return readFact(stateDb, 'folder_id') ?? id
}

/** What was given up: chains of units, and batches. */
export function listLosses(stateDb: StateDb): Set<string> {
  return new Set(stateDb.column(z.string(), 'select what from record_loss'))
}

/** What a manifest says of losses; empty if nothing was lost. */
export function readWentOn(stateDb: StateDb): {went_on?: WentOn[]} {
  const wentOn = stateDb.all(wentOnSchema, 'select * from went_on order by rowid')
  return wentOn.length > 0 ? {went_on: wentOn} : {}
}

/** Instants are ISO 8601 of the real clock. */
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

export const isPruned = ({removed_at, outcome}: Pick<TapeRow, 'removed_at' | 'outcome'>): boolean =>
  removed_at !== null && outcome !== 'lost'

export function noteTape(
  stateDb: StateDb,
  tape: Pick<TapeRow, 'name' | 'path' | 'fingerprint' | 'begun_at'> & Partial<TapeRow>,
): void {
  const {name, path, fingerprint, begun_at, ...more} = tape
  stateDb.insert('tape', {name, path, fingerprint, begun_at}, 'or ignore')
  changeTape(stateDb, name, {ended_at: null, ...more})
}

export function changeTape(stateDb: StateDb, name: string, changes: Partial<TapeRow>): void {
  stateDb.update('tape', {name}, changes)
}

/** Oldest first, removed ones included. */
export function listTapes(stateDb: StateDb): TapeRow[] {
  return stateDb.all(tapeRow, 'select * from tape order by tape_no')
}

export function findTape(stateDb: StateDb, name: string): TapeRow | undefined {
  return stateDb.first(tapeRow, 'select * from tape where name = ?', [name])
}

/** The fingerprint of the present key; undefined if there is none yet. */
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

/** @throws ConfigError `STORES_DISAGREE` */
export function refuse({root}: DataFolder, [first, ...others]: readonly Disagreement[]): void {
  if (!first) return
  const more = others.length > 0 ? ` (${quantity(others.length, 'more problem')}: \`loantape verify\`.)` : ''
  throw newError('STORES_DISAGREE', `Data folder '${root}', ${first.store}: ${first.problem}${more}`, {
    details: [first, ...others].map(({store, problem}) => ({store, problem})),
  })
}

export const short = (chain: string | null) => (chain === null ? 'none' : chain.slice(0, 12))
