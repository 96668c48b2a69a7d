import {z} from 'zod'

/** One line of the canonical journal: `accounting.journal_line`, without what no account is named for. */
export type JournalLine = z.output<typeof journalLineSchema>
export const journalLineSchema = z.object({
  entry_id: z.string(),
  line_no: z.number(),
  /** `YYYY-MM-DD` */
  entry_date: z.string(),
  event: z.string(),
  account_code: z.string(),
  account_name: z.string(),
  /** Decimal text; null on a credit line. */
  debit: z.string().nullable(),
  /** Decimal text; null on a debit line. */
  credit: z.string().nullable(),
  memo: z.string(),
  deal_id: z.string(),
  loan_program: z.string().nullable(),
})

/** A journal line as it was handed out. */
export type IssuedLine = z.output<typeof issuedLineSchema>
export const issuedLineSchema = journalLineSchema.extend({
  /** The month the entry belongs to, whichever batch it is handed out in: `YYYY-MM`. */
  period: z.string(),
  /** Unique among all that was ever issued: of the first issue the entry's own id. */
  journal_no: z.string(),
  /** Even: the entry is booked; odd: it is reversed. */
  issue_no: z.number(),
})
