import {readdirSync, readFileSync} from 'node:fs'
import {join} from 'node:path'

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

/** The columns of each profile: the entry's number, its date, the account, the memo, and the amounts. */
const PROFILES: Record<
  string,
  {number: string; date: string; account: string; memo: string; debit: string; credit?: string}
> = {
  quickbooks: {
    number: 'Journal No.',
    date: 'Journal Date',
    account: 'Account Name',
    memo: 'Description',
    debit: 'Debits',
    credit: 'Credits',
  },
  xero: {
    number: '*Narration',
    date: '*Date',
    account: '*AccountCode',
    memo: '*Narration',
    debit: '*Amount',
  },
  netsuite: {
    number: 'External ID',
    date: 'Date',
    account: 'Journal Entry - Line: Account',
    memo: 'Memo',
    debit: 'Journal Entry - Line: Debit',
    credit: 'Journal Entry - Line: Credit',
  },
  intacct: {
    number: 'REFERENCE_NO',
    date: 'DATE',
    account: 'ACCT_NO',
    memo: 'MEMO',
    debit: 'DEBIT',
    credit: 'CREDIT',
  },
}

/** The names of the profiles for journals. */
export const PROFILE_NAMES: string[] = Object.keys(PROFILES)

/** Every line of every batch of a profile in a folder of exports, each batch once. */
export function importBatches(exports: string, profile: string): ImportedLine[] {
  const dir = join(exports, profile)
  return readdirSync(dir, {recursive: true, encoding: 'utf8'})
    .filter((file) => file.endsWith('.csv'))
    .sort()
    .flatMap((file) => readBatchFile(profile, readFileSync(join(dir, file), 'utf8')))
}

/** Balances in cents by account at the end of a day (all days by default), without zeros. */
export function balancesOf(lines: readonly ImportedLine[], day = '9999-12-31'): Record<string, bigint> {
  const sums: Record<string, bigint> = {}
  for (const {account, date, cents} of lines) if (date <= day) sums[account] = (sums[account] ?? 0n) + cents
  return Object.fromEntries(Object.entries(sums).filter(([, cents]) => cents !== 0n))
}

/** The lines of a file of a batch. */
export function readBatchFile(profile: string, text: string): ImportedLine[] {
  const columns = PROFILES[profile]!
  const [header = [], ...rows] = readCsv(text)
  let [number, date] = ['', '']
  return rows.map((row) => {
    const cell = (name: string) => row[header.indexOf(name)] ?? ''
    number = cell(columns.number).split(' ')[0] || number
    date = dateOf(cell(columns.date)) || date
    const memo = cell(columns.memo)
    const account = /\d+$/.exec(cell(columns.account))?.[0] ?? ''
    const deal = /\bdeal_\d+/.exec(memo)?.[0] ?? '?'
    const credit = columns.credit === undefined ? 0n : centsOf(cell(columns.credit))
    return {number, date, deal, account, memo, cents: centsOf(cell(columns.debit)) - credit}
  })
}

/** `02/03/2026` and `03 Feb 2026` as `2026-02-03`. */
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

/** Rows of RFC 4180. */
function readCsv(text: string): string[][] {
  const rows: string[][] = [[]]
  for (const [, quoted, plain, end] of text.matchAll(/(?:"((?:[^"]|"")*)"|([^",\r\n]*))(,|\r?\n|$)/g)) {
    rows.at(-1)!.push(quoted !== undefined ? quoted.replaceAll('""', '"') : (plain ?? ''))
    if (end !== ',') rows.push([])
  }
  return rows.filter((row) => row.length > 1)
}
