-- What was funded already at the first walk, as entries of the form of accounting.journal_line: booked only by
-- `export … --with-opening`. What could not be read then comes in the month in which it was first readable.
-- grain: entry_id, line_no
-- check: unique(entry_id, line_no)
-- check: not_null(period, entry_id, line_no, entry_date, event, memo, deal_id)
--
-- period: YYYY-MM of the first walk, or of the first that could read it
-- entry_id: LT, year and month, and a hash over deal, event, date, observed_at, accounts and amount
-- line_no: 1 debit, 2 credit
-- entry_date: business date of that walk
-- event: opening
-- account_code: account number by the mapping of the period; null where it names no account, and then nothing is exported
-- account_name: its name
-- debit: USD; null on a credit line
-- credit: USD; null on a debit line
-- memo: which deal, with its address in short and its program
-- deal_id: the service's id
-- loan_program: the program the receivable is booked under; null when unknown
select
  entry.period,
  entry.entry_id,
  cast(side.line_no as bigint) as line_no,
  entry.entry_date,
  entry.event,
  case when side.line_no = 1 then entry.debit_code else entry.credit_code end as account_code,
  case when side.line_no = 1 then entry.debit_name else entry.credit_name end as account_name,
  cast(case when side.line_no = 1 then entry.amount end as decimal(18, 2)) as debit,
  cast(case when side.line_no = 2 then entry.amount end as decimal(18, 2)) as credit,
  entry.memo,
  entry.deal_id,
  entry.loan_program
from work.journal_entry as entry
cross join (values (1), (2)) as side(line_no)
where entry.event = 'opening'
