-- What was already funded at the first walk, as entries in the form of accounting.journal_line, booked only by `export …
-- --with-opening`. Deals that could not be read then are in the month in which they first could be. A loan whose program was shown
-- later moves to that program's account then.
-- grain: entry_id, line_no
-- order: entry_date, entry_id, line_no
-- per: deal_id
-- adds_up: debit, credit
-- check: unique(entry_id, line_no)
-- check: not_null(period, entry_id, line_no, entry_date, event, memo, deal_id)
--
-- period: YYYY-MM of the first walk, or of the first that could read the deal, or showed its program
-- entry_id: LT, year and month, and a hash over deal, event, date, observed_at, accounts and amount
-- line_no: 1 debit, 2 credit
-- entry_date: business date of that walk
-- event: opening
-- account_code: account number by the mapping of the period; null if it names none, and then nothing is exported
-- account_name: its name; null if account_code is
-- debit: USD; null if the line is a credit
-- credit: USD; null if the line is a debit
-- memo: which deal, with its address in short and its program
-- deal_id: the service's id
-- loan_program: the program the receivable is booked under; null when unknown
-- term: the term of mart.funded_rollforward that it books; null where a loan moves to its program, which moves no total
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
where event = 'opening'
