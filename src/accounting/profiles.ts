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

/** A limit of an importer and its source. */
interface Limit {
  max: number
  source: string
}

/** The limits of an importer. */
interface JournalLimits {
  /** Lines in one file, the header not counted. */
  rows?: Limit
  bytes?: Limit
  /** Digits of an amount before the point. */
  digits?: Limit
  /** Characters of a cell, by column. */
  cells: Readonly<Record<string, Limit>>
  /** The characters that a file may contain. */
  characters: {pattern: RegExp; source: string}
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

const XERO_HELP =
  'Xero, "Enter multiple manual journals using an import template", help.xero.com/nz/ManualJournalsImport'

const XERO_MEMO = 500

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
    '*Narration': ({line}) => fitText(`${line.journal_no} ${line.memo}`, XERO_MEMO),
    '*Date': ({line}) => formatDate(line.entry_date),
    Description: ({line, batchId}) => fitMemo(line.memo, batchId, XERO_MEMO),
    '*AccountCode': ({line}) => line.account_code,
    '*TaxRate': ({mapping}) => mapping.tax_rate,
    '*Amount': ({line}) => line.debit ?? `-${line.credit}`,
    TrackingName1: ({mapping}) => mapping.tracking[0]?.name ?? '',
    TrackingOption1: ({mapping}) => mapping.tracking[0]?.option ?? '',
    TrackingName2: ({mapping}) => mapping.tracking[1]?.name ?? '',
    TrackingOption2: ({mapping}) => mapping.tracking[1]?.option ?? '',
  },
  limits: {
    rows: {max: 300, source: XERO_HELP},
    cells: {
      '*AccountCode': {max: 10, source: 'Xero, Accounts of the Accounting API, developer.xero.com: Code'},
      '*Narration': {max: XERO_MEMO, source: 'ours: far above what we write'},
      Description: {max: XERO_MEMO, source: 'ours: far above what we write'},
    },
    characters: {pattern: PRINTABLE_TEXT, source: `${XERO_HELP}: CSV, read as UTF-8`},
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

const QUICKBOOKS_HELP =
  'Intuit, "Import journal entries", quickbooks.intuit.com/learn-support/en-au/help-article/import-export-files/import-journal-entries-quickbooks-online/L4tQBwbs7_AU_en_AU'
const API = 'Intuit, JournalEntry and Account of the QuickBooks Online API, developer.intuit.com'

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
    rows: {max: 1000, source: QUICKBOOKS_HELP},
    cells: {
      'Journal No.': {max: 21, source: API},
      'Account Name': {max: 100, source: API},
      Description: {max: QUICKBOOKS_MEMO, source: API},
    },
    characters: {pattern: PRINTABLE_TEXT, source: `${QUICKBOOKS_HELP}: CSV, read as UTF-8`},
  },
  readRow: (row) => ({
    number: row['Journal No.'] ?? '',
    date: parseUsDate(row['Journal Date'] ?? ''),
    account: row['Account Name'] ?? '',
    debit: row.Debits ?? '',
    credit: row.Credits ?? '',
  }),
}

const GUIDE =
  'Oracle, NetSuite CSV Imports Guide, "General CSV file formatting": 25,000 records or 50 MB in one file'
const NETSUITE_FIELDS =
  'Oracle, "Journal Entry and Intercompany Journal Entry Line-Level Fields Table", docs.oracle.com/en/cloud/saas/netsuite/ns-online-help/section_1534492737.html'

const LINE = 'Journal Entry - Line: '

const NETSUITE_MEMO = 500

/** NetSuite: accounts by name, preceded by their number if account numbers are used. */
const netsuite: JournalProfile = {
  name: 'netsuite',
  looksUpBy: 'name',
  columns: {
    'External ID': ({line}) => line.journal_no,
    Date: ({line}) => formatUsDate(line.entry_date),
    Subsidiary: ({mapping}) => mapping.subsidiary,
    Currency: ({mapping}) => mapping.currency,
    Memo: ({line, batchId}) => fitMemo(line.memo, batchId, NETSUITE_MEMO),
    [`${LINE}Account`]: ({line}) => line.account_name,
    [`${LINE}Debit`]: ({line}) => line.debit ?? '',
    [`${LINE}Credit`]: ({line}) => line.credit ?? '',
    [`${LINE}Memo`]: ({line}) => fitText(line.memo, NETSUITE_MEMO),
    [`${LINE}Department`]: ({mapping}) => mapping.department,
    [`${LINE}Class`]: ({mapping}) => mapping.class,
    [`${LINE}Location`]: ({mapping}) => mapping.location,
  },
  limits: {
    rows: {max: 25_000, source: GUIDE},
    bytes: {max: 50_000_000, source: GUIDE},
    digits: {max: 10, source: NETSUITE_FIELDS},
    cells: {
      Memo: {max: NETSUITE_MEMO, source: 'ours: far above what we write'},
      [`${LINE}Memo`]: {max: NETSUITE_MEMO, source: 'ours: far above what we write'},
    },
    characters: {pattern: PLAIN_TEXT, source: 'ours: reads alike in every encoding the assistant offers'},
  },
  readRow: (row) => ({
    number: row['External ID'] ?? '',
    date: parseUsDate(row.Date ?? ''),
    account: row[`${LINE}Account`] ?? '',
    debit: row[`${LINE}Debit`] ?? '',
    credit: row[`${LINE}Credit`] ?? '',
  }),
}

const INTACCT_HELP =
  'Sage, "CSV import: General Ledger journal entries", intacct.com/ia/docs/en_US/help_action/More/Uploading_Data/GL/import-GL-journal-entries.htm'

const INTACCT_FIELDS =
  'Blackbaud, "Intacct Export", blackbaud.com/files/support/helpfiles/etapestry/etapestry/content/etap_intacct_export_def.html: field lengths'

const DESCRIPTION = 30
const INTACCT_MEMO = 500

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
    MEMO: ({line}) => fitText(line.memo, INTACCT_MEMO),
    DEBIT: ({line}) => line.debit ?? '',
    CREDIT: ({line}) => line.credit ?? '',
  },
  limits: {
    cells: {
      JOURNAL: {max: 4, source: INTACCT_FIELDS},
      // Its template allows 80; the smaller limit satisfies both.
      DESCRIPTION: {max: DESCRIPTION, source: INTACCT_HELP},
      MEMO: {max: INTACCT_MEMO, source: INTACCT_FIELDS},
    },
    characters: {pattern: PLAIN_TEXT, source: `${INTACCT_HELP}: plain CSV, no byte order mark`},
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
