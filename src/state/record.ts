import {randomBytes} from 'node:crypto'
import {z} from 'zod'
import type {StateDb} from './state-db.ts'

/** A unit of the record that has ended: `no` counts from 1 without a gap, `chain` is that of its outcome. */
export type RecordedUnit = z.output<typeof unitRow>
const unitRow = z.object({
  no: z.number(),
  /** The tape it stands on. */
  tape: z.string(),
  /** `walk`, `look`, `rates`, `replay` or `act`. */
  kind: z.string(),
  chain: z.string(),
})

/** Where the record ends: the number and chain of its last unit; 0 and null before the first. */
export interface RecordHead {
  no: number
  chain: string | null
}

/** Where the record ends, as far as this state database knows. */
export function findHead(stateDb: StateDb): RecordHead {
  const last = stateDb.first(unitRow, 'select * from tape_unit order by no desc limit 1')
  return {no: last?.no ?? 0, chain: last?.chain ?? null}
}

/**
 * Adds a unit to the record. To be called in a transaction.
 *
 * @param isHistory whether the warehouse must contain it
 */
export function noteUnit(stateDb: StateDb, unit: RecordedUnit, isHistory: boolean): void {
  stateDb.insert('tape_unit', unit)
  if (isHistory) writeFact(stateDb, 'history_head', unit.chain)
}

/** The units of the record, oldest first. */
export function listRecorded(stateDb: StateDb): RecordedUnit[] {
  return stateDb.all(unitRow, 'select * from tape_unit order by no')
}

/** The unit whose outcome has this chain. */
export function findRecorded(stateDb: StateDb, chain: string): RecordedUnit | undefined {
  return stateDb.first(unitRow, 'select * from tape_unit where chain = ?', [chain])
}

type FactName = 'folder_id' | 'history_head' | 'stores_seen'

/** A fact about the record; undefined where there is none. */
export function readFact(stateDb: StateDb, name: FactName): string | undefined {
  return stateDb.column(z.string(), 'select value from record_fact where name = ?', [name])[0]
}

/** Stores a fact in place of the one before. */
export function writeFact(stateDb: StateDb, name: FactName, value: string): void {
  stateDb.insert('record_fact', {name, value}, 'or replace')
}

/** The id of the data folder, made at its first use: 16 hex digits. */
export function requireFolderId(stateDb: StateDb): string {
  const id = randomBytes(8).toString('hex')
  stateDb.insert('record_fact', {name: 'folder_id', value: id}, 'or ignore')
  return readFact(stateDb, 'folder_id') ?? id
}

/** What was given up knowingly: chains of units, ids of batches. */
export function listLosses(stateDb: StateDb): Set<string> {
  return new Set(stateDb.column(z.string(), 'select what from record_loss'))
}

/** Gives something up. */
export function noteLoss(stateDb: StateDb, what: string): void {
  stateDb.insert('record_loss', {what}, 'or ignore')
}
