import {z} from 'zod'
import {addAmounts} from '../core/money.ts'
import profiles from './profiles.json' with {type: 'json'}

/** One line of the canonical journal: `accounting.journal_line`, without lines that have no account. */
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

/** An account as it is named now, and as it was named when something was last issued to it. */
export type RenamedAccount = Pick<JournalLine, 'account_code' | 'account_name'> & {before: string}

/** An issued journal line. */
export type IssuedLine = z.output<typeof issuedLineSchema>
export const issuedLineSchema = journalLineSchema.extend({
  /** The month the entry belongs to, whichever batch it is handed out in: `YYYY-MM`. */
  period: z.string(),
  /** Unique among everything ever issued to a profile; the first issue has the entry's own id. */
  journal_no: z.string(),
  /** Even: the entry is booked; odd: it is reversed. */
  issue_no: z.number(),
})

/** A term of a month's roll-forward in the books: `amount` = `booked` + `unbooked`. Amounts are decimal text, USD. */
export type TiedTerm = z.output<typeof tiedTermSchema>
export const tiedTermSchema = z.object({
  term: z.string(),
  amount: z.string(),
  booked: z.string(),
  unbooked: z.string(),
  /** Why a part is not booked: an opening balance that was not requested, or an ending that another system books. */
  because: z.enum(['opening balance', 'booked elsewhere']).nullable(),
  /** The rest, always 0. */
  difference: z.string(),
})

/** The same terms with opening balances booked. */
export function bookOpenings(terms: readonly TiedTerm[]): TiedTerm[] {
  return terms.map((term) =>
    term.because === 'opening balance'
      ? {...term, booked: addAmounts([term.booked, term.unbooked]), unbooked: '0.00', because: null}
      : term,
  )
}

/** How journals are written for an importer: `profiles.json`. Where it names no source of a limit, the limit is ours. */
export type JournalProfile = z.output<typeof profileSchema>
const profileSchema = z.object({
  name: z.string(),
  /** What the importer identifies accounts by. */
  looks_up_by: z.enum(['code', 'name']),
  /** What each column holds, in their order. */
  columns: z.record(z.string(), z.string()),
  /** Columns that are empty but on the first line of an entry, which they identify. */
  first_line_only: z.array(z.string()).default([]),
  limits: z.object({
    /** Lines in one file, the header not counted. */
    rows: z.number().default(Infinity),
    bytes: z.number().default(Infinity),
    /** Digits of an amount before the point. */
    digits: z.number().default(Infinity),
    /** Characters of a cell, by column. */
    cells: z.record(z.string(), z.number()),
    /** The characters of a cell: printable ASCII, or printable Unicode. */
    characters: z.enum(['ascii', 'printable']),
  }),
})

const PROFILES = z.array(profileSchema).parse(profiles)

/** The names of the journal kinds of export. */
export const JOURNAL_NAMES: readonly string[] = PROFILES.map(({name}) => name)

/** The journal kind of export of this name, if it is one. */
export function findJournalProfile(name: string): JournalProfile | undefined {
  return PROFILES.find((profile) => profile.name === name)
}
