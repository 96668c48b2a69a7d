import {gunzipSync, gzipSync} from 'node:zlib'
import {z} from 'zod'
import {type IssuedLine, issuedLineSchema} from '../types.ts'
import type {Ledger} from './ledger.ts'

/** A file of a batch, its content whole. */
export interface BatchContent {
  name: string
  content: Uint8Array
}

const batchColumns = 'profile, batch_id, period, known_at, history_id'

/** Whether files were handed out: those of a true-up that moved no balance were not. */
const HAS_FILES = 'exists (select 1 from journal_file where journal_file.batch_no = journal_batch.batch_no)'

/** One journal batch as the ledger has it: what was handed out, once and for all. */
export type IssuedBatch = z.output<typeof batchRow>
const batchRow = z.object({
  profile: z.string(),
  batch_id: z.string(),
  /** `YYYY-MM` */
  period: z.string(),
  /** What was known when it was made: ISO 8601 with microseconds. */
  known_at: z.string(),
  /** The history it stands on; null in batches of earlier versions. */
  history_id: z.string().nullable(),
})

/** Stores a batch with its lines and files; it is not handed over yet. To be called within a transaction. */
export function storeBatch(
  {db}: Ledger,
  batch: IssuedBatch & {issued_at: string; lines: readonly IssuedLine[]; files: readonly BatchContent[]},
): void {
  const {lastInsertRowid} = db
    .prepare(
      `insert into journal_batch (profile, batch_id, period, known_at, history_id, issued_at, is_handed_over)
       values (?, ?, ?, ?, ?, ?, ?)`,
    )
    .run(
      batch.profile,
      batch.batch_id,
      batch.period,
      batch.known_at,
      batch.history_id,
      batch.issued_at,
      Number(batch.files.length === 0),
    )
  const insertFile = db.prepare('insert into journal_file (batch_no, name, content) values (?, ?, ?)')
  for (const {name, content} of batch.files) insertFile.run(lastInsertRowid, name, gzipSync(content))
  const insertLine = db.prepare(
    `insert into issued_line
     (batch_no, journal_no, line_no, period, entry_id, issue_no, entry_date, event, account_code, account_name, debit, credit,
      memo, deal_id, loan_program)
     values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )
  for (const line of batch.lines) {
    insertLine.run(
      lastInsertRowid,
      line.journal_no,
      line.line_no,
      line.period,
      line.entry_id,
      line.issue_no,
      line.entry_date,
      line.event,
      line.account_code,
      line.account_name,
      line.debit,
      line.credit,
      line.memo,
      line.deal_id,
      line.loan_program,
    )
  }
}

/** The batches of a profile for a period that were handed out, oldest first. */
export function listBatches({db}: Ledger, profile: string, period: string): IssuedBatch[] {
  return db
    .prepare(
      `select ${batchColumns} from journal_batch where profile = ? and period = ? and ${HAS_FILES} order by batch_no`,
    )
    .all(profile, period)
    .map((row) => batchRow.parse(row))
}

/** Every journal batch, oldest first. */
export function listAllBatches(
  {db}: Ledger,
  {withoutFiles = false}: {withoutFiles?: boolean} = {},
): IssuedBatch[] {
  return db
    .prepare(`select ${batchColumns} from journal_batch where ? or ${HAS_FILES} order by batch_no`)
    .all(Number(withoutFiles))
    .map((row) => batchRow.parse(row))
}

/** When something was last issued of a period, whichever batch it was handed out in: the latest `known_at`, null when never. */
export function findLastKnown({db}: Ledger, profile: string, period: string): string | null {
  const row = db
    .prepare(
      `select max(known_at) as known_at from journal_batch
       where profile = ? and batch_no in (select batch_no from issued_line where period = ?)`,
    )
    .get(profile, period)
  return z.object({known_at: z.string().nullable()}).parse(row).known_at
}

/** The batches that a run which died stored and did not hand over, oldest first. */
export function listUndelivered({db}: Ledger, profile: string): IssuedBatch[] {
  return db
    .prepare(
      `select ${batchColumns} from journal_batch where profile = ? and is_handed_over = 0 order by batch_no`,
    )
    .all(profile)
    .map((row) => batchRow.parse(row))
}

/** The batches of this id: one, unless two profiles share it. */
export function findBatches({db}: Ledger, batchId: string): IssuedBatch[] {
  return db
    .prepare(
      `select ${batchColumns} from journal_batch where batch_id = ? and ${HAS_FILES} order by batch_no`,
    )
    .all(batchId)
    .map((row) => batchRow.parse(row))
}

/** Notes whether a batch's files are in their place. */
export function markHandedOver({db}: Ledger, {profile, batch_id}: IssuedBatch, isHandedOver: boolean): void {
  db.prepare('update journal_batch set is_handed_over = ? where profile = ? and batch_id = ?').run(
    Number(isHandedOver),
    profile,
    batch_id,
  )
}

const fileRow = z.object({name: z.string(), content: z.instanceof(Uint8Array)})

/** The files of a batch as they were handed out, by name. */
export function readBatchContent({db}: Ledger, {profile, batch_id}: IssuedBatch): BatchContent[] {
  return db
    .prepare(
      `select name, content from journal_file join journal_batch using (batch_no)
       where profile = ? and batch_id = ? order by name`,
    )
    .all(profile, batch_id)
    .map((row) => fileRow.parse(row))
    .map(({name, content}) => ({name, content: gunzipSync(content)}))
}

const issuedRow = issuedLineSchema.extend({batch_id: z.string()})

/** Which of the lines issued to a profile; all of them where nothing is said. */
export interface LineFilter {
  /** Lines that belong to this month. */
  period?: string
  deals?: Iterable<string>
}

/** The lines issued to a profile in the order of issue, each with its batch. */
export function listIssuedLines(
  {db}: Ledger,
  profile: string,
  {period, deals}: LineFilter = {},
): (IssuedLine & {batch_id: string})[] {
  return db
    .prepare(
      `select batch_id, issued_line.* from issued_line join journal_batch using (batch_no)
       where profile = ?1 and (?2 is null or issued_line.period = ?2)
         and (?3 is null or deal_id in (select value from json_each(?3)))
       order by batch_no, journal_no, line_no`,
    )
    .all(profile, period ?? null, deals === undefined ? null : JSON.stringify([...deals]))
    .map((row) => issuedRow.parse(row))
}

/** The months of which something was issued to a profile. */
export function listIssuedPeriods({db}: Ledger, profile: string): string[] {
  return db
    .prepare(
      `select distinct issued_line.period from issued_line join journal_batch using (batch_no)
       where profile = ? order by issued_line.period`,
    )
    .all(profile)
    .map((row) => z.object({period: z.string()}).parse(row).period)
}

/** The profiles that something was ever issued to. */
export function listIssuedProfiles({db}: Ledger): string[] {
  return db
    .prepare('select distinct profile from journal_batch order by profile')
    .all()
    .map((row) => z.object({profile: z.string()}).parse(row).profile)
}

/** An entry that was issued and not taken back. */
export type StandingEntry = z.output<typeof standingRow>
const standingRow = z.object({
  entry_id: z.string(),
  period: z.string(),
  event: z.string(),
  amount: z.string(),
})

/** The entries that stand issued to a profile. */
export function listStandingEntries({db}: Ledger, profile: string): StandingEntry[] {
  return db
    .prepare(
      `select entry_id, max(issued_line.period) as period, max(event) as event, max(coalesce(debit, credit)) as amount
       from issued_line join journal_batch using (batch_no)
       where profile = ?
       group by entry_id
       having max(issue_no) % 2 = 0`,
    )
    .all(profile)
    .map((row) => standingRow.parse(row))
}
