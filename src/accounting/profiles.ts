import {z} from 'zod'
import {addAmounts} from '../core/money.ts'
import type {TiedTerm} from '../core/types.ts'
import type {AccountMapping} from './mapping.ts'

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

/** {@link TiedTerm}, as a release and closed periods keep it. */
export const tiedTermSchema: z.ZodType<TiedTerm> = z.object({
  term: z.string(),
  amount: z.string(),
  booked: z.string(),
  unbooked: z.string(),
  because: z.enum(['opening balance', 'booked elsewhere']).nullable(),
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

/** The limits of an importer; where no source is named, they are ours. */
interface JournalLimits {
  /** Lines in one file, the header not counted. */
  rows?: number
  bytes?: number
  /** Digits of an amount before the point. */
  digits?: number
  /** Characters of a cell, by column. */
  cells: Readonly<Record<string, number>>
  /** The characters that a file may contain. */
  characters: RegExp
}

/** The input of a cell. */
export interface JournalCell {
  line: IssuedLine
  /** Of the line in its entry, from 0. */
  index: number
  batchId: string
  mapping: AccountMapping
}

/** A line as an importer would read it. */
export interface ReadLine {
  /** `Journal No.`, `External ID`, …: the number of its entry. */
  number: string
  /** `YYYY-MM-DD` */
  date: string
  account: string
  /** Decimal text; one of the two is empty. */
  debit: string
  credit: string
  /** Context for reading the next row, if a format needs it. */
  note?: string
}

/** How the canonical journal is written for an importer, and read back to prove it. */
export interface JournalProfile {
  name: string
  /** What the importer identifies accounts by. */
  looksUpBy: 'code' | 'name'
  /** What the cells of each column hold, in the order of the columns. */
  columns: Readonly<Record<string, (cell: JournalCell) => string>>
  limits: JournalLimits
  /**
   * The line a row stands for.
   *
   * @param row the cells by column
   * @param before the line of the row above: some formats name an entry on its first line only
   * @throws Error if the row does not have the format
   */
  readRow(row: Readonly<Record<string, string>>, before: ReadLine | undefined): ReadLine
}

/** `2026-02-03` as `02/03/2026`. */
function formatUsDate(date: string): string {
  const [year, month, day] = date.split('-')
  return `${month}/${day}/${year}`
}

/** `02/03/2026` as `2026-02-03`. */
function parseUsDate(text: string): string {
  const match = /^(\d{2})\/(\d{2})\/(\d{4})$/.exec(text)
  if (!match) throw new Error(`date '${text}': expected MM/DD/YYYY`)
  return `${match[3]}-${match[1]}-${match[2]}`
}

/** Typographic characters that have a plain form. */
const PLAIN: Readonly<Record<string, string>> = {
  '‘': "'",
  '’': "'",
  '“': '"',
  '”': '"',
  '–': '-',
  '—': '-',
  '…': '...',
  ß: 'ss',
  ø: 'o',
  Ø: 'O',
  æ: 'ae',
  Æ: 'AE',
  ł: 'l',
  Ł: 'L',
}

/** Text an importer accepts: one line, plain ASCII, at most `longest` characters; `?` for characters without a plain form. */
export function fitText(text: string, longest: number): string {
  const plain = text
    .replace(/[‘’“”–—…ßøØæÆłŁ]/g, (character) => PLAIN[character] ?? '?')
    .normalize('NFKD')
    .replace(/[\p{M}\p{Cf}]/gu, '')
    .replace(/\s+/g, ' ')
    .replace(/\p{Cc}/gu, '')
    .replace(/[^\x20-\x7e]/gu, '?')
    .trim()
  return plain.length <= longest ? plain : `${plain.slice(0, longest - 3).trimEnd()}...`
}

/** A memo with the batch it came in, together at most `longest` characters: {@link fitText}. */
function fitMemo(memo: string, batchId: string, longest: number): string {
  const mark = ` [${batchId}]`
  return `${fitText(memo, longest - mark.length)}${mark}`
}

/** Printable ASCII and line ends: the same in every encoding an importer may assume. */
const PLAIN_TEXT = /^[\x20-\x7e\n]*$/

/** Printable Unicode and line ends. */
const PRINTABLE_TEXT = /^[\P{C}\n]*$/u

/** Characters of a memo: where an importer sets no limit, far above what we write. */
const MEMO = 500

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']

function formatDate(date: string): string {
  const [year, month, day] = date.split('-')
  return `${day} ${MONTHS[Number(month) - 1]} ${year}`
}

function parseDate(text: string): string {
  const [, day, month = '', year] = /^(\d{2}) ([A-Z][a-z]{2}) (\d{4})$/.exec(text) ?? []
  if (!MONTHS.includes(month)) throw new Error(`date '${text}': expected dd mmm yyyy`)
  return `${year}-${String(MONTHS.indexOf(month) + 1).padStart(2, '0')}-${day}`
}

/**
 * Xero manual journals: accounts by code, one signed amount. Lines of one narration and date are one journal: the
 * narration begins with the entry's number.
 */
const xero: JournalProfile = {
  name: 'xero',
  looksUpBy: 'code',
  columns: {
    '*Narration': ({line}) => fitText(`${line.journal_no} ${line.memo}`, MEMO),
    '*Date': ({line}) => formatDate(line.entry_date),
    Description: ({line, batchId}) => fitMemo(line.memo, batchId, MEMO),
    '*AccountCode': ({line}) => line.account_code,
    '*TaxRate': ({mapping}) => mapping.tax_rate,
    '*Amount': ({line}) => line.debit ?? `-${line.credit}`,
    TrackingName1: ({mapping}) => mapping.tracking[0]?.name ?? '',
    TrackingOption1: ({mapping}) => mapping.tracking[0]?.option ?? '',
    TrackingName2: ({mapping}) => mapping.tracking[1]?.name ?? '',
    TrackingOption2: ({mapping}) => mapping.tracking[1]?.option ?? '',
  },
  limits: {
    // "Enter multiple manual journals using an import template", help.xero.com/nz/ManualJournalsImport
    rows: 300,
    // Accounts of the Accounting API, developer.xero.com: Code
    cells: {'*AccountCode': 10, '*Narration': MEMO, Description: MEMO},
    // CSV, read as UTF-8.
    characters: PRINTABLE_TEXT,
  },
  readRow: (row, before) => {
    const amount = row['*Amount'] ?? ''
    const narration = row['*Narration'] ?? ''
    const number = narration.split(' ')[0] ?? ''
    if (before?.number === number && before.note !== narration) {
      throw new Error(`narration '${narration}': expected that of the line above`)
    }
    return {
      number,
      date: parseDate(row['*Date'] ?? ''),
      account: row['*AccountCode'] ?? '',
      debit: amount.startsWith('-') ? '' : amount,
      credit: amount.startsWith('-') ? amount.slice(1) : '',
      note: narration,
    }
  },
}

const QUICKBOOKS_MEMO = 4000

/** QuickBooks Online: accounts by name (`Parent:Sub`), account numbers turned off while importing. */
const quickbooks: JournalProfile = {
  name: 'quickbooks',
  looksUpBy: 'name',
  columns: {
    'Journal No.': ({line}) => line.journal_no,
    'Journal Date': ({line}) => formatUsDate(line.entry_date),
    'Account Name': ({line}) => line.account_name,
    Debits: ({line}) => line.debit ?? '',
    Credits: ({line}) => line.credit ?? '',
    Description: ({line, batchId}) => fitMemo(line.memo, batchId, QUICKBOOKS_MEMO),
    Name: ({mapping}) => mapping.entity,
    Class: ({mapping}) => mapping.class,
    Location: ({mapping}) => mapping.location,
  },
  limits: {
    // "Import journal entries", quickbooks.intuit.com/learn-support, article L4tQBwbs7_AU_en_AU
    rows: 1000,
    // JournalEntry and Account of the QuickBooks Online API, developer.intuit.com
    cells: {'Journal No.': 21, 'Account Name': 100, Description: QUICKBOOKS_MEMO},
    // CSV, read as UTF-8.
    characters: PRINTABLE_TEXT,
  },
  readRow: (row) => ({
    number: row['Journal No.'] ?? '',
    date: parseUsDate(row['Journal Date'] ?? ''),
    account: row['Account Name'] ?? '',
    debit: row.Debits ?? '',
    credit: row.Credits ?? '',
  }),
}

const LINE = 'Journal Entry - Line: '

/** NetSuite: accounts by name, preceded by their number if account numbers are used. */
const netsuite: JournalProfile = {
  name: 'netsuite',
  looksUpBy: 'name',
  columns: {
    'External ID': ({line}) => line.journal_no,
    Date: ({line}) => formatUsDate(line.entry_date),
    Subsidiary: ({mapping}) => mapping.subsidiary,
    Currency: ({mapping}) => mapping.currency,
    Memo: ({line, batchId}) => fitMemo(line.memo, batchId, MEMO),
    [`${LINE}Account`]: ({line}) => line.account_name,
    [`${LINE}Debit`]: ({line}) => line.debit ?? '',
    [`${LINE}Credit`]: ({line}) => line.credit ?? '',
    [`${LINE}Memo`]: ({line}) => fitText(line.memo, MEMO),
    [`${LINE}Department`]: ({mapping}) => mapping.department,
    [`${LINE}Class`]: ({mapping}) => mapping.class,
    [`${LINE}Location`]: ({mapping}) => mapping.location,
  },
  limits: {
    // CSV Imports Guide, "General CSV file formatting": 25,000 records or 50 MB in one file
    rows: 25_000,
    bytes: 50_000_000,
    // "Journal Entry and Intercompany Journal Entry Line-Level Fields Table", docs.oracle.com, section_1534492737
    digits: 10,
    cells: {Memo: MEMO, [`${LINE}Memo`]: MEMO},
    // Reads alike in every encoding that the assistant offers.
    characters: PLAIN_TEXT,
  },
  readRow: (row) => ({
    number: row['External ID'] ?? '',
    date: parseUsDate(row.Date ?? ''),
    account: row[`${LINE}Account`] ?? '',
    debit: row[`${LINE}Debit`] ?? '',
    credit: row[`${LINE}Credit`] ?? '',
  }),
}

const DESCRIPTION = 30

/** The columns that identify an entry: on its first line, and on no other. */
const ENTRY_COLUMNS: JournalProfile['columns'] = {
  JOURNAL: ({index, mapping}) => (index === 0 ? mapping.journal : ''),
  DATE: ({index, line}) => (index === 0 ? formatUsDate(line.entry_date) : ''),
  DESCRIPTION: ({index, line}) => (index === 0 ? fitText(line.memo, DESCRIPTION) : ''),
  REFERENCE_NO: ({index, line}) => (index === 0 ? line.journal_no : ''),
}

/** Sage Intacct general ledger: accounts by number; only the first line of an entry identifies it. */
const intacct: JournalProfile = {
  name: 'intacct',
  looksUpBy: 'code',
  columns: {
    ...ENTRY_COLUMNS,
    LINE_NO: ({index}) => String(index + 1),
    ACCT_NO: ({line}) => line.account_code,
    LOCATION_ID: ({mapping}) => mapping.location,
    DEPT_ID: ({mapping}) => mapping.department,
    DOCUMENT: ({batchId}) => batchId,
    MEMO: ({line}) => fitText(line.memo, MEMO),
    DEBIT: ({line}) => line.debit ?? '',
    CREDIT: ({line}) => line.credit ?? '',
  },
  limits: {
    // Blackbaud, "Intacct Export": field lengths. Sage's template allows descriptions of 80; the smaller limit satisfies both.
    cells: {JOURNAL: 4, DESCRIPTION, MEMO},
    // Sage, "CSV import: General Ledger journal entries": plain CSV, no byte order mark
    characters: PLAIN_TEXT,
  },
  readRow: (row, before) => {
    const isFirst = row.REFERENCE_NO !== ''
    const lineNo = isFirst ? '1' : String(Number(before?.note ?? 0) + 1)
    if (row.LINE_NO !== lineNo) throw new Error(`LINE_NO '${row.LINE_NO}': expected ${lineNo}`)
    for (const column of Object.keys(ENTRY_COLUMNS)) {
      if ((row[column] !== '') !== isFirst) throw new Error(`${column} on line ${lineNo} of an entry`)
    }
    return {
      number: isFirst ? (row.REFERENCE_NO ?? '') : (before?.number ?? ''),
      date: isFirst ? parseUsDate(row.DATE ?? '') : (before?.date ?? ''),
      account: row.ACCT_NO ?? '',
      debit: row.DEBIT ?? '',
      credit: row.CREDIT ?? '',
      note: lineNo,
    }
  },
}

const PROFILES = [quickbooks, xero, netsuite, intacct]

/** The names of the journal kinds of export. */
export const JOURNAL_NAMES: readonly string[] = PROFILES.map(({name}) => name)

/** The journal kind of export of this name, if it is one. */
export function findJournalProfile(name: string): JournalProfile | undefined {
  return PROFILES.find((profile) => profile.name === name)
}
