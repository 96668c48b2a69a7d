import {z} from 'zod'
import {addAmounts} from '../core/money.ts'
import profiles from './profiles.json' with {type: 'json'}

/** As in `accounting.journal_line`, but with an account. */
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

/** `before` is the name in the lines last issued to the account. */
export type RenamedAccount = Pick<JournalLine, 'account_code' | 'account_name'> & {before: string}

export type IssuedLine = z.output<typeof issuedLineSchema>
export const issuedLineSchema = journalLineSchema.extend({
  /** The month that the entry belongs to, whichever batch hands it out: `YYYY-MM`. */
  period: z.string(),
  /** Unique among everything ever issued to a profile; on first issue it is the entry's id. */
  journal_no: z.string(),
  /** Even if the issue books the entry, odd if it reverses it. */
  issue_no: z.number(),
})

/** A term of a month's roll-forward in the books: `amount` = `booked` + `unbooked`. Amounts are decimal text, USD. */
export type TiedTerm = z.output<typeof tiedTermSchema>
export const tiedTermSchema = z.object({
  term: z.string(),
  amount: z.string(),
  booked: z.string(),
  unbooked: z.string(),
  /** Why a part is not booked: an opening balance was not requested, or another system books the ending. */
  because: z.enum(['opening balance', 'booked elsewhere']).nullable(),
  /** `amount` minus both, always 0. */
  difference: z.string(),
})

/** Returns the terms with opening balances booked. */
export function bookOpenings(terms: readonly TiedTerm[]): TiedTerm[] {
  return terms.map((term) =>
    term.because === 'opening balance'
      ? {...term, booked: addAmounts([term.booked, term.unbooked]), unbooked: '0.00', because: null}
      : term,
  )
}

/** From `profiles.json`. A limit without a source there is our own. */
export type JournalProfile = z.output<typeof profileSchema>
const profileSchema = z.object({
  name: z.string(),
  looks_up_by: z.enum(['code', 'name']),
  /** What each column contains, in order. */
  columns: z.record(z.string(), z.string()),
  /** Columns that identify an entry, so they are filled on its first line only. */
  first_line_only: z.array(z.string()).default([]),
  limits: z.object({
    /** Lines in one file, without the header. */
    rows: z.number().default(Infinity),
    bytes: z.number().default(Infinity),
    /** Digits of an amount before the decimal point. */
    digits: z.number().default(Infinity),
    /** Most characters of a cell, by column. */
    cells: z.record(z.string(), z.number()),
    characters: z.enum(['ascii', 'printable']),
  }),
})

const PROFILES = z.array(profileSchema).parse(profiles)

export const JOURNAL_NAMES: readonly string[] = PROFILES.map(({name}) => name)

export function findJournalProfile(name: string): JournalProfile | undefined {
  return PROFILES.find((profile) => profile.name === name)
}
