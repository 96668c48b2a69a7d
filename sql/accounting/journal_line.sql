-- The journal: every movement of the funded book as a balanced entry of one debit and one credit, and what `period remap`
-- moved between accounts. Opening balances are in accounting.opening_line. docs/accounting.md says what is booked when.
-- grain: entry_id, line_no
-- order: entry_date, entry_id, line_no
-- per: deal_id
-- adds_up: debit, credit
-- check: unique(entry_id, line_no)
-- check: not_null(period, entry_id, line_no, entry_date, event, memo, deal_id)
-- check: accepted(event, funding, reversal, increase, decrease, ended, reclass)
--
-- period: YYYY-MM; the month of the roll-forward it belongs to
-- entry_id: LT, year and month, and a hash over deal, event, date, observed_at, accounts and amount
-- line_no: 1 debit, 2 credit
-- entry_date: business date; for a funding its funded_on if that is in the same month, else the nearest day that is
-- event: funding, reversal, increase, decrease, ended, reclass
-- account_code: account number by the mapping of the period; null if it names none, and then nothing is exported
-- account_name: its name; null if account_code is
-- debit: USD; null if the line is a credit
-- credit: USD; null if the line is a debit
-- memo: what happened to which deal, with its address in short and its program
-- deal_id: the service's id
-- loan_program: the program the receivable is booked under; null when unknown
-- term: the term of mart.funded_rollforward that it books; null when it is a reclass, which moves no total
select
  period,
  entry_id,
  line_no,
  entry_date,
  event,
  account_code,
  account_name,
  debit,
  credit,
  memo,
  deal_id,
  loan_program,
  term
from work.entry_line
where event <> 'opening'
