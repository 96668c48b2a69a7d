import {globSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {parse} from 'csv-parse/sync'
import {JOURNAL_NAMES, type JournalLine} from '../../src/accounting/profiles.ts'

/** A line of a batch as an accounting system imports it; the reader shares no code with the writer. */
export interface ImportedLine {
  number: string
  /** `YYYY-MM-DD` */
  date: string
  /** The deal named in the memo, `?` if it names none of the form `deal_1`. */
  deal: string
  /** The digits at the end of the account's number or name. */
  account: string
  memo: string
  /** Debits positive. */
  cents: bigint
}

/** The columns of each profile: the entry's number, its date, the account, the memo, debits and credits. */
const PROFILES: Record<string, [string, string, string, string, string, string?]> = {
  quickbooks: ['Journal No.', 'Journal Date', 'Account Name', 'Description', 'Debits', 'Credits'],
  xero: ['*Narration', '*Date', '*AccountCode', '*Narration', '*Amount'],
  netsuite: [
    'External ID',
    'Date',
    'Journal Entry - Line: Account',
    'Memo',
    'Journal Entry - Line: Debit',
    'Journal Entry - Line: Credit',
  ],
  intacct: ['REFERENCE_NO', 'DATE', 'ACCT_NO', 'MEMO', 'DEBIT', 'CREDIT'],
}

/** Names of the journal profiles; all of them, so that a new one is proven, too. */
export const PROFILE_NAMES: string[] = [...JOURNAL_NAMES]

/** Reads every line of every batch of a profile in a folder of exports. */
export function importBatches(exports: string, profile: string): ImportedLine[] {
  return globSync(`${profile}/**/*.csv`, {cwd: exports})
    .sort()
    .flatMap((file) => readBatchFile(profile, readFileSync(join(exports, file), 'utf8')))
}

/** Sums cents by account up to the end of a day (by default all days), without zeros. */
export function balancesOf(
  lines: readonly Pick<ImportedLine, 'account' | 'date' | 'cents'>[],
  day = '9999-12-31',
): Record<string, bigint> {
  const sums: Record<string, bigint> = {}
  for (const {account, date, cents} of lines) if (date <= day) sums[account] = (sums[account] ?? 0n) + cents
  return Object.fromEntries(Object.entries(sums).filter(([, cents]) => cents !== 0n))
}

/** Sums journal lines to cents by account, without zeros. */
export const sumByAccount = (lines: readonly JournalLine[]): Record<string, bigint> =>
  balancesOf(
    lines.map(({account_code: account, entry_date: date, debit, credit}) => {
      return {account, date, cents: centsOf(debit ?? '') - centsOf(credit ?? '')}
    }),
  )

/** Reads the lines of one file of a batch. */
export function readBatchFile(profile: string, text: string): ImportedLine[] {
  const columns = PROFILES[profile]
  if (!columns) throw new Error(`PROFILES in test/support/importer.ts lacks '${profile}'`)
  const [header = [], ...rows]: string[][] = parse(text, {bom: true, skipEmptyLines: true})
  let [number, date] = ['', '']
  return rows.map((row) => {
    const [first = '', day = '', name = '', memo = '', debit = '', credit = ''] = columns.map((column) =>
      column === undefined ? '' : (row[header.indexOf(column)] ?? ''),
    )
    number = first.split(' ')[0] || number
    date = dateOf(day) || date
    const account = /\d+$/.exec(name)?.[0] ?? ''
    const deal = /\bdeal_\d+/.exec(memo)?.[0] ?? '?'
    return {number, date, deal, account, memo, cents: centsOf(debit) - centsOf(credit)}
  })
}

/** Converts `02/03/2026` and `03 Feb 2026` to `2026-02-03`. */
function dateOf(text: string): string {
  const [, month, day, year] = /^(\d\d)\/(\d\d)\/(\d{4})$/.exec(text) ?? []
  if (year) return `${year}-${month}-${day}`
  return text === '' ? '' : new Date(`${text} UTC`).toISOString().slice(0, 10)
}

function centsOf(text: string): bigint {
  if (text === '') return 0n
  if (!/^-?\d+\.\d\d$/.test(text)) throw new Error(`batch: '${text}' is not an amount`)
  return BigInt(text.replace('.', ''))
}
