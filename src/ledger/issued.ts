import {gunzipSync, gzipSync} from 'node:zlib'
import {z} from 'zod'
import type {IssuedLine} from '../types.ts'
import type {Ledger} from './ledger.ts'

/** One journal batch as the ledger has it: what was handed out, once and for all. */
export interface IssuedBatch {
  profile: string
  batch_id: string
  /** `YYYY-MM` */
  period: string
  /** What was known when it was made: ISO 8601 with microseconds. */
  known_at: string
}

/** A file of a batch, its content whole. */
export interface BatchContent {
  name: string
  content: Uint8Array
}

const batchColumns = 'batch_no, profile, batch_id, period, known_at'

const batchRow = z.object({
  batch_no: z.number(),
  profile: z.string(),
  batch_id: z.string(),
  period: z.string(),
  known_at: z.string(),
})

/** Stores a batch with its lines and files; it is not handed over yet. To be called within a transaction. */
export function storeBatch(
  {db}: Ledger,
  batch: IssuedBatch & {issued_at: string; lines: readonly IssuedLine[]; files: readonly BatchContent[]},
): void {
  const {lastInsertRowid} = db
    .prepare(
      `insert into journal_batch (profile, batch_id, period, known_at, issued_at, is_handed_over)
       values (?, ?, ?, ?, ?, 0)`,
    )
    .run(batch.profile, batch.batch_id, batch.period, batch.known_at, batch.issued_at)
  const insertFile = db.prepare('insert into journal_file (batch_no, name, content) values (?, ?, ?)')
  for (const {name, content} of batch.files) insertFile.run(lastInsertRowid, name, gzipSync(content))
  const insertLine = db.prepare(
    `insert into issued_line
     (batch_no, journal_no, line_no, entry_id, issue_no, entry_date, event, account_code, account_name, debit, credit,
      memo, deal_id, loan_program)
     values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
  )
  for (const line of batch.lines) {
    insertLine.run(
      lastInsertRowid,
      line.journal_no,
      line.line_no,
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

/** The batches of a profile for a period, oldest first. */
export function listBatches({db}: Ledger, profile: string, period: string): IssuedBatch[] {
  return db
    .prepare(`select ${batchColumns} from journal_batch where profile = ? and period = ? order by batch_no`)
    .all(profile, period)
    .map((row) => batchRow.parse(row))
}

/** Every journal batch, oldest first. */
export function listAllBatches({db}: Ledger): IssuedBatch[] {
  return db
    .prepare(`select ${batchColumns} from journal_batch order by batch_no`)
    .all()
    .map((row) => batchRow.parse(row))
}

/** How many lines a batch has. */
export function countIssuedLines({db}: Ledger, {profile, batch_id}: IssuedBatch): number {
  const row = db
    .prepare(
      'select count(*) as lines from issued_line join journal_batch using (batch_no) where profile = ? and batch_id = ?',
    )
    .get(profile, batch_id)
  return Number(row?.lines ?? 0)
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
    .prepare(`select ${batchColumns} from journal_batch where batch_id = ? order by batch_no`)
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

const issuedRow: z.ZodType<IssuedLine & {batch_id: string}> = z.object({
  batch_id: z.string(),
  journal_no: z.string(),
  line_no: z.number(),
  entry_id: z.string(),
  issue_no: z.number(),
  entry_date: z.string(),
  event: z.string(),
  account_code: z.string(),
  account_name: z.string(),
  debit: z.string().nullable(),
  credit: z.string().nullable(),
  memo: z.string(),
  deal_id: z.string(),
  loan_program: z.string().nullable(),
})

/** Every line issued to a profile for a period, in the order of issue, each with its batch. */
export function listIssuedLines(
  {db}: Ledger,
  profile: string,
  period: string,
): (IssuedLine & {batch_id: string})[] {
  return db
    .prepare(
      `select batch_id, issued_line.* from issued_line join journal_batch using (batch_no)
       where profile = ? and period = ? order by batch_no, journal_no, line_no`,
    )
    .all(profile, period)
    .map((row) => issuedRow.parse(row))
}
