import type {IssuedLine, JournalLine} from '../../src/accounting/profiles.ts'
import {sumByAccount} from '../support/importer.ts'

/** Makes the two lines of an entry of the canonical journal. */
export function anEntry(
  number: number,
  fields: Partial<JournalLine> & {amount?: string} = {},
): JournalLine[] {
  const {amount = '1234.56', ...changes} = fields
  const line = {
    entry_id: `LT2602-${String(number).padStart(12, '0')}`,
    line_no: 1,
    entry_date: '2026-02-03',
    event: 'funding',
    account_code: '1210',
    account_name: 'Loans receivable:Bridge',
    debit: amount,
    credit: null,
    memo: `Funding deal_${number}, 12 Main St, Austin (bridge)`,
    deal_id: `deal_${number}`,
    loan_program: 'bridge',
    ...changes,
  }
  const other = {account_code: '1090', account_name: 'Funding clearing', debit: null, credit: amount}
  return [line, {...line, ...other, line_no: 2}]
}

export const balancesByDeal = (lines: readonly JournalLine[]): Record<string, bigint> =>
  sumByAccount(lines.map((line) => ({...line, account_code: `${line.deal_id} ${line.account_code}`})))

export function issueFirst(lines: readonly JournalLine[]): IssuedLine[] {
  return lines.map((line) => ({
    ...line,
    period: line.entry_date.slice(0, 7),
    journal_no: line.entry_id,
    issue_no: 0,
  }))
}
