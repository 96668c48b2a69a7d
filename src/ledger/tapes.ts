import {z} from 'zod'
import type {Ledger} from './ledger.ts'

/** A tape, as the ledger holds it; instants are ISO 8601 of the real clock. */
export type TapeRow = z.output<typeof tapeRow>
const tapeRow = z.object({
  tape_no: z.number(),
  /** The walk it is of, or the day: `2026-11-22`. */
  unit: z.string(),
  /** Below the data folder. */
  path: z.string(),
  /** Of the key it is sealed with. */
  fingerprint: z.string(),
  begun_at: z.string(),
  /** Null while it is written. */
  ended_at: z.string().nullable(),
  /** `settled`, `refused`, `abandoned` or `dry run`. */
  outcome: z.string().nullable(),
  /** Chain of its last line. */
  head: z.string().nullable(),
  /** Null until its first lines are stored. */
  bytes: z.number().nullable(),
  sha256: z.string().nullable(),
  removed_at: z.string().nullable(),
})

/** Notes that a tape is begun or continued. */
export function noteTapeBegun(
  {db}: Ledger,
  {unit, path, fingerprint, begun_at}: Pick<TapeRow, 'unit' | 'path' | 'fingerprint' | 'begun_at'>,
): void {
  db.prepare(
    `insert into tape (unit, path, fingerprint, begun_at) values (?, ?, ?, ?)
     on conflict (unit) do update set ended_at = null`,
  ).run(unit, path, fingerprint, begun_at)
}

/** Notes that the first lines of a tape are stored. */
export function noteTapeStored({db}: Ledger, unit: string, bytes: number): void {
  db.prepare('update tape set bytes = ? where unit = ?').run(bytes, unit)
}

/** Forgets a tape of which nothing was ever stored. */
export function forgetTape({db}: Ledger, unit: string): void {
  db.prepare('delete from tape where unit = ? and bytes is null').run(unit)
}

/** Notes that a tape is whole. */
export function noteTapeEnded({db}: Ledger, unit: string, ended: EndedTape): void {
  db.prepare(
    `update tape set ended_at = ?, outcome = ?, head = ?, bytes = ?, sha256 = ?,
       ended_no = (select coalesce(max(ended_no), 0) + 1 from tape)
     where unit = ?`,
  ).run(ended.ended_at, ended.outcome, ended.head, ended.bytes, ended.sha256, unit)
}

/** What is known of a tape that nobody writes any more. */
export interface EndedTape {
  ended_at: string
  outcome: string
  head: string
  bytes: number
  sha256: string
}

/** Notes that the file of a tape was removed, as its age asks. */
export function noteTapeRemoved({db}: Ledger, unit: string, removedAt: string): void {
  db.prepare('update tape set removed_at = ? where unit = ?').run(removedAt, unit)
}

/** Every tape, oldest first, those whose files were removed among them. */
export function listTapes({db}: Ledger): TapeRow[] {
  return db
    .prepare('select * from tape order by tape_no')
    .all()
    .map((row) => tapeRow.parse(row))
}

/** The chain that the tape ended last ends with; null before the first. */
export function findLastHead({db}: Ledger): string | null {
  const row = db.prepare(`select head from tape where head <> '' order by ended_no desc limit 1`).get()
  return row ? z.object({head: z.string()}).parse(row).head : null
}

/** The tape of a walk or a day. */
export function findTape({db}: Ledger, unit: string): TapeRow | undefined {
  const row = db.prepare('select * from tape where unit = ?').get(unit)
  return row && tapeRow.parse(row)
}

/** The fingerprint of the key that tapes are sealed with now; undefined before the first. */
export function findTapeKey({db}: Ledger): string | undefined {
  const row = db.prepare('select fingerprint from tape_key order by since desc, rowid desc limit 1').get()
  return row && z.object({fingerprint: z.string()}).parse(row).fingerprint
}

/** Notes the key that tapes are sealed with from now on. */
export function noteTapeKey(
  {db}: Ledger,
  key: {fingerprint: string; since: string; why: string | null},
): void {
  db.prepare('insert into tape_key (fingerprint, since, why) values (?, ?, ?)').run(
    key.fingerprint,
    key.since,
    key.why,
  )
}
